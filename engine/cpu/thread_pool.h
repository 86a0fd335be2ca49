// The compute threads cpu-0..n that the engine thread drives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace terrace::cpu {

/// Whose scratch: that of an op, or what an op made of several prepares for the op that it calls.
enum class ScratchSlot : std::uint8_t { Op, Operands };

/// Runs tiles of an op on all compute threads; the calling thread takes part as worker 0. Tiles are
/// handed out by an atomic counter: results never depend on who computes what. Between jobs a
/// worker spins for at most 50 us, then sleeps on a futex. Every job begins with MXCSR = 0x1F80.
/// Owner: the engine. Thread: run() from one thread at a time. Failure: none; it works with fewer
/// threads when the system does not give as many as asked for.
class ThreadPool {
public:
    explicit ThreadPool(int n_threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    [[nodiscard]] int n_threads() const;

    /// Calls body(tile, worker) for every tile in [0, n_tiles), worker in [0, n_threads).
    /// Returns when all are done.
    template <typename Body>
    void run(std::int64_t n_tiles, Body&& body) {
        auto call = [](void* context, std::int64_t tile, int worker) {
            (*static_cast<std::remove_reference_t<Body>*>(context))(tile, worker);
        };
        run_erased(n_tiles, call, &body);
    }

    /// Memory for the running op, aligned to 64, not zeroed, kept between calls: the next call for
    /// the same slot may move it, so an op asks once, from the thread that calls run(). Null: no
    /// memory.
    [[nodiscard]] std::byte* scratch(std::int64_t bytes, ScratchSlot slot = ScratchSlot::Op);

private:
    using Call = void (*)(void* context, std::int64_t tile, int worker);
    void run_erased(std::int64_t n_tiles, Call call, void* context);

    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace terrace::cpu
