// How much memory this process holds, and how much the machine (or the container we run in) has
// to give: the two figures that budgets are contracts about (docs/tiers.md 2).
#pragma once

#include <cstdint>
#include <filesystem>

#include "engine/device/result.h"

namespace terrace {

/// Memory of this process that no other can have.
struct ProcessMemory {
    std::int64_t rss_anon_bytes = 0;
    std::int64_t rss_shmem_bytes = 0;
    std::int64_t swap_bytes = 0;
    std::int64_t hugetlb_bytes = 0;

    [[nodiscard]] std::int64_t total_bytes() const {
        return rss_anon_bytes + rss_shmem_bytes + swap_bytes + hugetlb_bytes;
    }
};

/// Memory that could be had now.
struct AvailableMemory {
    std::int64_t bytes = 0;            ///< the smaller of the next two
    std::int64_t machine_bytes = 0;    ///< MemAvailable
    std::int64_t cgroup_bytes = -1;    ///< room under the tightest enclosing limit; -1: no limit
    std::filesystem::path limited_by;  ///< folder of that limit; empty: none is tighter
};

/// `root` stands in front of /proc and /sys: another folder in tests.
[[nodiscard]] Result<ProcessMemory> process_memory(const std::filesystem::path& root = "/");

/// MemAvailable bounded by the limits of every enclosing control group, version 1 and 2; file
/// pages that the group could give back count as available.
[[nodiscard]] Result<AvailableMemory> available_memory(const std::filesystem::path& root = "/");

}  // namespace terrace
