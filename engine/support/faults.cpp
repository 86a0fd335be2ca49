#include "engine/support/faults.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string_view>

namespace terrace {
namespace {

constexpr std::int64_t kMaxDelayMs = 60'000;

constexpr std::array<std::string_view, 8> kGpuSites = {"gpu.launch", "gpu.alloc",     "gpu.upload",
                                                       "gpu.copy",   "gpu.event",     "gpu.context",
                                                       "gpu.hang",   "gpu.last_error"};

Error bad_spec(const std::string& spec, const std::string& expected) {
    return {ErrorCode::WrongUse, "expected " + expected + ", found \"" + spec + "\"",
            "fault to inject",
            "Known faults: disk.read:error@N, disk.read:short@N, disk.read:delay=MS, "
            "alloc.host:after=N."};
}

/// The number after `prefix`, when `fault` starts with it and ends after the number.
std::optional<std::int64_t> number_after(std::string_view fault, std::string_view prefix) {
    if (!fault.starts_with(prefix)) {
        return std::nullopt;
    }
    const std::string_view digits = fault.substr(prefix.size());
    std::int64_t n = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
    if (error != std::errc() || end != digits.data() + digits.size() || n < 0) {
        return std::nullopt;
    }
    return n;
}

/// Stands for a drive that answers late.
void wait_ms(std::int64_t ms) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable nobody;
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
    nobody.wait_until(lock, end, [] { return false; });
}

bool contains(const std::vector<std::int64_t>& numbers, std::int64_t n) {
    return std::find(numbers.begin(), numbers.end(), n) != numbers.end();
}

}  // namespace

Result<std::unique_ptr<FaultInjector>> FaultInjector::parse(std::span<const std::string> specs) {
    if (specs.empty()) {
        return std::unique_ptr<FaultInjector>();
    }
    std::unique_ptr<FaultInjector> faults(new FaultInjector());
    for (const std::string& spec : specs) {
        if (Status added = faults->add(spec); !added) {
            return std::move(added).error();
        }
    }
    return faults;
}

Status FaultInjector::add(const std::string& spec) {
    const std::size_t colon = spec.find(':');
    const std::string site = spec.substr(0, colon);
    if (std::find(kGpuSites.begin(), kGpuSites.end(), site) != kGpuSites.end()) {
        return Error{ErrorCode::WrongUse,
                     "a fault of a graphics card was asked for (\"" + spec +
                         "\"), but this build drives none",
                     "fault to inject", "Use a disk.read or alloc.host fault."};
    }
    if (site != "disk.read" && site != "alloc.host") {
        return bad_spec(spec, "a site (disk.read or alloc.host)");
    }
    if (colon == std::string::npos || colon + 1 == spec.size()) {
        return bad_spec(spec, "a fault after \"" + site + ":\"");
    }
    std::size_t begin = colon + 1;
    while (begin <= spec.size()) {
        const std::size_t comma = std::min(spec.find(',', begin), spec.size());
        const std::string fault = spec.substr(begin, comma - begin);
        Status added =
            site == "disk.read" ? add_disk_read(spec, fault) : add_host_allocation(spec, fault);
        if (!added) {
            return added;
        }
        begin = comma + 1;
    }
    return {};
}

Status FaultInjector::add_disk_read(const std::string& spec, const std::string& fault) {
    if (const auto n = number_after(fault, "error@"); n && *n > 0) {
        error_reads_.push_back(*n);
    } else if (const auto m = number_after(fault, "short@"); m && *m > 0) {
        short_reads_.push_back(*m);
    } else if (const auto ms = number_after(fault, "delay="); ms && *ms <= kMaxDelayMs) {
        read_delay_ms_ = *ms;
    } else {
        return bad_spec(spec, "error@N or short@N with N from 1, or delay=MS up to " +
                                  std::to_string(kMaxDelayMs));
    }
    return {};
}

Status FaultInjector::add_host_allocation(const std::string& spec, const std::string& fault) {
    const auto n = number_after(fault, "after=");
    if (!n) {
        return bad_spec(spec, "after=N");
    }
    allocations_allowed_ = *n;
    return {};
}

ReadFault FaultInjector::next_read() {
    const std::int64_t n = n_reads_.fetch_add(1, std::memory_order_relaxed) + 1;
    if (read_delay_ms_ > 0) {
        wait_ms(read_delay_ms_);
    }
    if (contains(error_reads_, n)) {
        injected_.fetch_add(1, std::memory_order_relaxed);
        return ReadFault::Error;
    }
    if (contains(short_reads_, n)) {
        injected_.fetch_add(1, std::memory_order_relaxed);
        return ReadFault::Short;
    }
    return ReadFault::None;
}

bool FaultInjector::next_host_allocation_fails() {
    if (allocations_allowed_ < 0 ||
        n_allocations_.fetch_add(1, std::memory_order_relaxed) < allocations_allowed_) {
        return false;
    }
    injected_.fetch_add(1, std::memory_order_relaxed);
    return true;
}

}  // namespace terrace
