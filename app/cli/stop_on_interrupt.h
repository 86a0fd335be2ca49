// Ctrl-C: the first stops the answer within a tile, the second ends the program.
#pragma once

#include <memory>
#include <stop_token>

namespace terrace::cli {

/// Watches SIGINT and SIGTERM on a thread of its own. Make it before any other thread, so that all
/// of them inherit the blocked signals. Owner: main.
class StopOnInterrupt {
public:
    StopOnInterrupt();
    ~StopOnInterrupt();
    StopOnInterrupt(const StopOnInterrupt&) = delete;
    StopOnInterrupt& operator=(const StopOnInterrupt&) = delete;

    /// A token for the next request: a Ctrl-C that came before counts for the request before.
    [[nodiscard]] std::stop_token newRequest();

    /// Whether the current request was stopped by a signal.
    [[nodiscard]] bool interrupted() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace terrace::cli
