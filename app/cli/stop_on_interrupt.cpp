#include "app/cli/stop_on_interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <mutex>
#include <thread>

#include "app/cli/terminal.h"

namespace terrace::cli {

struct StopOnInterrupt::State {
    std::mutex mutex;  // guards source
    std::stop_source source;
    sigset_t signals{};
    std::jthread watcher;  // last: it uses everything above
};

StopOnInterrupt::StopOnInterrupt() : state_(std::make_unique<State>()) {
    sigemptyset(&state_->signals);
    sigaddset(&state_->signals, SIGINT);
    sigaddset(&state_->signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &state_->signals, nullptr);
    state_->watcher = std::jthread([state = state_.get()](const std::stop_token& end) {
        while (!end.stop_requested()) {
            const timespec wait{0, 100'000'000};
            if (sigtimedwait(&state->signals, nullptr, &wait) < 0) {
                continue;
            }
            const std::lock_guard lock(state->mutex);
            if (!state->source.request_stop()) {
                // Asked twice: nothing of ours may stand between the user and the prompt.
                ::_exit(static_cast<int>(Exit::Stopped));
            }
        }
    });
}

StopOnInterrupt::~StopOnInterrupt() = default;

std::stop_token StopOnInterrupt::newRequest() {
    const std::lock_guard lock(state_->mutex);
    state_->source = std::stop_source();
    return state_->source.get_token();
}

bool StopOnInterrupt::interrupted() const {
    const std::lock_guard lock(state_->mutex);
    return state_->source.stop_requested();
}

}  // namespace terrace::cli
