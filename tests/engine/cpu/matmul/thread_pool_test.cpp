#include "engine/cpu/thread_pool.h"

#include <gtest/gtest.h>
#include <immintrin.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace terrace::cpu {

TEST(ThreadPoolTest, EveryTileIsDoneOnceOverManyTinyJobs) {
    for (int n_threads = 1; n_threads <= 4; ++n_threads) {
        ThreadPool pool(n_threads);
        std::vector<int> done(64);  // not atomic: tiles of one job never share an element
        for (int job = 0; job < 3000; ++job) {
            const std::int64_t n_tiles = job % 65;
            pool.run(n_tiles, [&](std::int64_t tile, int worker) {
                EXPECT_GE(worker, 0);
                EXPECT_LT(worker, pool.n_threads());
                done[static_cast<std::size_t>(tile)] += 1;
            });
            for (std::int64_t tile = 0; tile < 64; ++tile) {
                ASSERT_EQ(done[static_cast<std::size_t>(tile)], tile < n_tiles ? 1 : 0);
                done[static_cast<std::size_t>(tile)] = 0;
            }
        }
    }
}

TEST(ThreadPoolTest, TheCallerSeesWhatTheTilesWrote) {
    ThreadPool pool(3);
    std::vector<std::int64_t> values(1000);
    for (std::int64_t job = 0; job < 200; ++job) {
        pool.run(1000, [&](std::int64_t tile, int) {
            values[static_cast<std::size_t>(tile)] = tile * job;
        });
        for (std::int64_t tile = 0; tile < 1000; ++tile) {
            ASSERT_EQ(values[static_cast<std::size_t>(tile)], tile * job);
        }
    }
}

TEST(ThreadPoolTest, SleepingThreadsWakeForTheNextJob) {
    ThreadPool pool(3);
    for (int job = 0; job < 20; ++job) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));  // far beyond the spin
        std::atomic<int> done{0};
        pool.run(16, [&](std::int64_t, int) { done.fetch_add(1); });
        ASSERT_EQ(done.load(), 16);
    }
}

TEST(ThreadPoolTest, SlowTilesAreWaitedFor) {
    ThreadPool pool(3);
    std::atomic<int> done{0};
    pool.run(3, [&](std::int64_t, int) {
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
        done.fetch_add(1);
    });
    EXPECT_EQ(done.load(), 3);
}

TEST(ThreadPoolTest, EveryJobBeginsWithDenormalsAndRoundToNearest) {
    ThreadPool pool(3);
    _mm_setcsr(0x9FC0);  // flush to zero, denormals are zero
    std::atomic<int> wrong{0};
    for (int job = 0; job < 50; ++job) {
        pool.run(12, [&](std::int64_t, int) {
            // The low six bits are sticky flags; they say nothing about the mode.
            if ((_mm_getcsr() & ~0x3Fu) != 0x1F80u) {
                wrong.fetch_add(1);
            }
        });
        pool.run(1, [&](std::int64_t, int) {
            if ((_mm_getcsr() & ~0x3Fu) != 0x1F80u) {
                wrong.fetch_add(1);
            }
            _mm_setcsr(0x9FC0);
        });
    }
    _mm_setcsr(0x1F80);
    EXPECT_EQ(wrong.load(), 0);
}

TEST(ThreadPoolTest, ScratchGrowsAndIsAligned) {
    ThreadPool pool(1);
    for (const std::int64_t bytes : {1, 100000, 64, 5000000}) {
        std::byte* p = pool.scratch(bytes);
        ASSERT_NE(p, nullptr);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p) % 64, 0u);
        p[0] = p[bytes - 1] = std::byte{1};
    }
}

}  // namespace terrace::cpu
