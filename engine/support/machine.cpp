#include "engine/support/machine.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>

namespace terrace {

namespace {

/// Whole cores of quota / period; a large number when there is no limit.
std::int64_t quota_cores(double quota, double period) {
    if (quota <= 0 || period <= 0) {
        return 1 << 20;
    }
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(quota / period + 0.5));
}

std::int64_t cgroup_cores(const std::filesystem::path& root) {
    std::int64_t cores = 1 << 20;
    std::string quota;
    double period = 0;
    if (std::ifstream v2(root / "sys/fs/cgroup/cpu.max"); v2 >> quota >> period) {
        if (quota != "max") {
            cores = std::min(cores, quota_cores(std::strtod(quota.c_str(), nullptr), period));
        }
    }
    std::ifstream v1_quota(root / "sys/fs/cgroup/cpu/cpu.cfs_quota_us");
    std::ifstream v1_period(root / "sys/fs/cgroup/cpu/cpu.cfs_period_us");
    double q = 0;
    if (v1_quota >> q && v1_period >> period) {
        cores = std::min(cores, quota_cores(q, period));
    }
    return cores;
}

}  // namespace

std::int64_t usable_cores(const std::filesystem::path& root) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
        return 1;
    }
    std::set<std::string> cores;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &allowed)) {
            continue;
        }
        std::ifstream siblings(root / "sys/devices/system/cpu" / ("cpu" + std::to_string(cpu)) /
                               "topology/thread_siblings_list");
        std::string core;
        if (!std::getline(siblings, core)) {
            core = "cpu" + std::to_string(cpu);
        }
        cores.insert(core);
    }
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(cores.size()), 1, cgroup_cores(root));
}

}  // namespace terrace
