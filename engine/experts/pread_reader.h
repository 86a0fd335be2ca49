// The first reader: a pool of threads that call pread, past the page cache where that works.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/device/device.h"
#include "engine/experts/expert_reader.h"
#include "engine/support/file.h"

namespace terrace {

class FaultInjector;

struct PreadReaderOptions {
    int n_threads = 4;
    /// Requests that are being read or unpacked at the same time; each has a slab. With more than
    /// one, the last free slab waits for a demand.
    int n_slabs = 4;
    std::int64_t slab_bytes = 0;  ///< the largest slab_bytes_for of all requests to come
    ReadMode mode = ReadMode::Auto;
    FaultInjector* faults = nullptr;
};

/// Memory that a request passes through: each extent widened to whole aligned blocks.
[[nodiscard]] std::int64_t slab_bytes_for(std::span<const ReadExtent> extents);

/// See ExpertReader. Extents are split into reads of 1 to 2 MiB, which all threads share; the
/// thread whose read completes a request tells the listener.
class PreadReader final : public ExpertReader {
public:
    /// Opens every file and starts the threads io-0 ... Errors: a file that cannot be opened
    /// (directly, if that was demanded), memory for the slabs, threads.
    [[nodiscard]] static Result<std::unique_ptr<PreadReader>> create(
        std::span<const std::filesystem::path> paths,
        Device& device,
        ReadListener& listener,
        const PreadReaderOptions& options);

    PreadReader(const PreadReader&) = delete;
    PreadReader& operator=(const PreadReader&) = delete;
    ~PreadReader() override;

    void submit(const ReadRequest& request) override;
    void raise_priority(std::uint64_t tag, ReadPriority priority) override;
    [[nodiscard]] CancelOutcome cancel(std::uint64_t tag) override;
    void drain() override;
    [[nodiscard]] bool direct() const override;

    [[nodiscard]] std::int64_t staging_bytes() const override {
        return static_cast<std::int64_t>(slabs_.size()) * slab_bytes_;
    }

private:
    /// One read.
    struct Piece {
        std::int32_t file = 0;
        std::int64_t offset = 0;       ///< in the file
        std::int64_t slab_offset = 0;  ///< in the slab
        std::int64_t bytes = 0;        ///< room for it
        std::int64_t needed = 0;       ///< of these, wanted: the rest may lie past the file's end
    };

    enum class SlabState : std::uint8_t {
        Free,
        Reading,
        Ending,  ///< failed or cancelled: no further piece begins
        Completing,
    };

    /// One request on its way. All but the bytes of `memory` is guarded by mutex_; a completing
    /// slab belongs to the thread that completes it.
    struct Slab {
        Buffer memory;
        SlabState state = SlabState::Free;
        ReadRequest request;
        std::uint64_t order = 0;  ///< requests of one priority go in the order they began
        std::vector<Piece> pieces;
        std::vector<std::span<const std::byte>> extents;
        std::size_t next_piece = 0;
        std::int32_t n_running = 0;
        std::optional<Error> error;
        std::int64_t bytes = 0;
        double seconds = 0.0;

        [[nodiscard]] bool has_piece() const {
            return state == SlabState::Reading && next_piece < pieces.size();
        }

        /// Nothing runs and nothing is to begin: somebody has to complete it.
        [[nodiscard]] bool is_over() const {
            const bool all_begun = state == SlabState::Reading && next_piece == pieces.size();
            return n_running == 0 && (all_begun || state == SlabState::Ending);
        }
    };

    PreadReader(ReadListener& listener, std::int64_t slab_bytes)
        : listener_(listener), slab_bytes_(slab_bytes) {}

    void run(int thread_index);
    [[nodiscard]] Slab* next_slab();
    [[nodiscard]] Slab* begin_next_request(const Slab* current);
    void split(Slab& slab) const;
    void append_pieces(Slab& slab, const ReadExtent& extent, std::int64_t slab_offset) const;
    void read_piece(Slab& slab, std::unique_lock<std::mutex>& lock);
    void complete(Slab& slab, std::unique_lock<std::mutex>& lock);
    [[nodiscard]] bool idle() const;

    ReadListener& listener_;
    const std::int64_t slab_bytes_;
    std::vector<File> files_;  ///< constant after create()

    std::mutex mutex_;  // guards everything below but the threads
    std::condition_variable work_;
    std::condition_variable idle_;
    std::vector<Slab> slabs_;
    std::array<std::deque<ReadRequest>, 3> queued_;  ///< one for each priority
    std::uint64_t n_begun_ = 0;
    bool stopping_ = false;

    std::vector<std::jthread> threads_;  ///< last: joined before the rest goes
};

}  // namespace terrace
