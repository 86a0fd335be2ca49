// Faults on purpose: makes chosen calls fail, so that anybody can see that the answer stays the
// same (docs/tiers.md 7). Nothing is asked and nothing is counted when no fault was requested.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/device/result.h"

namespace terrace {

enum class ReadFault : std::uint8_t { None, Error, Short };

/// The faults that a user asked for with --inject.
/// Owner: the engine; outlives every file, store and device that was given it. Thread-safe.
///
/// A spec is `site:fault[,fault...]`; N counts the calls of that site from 1, over all places.
///   disk.read:error@N    the N-th read request fails with EIO, once
///   disk.read:short@N    the N-th read request brings only half of its bytes
///   disk.read:delay=MS   every read request takes that much longer
///   alloc.host:after=N   every allocation of host memory after the first N fails
/// The gpu.* sites are known and refused: this build drives no graphics card.
class FaultInjector {
public:
    struct Counts {
        std::int64_t injected = 0;
        std::int64_t repaired = 0;
    };

    /// An error names the spec and what was expected. No specs: null, which means no faults.
    [[nodiscard]] static Result<std::unique_ptr<FaultInjector>> parse(
        std::span<const std::string> specs);

    /// Counts one read request and says what is to happen to it; waits for the requested delay.
    [[nodiscard]] ReadFault next_read();

    /// Counts one allocation of host memory; true when it has to fail.
    [[nodiscard]] bool next_host_allocation_fails();

    /// Injected faults that did no harm.
    void count_repaired(std::int64_t n) { repaired_.fetch_add(n, std::memory_order_relaxed); }

    [[nodiscard]] Counts counts() const {
        return {injected_.load(std::memory_order_relaxed),
                repaired_.load(std::memory_order_relaxed)};
    }

private:
    FaultInjector() = default;

    [[nodiscard]] Status add(const std::string& spec);
    [[nodiscard]] Status add_disk_read(const std::string& spec, const std::string& fault);
    [[nodiscard]] Status add_host_allocation(const std::string& spec, const std::string& fault);

    std::vector<std::int64_t> error_reads_;  // constant after parse
    std::vector<std::int64_t> short_reads_;  // constant after parse
    std::int64_t read_delay_ms_ = 0;         // constant after parse
    std::int64_t allocations_allowed_ = -1;  // constant after parse; -1: all

    std::atomic<std::int64_t> n_reads_{0};
    std::atomic<std::int64_t> n_allocations_{0};
    std::atomic<std::int64_t> injected_{0};
    std::atomic<std::int64_t> repaired_{0};
};

}  // namespace terrace
