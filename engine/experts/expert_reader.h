// How experts come from disk: requests for whole experts, completed on the reader's own threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "engine/device/result.h"

namespace terrace {

/// Later ones go first. Background: filling memory while nothing is asked for.
enum class ReadPriority : std::uint8_t { Background, Prefetch, Demand };

/// Neighbouring bytes of one file.
struct ReadExtent {
    std::int32_t file = 0;  ///< index into the files the reader was made with
    std::int64_t offset = 0;
    std::int64_t bytes = 0;
};

/// One expert to be read.
struct ReadRequest {
    std::uint64_t tag = 0;                ///< its name; unique among requests not yet completed
    std::span<const ReadExtent> extents;  ///< stays where it is until the completion
    ReadPriority priority = ReadPriority::Demand;
};

/// How a request ended.
struct ReadCompletion {
    enum class Outcome : std::uint8_t { Done, Cancelled, Failed };

    std::uint64_t tag = 0;
    Outcome outcome = Outcome::Done;
    /// Done: the bytes of each extent, as they are in the file; valid during the call only.
    std::span<const std::span<const std::byte>> extents;
    std::optional<Error> error;  ///< Failed: file, offset and errno
    std::int64_t bytes = 0;      ///< read for this request
    double seconds = 0.0;        ///< spent reading them, summed over threads
};

/// Told about each completed request. Owner: the store; outlives the reader.
class ReadListener {
public:
    virtual ~ReadListener() = default;

    /// Called on an io thread with no lock held and MXCSR = 0x1F80, once for every request that
    /// was not dropped by cancel(). The slab that holds the bytes is used again when it returns.
    virtual void read_done(const ReadCompletion& completion) = 0;
};

/// Reads experts. Owner: the store. Thread-safe; never calls the listener from inside one of these
/// functions. Failure: by completion.
/// Destroying it drops what is queued without a completion, cancels what is running, and returns
/// when the last completion has returned.
class ExpertReader {
public:
    virtual ~ExpertReader() = default;

    virtual void submit(const ReadRequest& request) = 0;

    /// Nothing happens when the request is unknown, done or already at least as urgent.
    virtual void raise_priority(std::uint64_t tag, ReadPriority priority) = 0;

    /// Dropped: it had not begun, and no completion follows. WillComplete: it has begun or is
    /// unknown; its completion (Cancelled, or Done when that was faster) follows or went before.
    enum class CancelOutcome : std::uint8_t { Dropped, WillComplete };
    [[nodiscard]] virtual CancelOutcome cancel(std::uint64_t tag) = 0;

    /// Returns when nothing is queued and nothing is running.
    virtual void drain() = 0;

    /// True when every file is read past the page cache.
    [[nodiscard]] virtual bool direct() const = 0;

    /// Memory of the slabs that bytes pass through.
    [[nodiscard]] virtual std::int64_t staging_bytes() const = 0;
};

}  // namespace terrace
