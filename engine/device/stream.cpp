#include "engine/device/stream.h"

#include <cstdio>
#include <cstdlib>

#include "engine/device/check.h"

namespace terrace {

void check_failed(const char* condition, const char* file, int line) {
    std::fprintf(stderr, "terrace: a promise between its own parts was broken: %s (%s:%d)\n",
                 condition, file, line);
    std::abort();
}

void FaultWord::report(NumericFault fault) {
    const std::uint64_t word = (static_cast<std::uint64_t>(fault.position) << 32) |
                               (static_cast<std::uint64_t>(fault.layer & 0xffffff) << 8) |
                               static_cast<std::uint64_t>(fault.site);
    std::uint64_t known = word_.load(std::memory_order_relaxed);
    while (word < known && !word_.compare_exchange_weak(known, word, std::memory_order_relaxed)) {
    }
}

std::optional<NumericFault> FaultWord::first() const {
    const std::uint64_t word = word_.load(std::memory_order_relaxed);
    if (word == kNone) {
        return std::nullopt;
    }
    return NumericFault{static_cast<std::int32_t>(word >> 32),
                        static_cast<std::int32_t>((word >> 8) & 0xffffff),
                        static_cast<FaultSite>(word & 0xff)};
}

void Stream::fail(Error error) {
    const std::lock_guard lock(mutex_);
    if (!error_) {
        error_ = std::move(error);
    }
}

std::optional<Error> Stream::take_error() {
    const std::lock_guard lock(mutex_);
    return std::exchange(error_, std::nullopt);
}

}  // namespace terrace
