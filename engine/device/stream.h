// Where device work goes, and where its first error is kept until the host waits anyway.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <stop_token>

#include "engine/device/result.h"

namespace terrace {

/// The kinds of place where a NaN or an infinity is looked for, in the order of arithmetic.md 0.
enum class FaultSite : std::uint8_t {
    Quantise = 0,
    Router = 1,
    Indexer = 2,
    Score = 3,
    Logits = 4
};

/// The first numeric fault of a step: the smallest (row, layer, site). Row is a position.
struct NumericFault {
    std::int32_t position = 0;
    std::int32_t layer = 0;
    FaultSite site = FaultSite::Quantise;
};

/// Collects the smallest numeric fault of a step. Thread-safe; ops report from any pool thread.
class FaultWord {
public:
    /// Remembers the fault if it is smaller than what is known.
    void report(NumericFault fault);

    [[nodiscard]] std::optional<NumericFault> first() const;

    void clear() { word_.store(kNone, std::memory_order_relaxed); }

private:
    static constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
    std::atomic<std::uint64_t> word_{kNone};
};

/// The order of work of one engine on one device. Ops return void; the stream keeps the first
/// error and the first numeric fault, and the host reads both where it waits anyway.
/// Owner: the engine. Thread: launches come from the engine thread; fail() and faults() from any.
class Stream {
public:
    /// Keeps `error` unless one is kept already.
    void fail(Error error);

    /// The first error since the last call, if any; clears it.
    [[nodiscard]] std::optional<Error> take_error();

    FaultWord& faults() { return faults_; }

    /// The stop token of the running request: ops look at it once a tile and then do nothing more,
    /// so a stopped step has rubbish in its outputs and must be thrown away.
    void set_stop(std::stop_token stop) { stop_ = std::move(stop); }

    [[nodiscard]] bool stop_requested() const { return stop_.stop_requested(); }

    [[nodiscard]] const std::stop_token& stop_token() const { return stop_; }

private:
    std::mutex mutex_;  // guards error_
    std::optional<Error> error_;
    FaultWord faults_;
    std::stop_token stop_;
};

}  // namespace terrace
