#include "engine/cpu/thread_pool.h"

#include <immintrin.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "engine/device/check.h"

namespace terrace::cpu {

namespace {

// Round to nearest even, denormals kept, no traps: what the contract asks for. A library linked
// with -ffast-math may have changed it for this thread.
constexpr unsigned kContractMxcsr = 0x1F80;

// How long a thread waits awake: longer than the pause between two ops of a layer, short enough
// not to heat the machine while the user reads.
constexpr std::chrono::microseconds kSpin{50};

struct FreeDeleter {
    void operator()(std::byte* p) const { std::free(p); }
};

// Spins until ready() or for kSpin; true when ready. The clock is read rarely: it costs as much
// as the whole job of a small op.
template <typename Ready>
bool spin_until(Ready ready) {
    constexpr int kLooksPerClock = 32;
    std::chrono::steady_clock::time_point end{};
    for (;;) {
        for (int look = 0; look < kLooksPerClock; ++look) {
            if (ready()) {
                return true;
            }
            _mm_pause();
        }
        const auto now = std::chrono::steady_clock::now();
        if (end == std::chrono::steady_clock::time_point{}) {
            end = now + kSpin;
        } else if (now >= end) {
            return false;
        }
    }
}

}  // namespace

struct ThreadPool::State {
    // The running job. Written by run() before `work` is published and read only by a thread that
    // has taken a tile of it, so never while it changes.
    Call call = nullptr;
    void* context = nullptr;
    std::uint32_t n_tiles = 0;

    // High half: number of the job; low half: tiles not yet taken. One word, so that a thread that
    // overslept cannot take a tile of the next job with the description of the last one.
    alignas(64) std::atomic<std::uint64_t> work{0};
    // Number of the job again, alone: what sleeping threads wait on.
    alignas(64) std::atomic<std::uint32_t> job{0};
    alignas(64) std::atomic<std::uint32_t> n_done{0};
    std::atomic<bool> stopping{false};

    struct Scratch {
        std::unique_ptr<std::byte, FreeDeleter> data;
        std::int64_t bytes = 0;
    };

    Scratch scratch[2];  // by ScratchSlot

    std::vector<std::jthread> threads;  // last: joined before the words above go away

    void work_on(int worker);
    void worker_loop(int worker);
    void stop();
};

// Takes tiles until none is left.
void ThreadPool::State::work_on(int worker) {
    std::uint32_t done = 0;
    std::uint64_t word = work.load(std::memory_order_acquire);
    std::uint32_t total = 0;
    while ((word & 0xffffffffu) != 0) {
        if (!work.compare_exchange_weak(word, word - 1, std::memory_order_acq_rel,
                                        std::memory_order_acquire)) {
            continue;
        }
        total = n_tiles;
        call(context, total - static_cast<std::uint32_t>(word & 0xffffffffu), worker);
        ++done;
        word = work.load(std::memory_order_acquire);
    }
    if (done != 0 && n_done.fetch_add(done, std::memory_order_acq_rel) + done == total) {
        n_done.notify_one();
    }
}

void ThreadPool::State::worker_loop(int worker) {
    std::uint32_t last = 0;
    for (;;) {
        const auto changed = [&] { return job.load(std::memory_order_acquire) != last; };
        if (!spin_until(changed)) {
            job.wait(last, std::memory_order_acquire);
        }
        last = job.load(std::memory_order_acquire);
        if (stopping.load(std::memory_order_acquire)) {
            return;
        }
        _mm_setcsr(kContractMxcsr);
        work_on(worker);
    }
}

void ThreadPool::State::stop() {
    stopping.store(true, std::memory_order_release);
    job.fetch_add(1, std::memory_order_acq_rel);
    job.notify_all();
    threads.clear();
}

ThreadPool::ThreadPool(int n_threads) : state_(std::make_unique<State>()) {
    for (int worker = 1; worker < n_threads; ++worker) {
        try {
            state_->threads.emplace_back(
                [state = state_.get(), worker] { state->worker_loop(worker); });
        } catch (const std::system_error&) {
            return;  // as many threads as the system gives; results do not depend on it
        }
        const std::string name = "cpu-" + std::to_string(worker);
        pthread_setname_np(state_->threads.back().native_handle(), name.c_str());
    }
}

ThreadPool::~ThreadPool() {
    state_->stop();
}

int ThreadPool::n_threads() const {
    return static_cast<int>(state_->threads.size()) + 1;
}

std::byte* ThreadPool::scratch(std::int64_t bytes, ScratchSlot slot) {
    constexpr std::int64_t kUnit = 64 * 1024;
    State::Scratch& scratch = state_->scratch[static_cast<std::size_t>(slot)];
    if (bytes > scratch.bytes) {
        const std::int64_t wanted = (bytes + kUnit - 1) / kUnit * kUnit;
        scratch.data.reset();
        scratch.data.reset(
            static_cast<std::byte*>(std::aligned_alloc(64, static_cast<std::size_t>(wanted))));
        scratch.bytes = scratch.data == nullptr ? 0 : wanted;
    }
    return scratch.data.get();
}

void ThreadPool::run_erased(std::int64_t n_tiles, Call call, void* context) {
    CHECK(n_tiles >= 0 && n_tiles < (std::int64_t{1} << 32));
    _mm_setcsr(kContractMxcsr);
    State& s = *state_;
    if (n_tiles <= 1 || s.threads.empty()) {
        for (std::int64_t tile = 0; tile < n_tiles; ++tile) {
            call(context, tile, 0);
        }
        return;
    }
    s.call = call;
    s.context = context;
    s.n_tiles = static_cast<std::uint32_t>(n_tiles);
    s.n_done.store(0, std::memory_order_relaxed);
    const std::uint32_t number = s.job.load(std::memory_order_relaxed) + 1;
    s.work.store((static_cast<std::uint64_t>(number) << 32) | s.n_tiles, std::memory_order_release);
    s.job.store(number, std::memory_order_seq_cst);
    s.job.notify_all();
    s.work_on(0);
    const auto finished = [&] { return s.n_done.load(std::memory_order_acquire) == s.n_tiles; };
    while (!spin_until(finished)) {
        const std::uint32_t seen = s.n_done.load(std::memory_order_acquire);
        if (seen != s.n_tiles) {
            s.n_done.wait(seen, std::memory_order_acquire);
        }
    }
}

}  // namespace terrace::cpu
