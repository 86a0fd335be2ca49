// The experts of a model: on disk, of which as many as fit are held in memory. On the way of a
// token this is the part between the router's choice and the matrix products of the experts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include "engine/device/device.h"
#include "engine/device/ops.h"
#include "engine/device/result.h"
#include "engine/device/tensor.h"
#include "engine/experts/expert_id.h"
#include "engine/support/file.h"

namespace terrace {

class Checkpoint;
struct ExpertSource;
class ExpertStore;
class FaultInjector;

/// The three matrices of one expert in the layout of the device's kernels, WeightUse::RowDot.
///   gate, up  [expert width, hidden]
///   down      [hidden, expert width]
struct ExpertWeights {
    WeightMatrix gate;
    WeightMatrix up;
    WeightMatrix down;
};

/// One expert that the router chose, and for how many rows.
struct Demand {
    std::int32_t expert = 0;
    std::int32_t n_rows = 1;
};

/// A promise that an expert's weights stay where they are. Move-only; destroying it ends the
/// promise. Must not outlive its store. One thread (the engine thread).
class ExpertLease {
public:
    ExpertLease() = default;

    ExpertLease(ExpertLease&& other) noexcept
        : store_(std::exchange(other.store_, nullptr)), slot_(other.slot_) {}

    ExpertLease& operator=(ExpertLease&& other) noexcept {
        std::swap(store_, other.store_);
        std::swap(slot_, other.slot_);
        return *this;
    }

    ExpertLease(const ExpertLease&) = delete;
    ExpertLease& operator=(const ExpertLease&) = delete;
    ~ExpertLease();

    /// Precondition of both: not moved from.
    [[nodiscard]] ExpertId id() const;
    [[nodiscard]] const ExpertWeights& weights() const;

private:
    friend class ExpertStore;

    ExpertLease(ExpertStore* store, std::int32_t slot) : store_(store), slot_(slot) {}

    ExpertStore* store_ = nullptr;
    std::int32_t slot_ = -1;
};

/// What next_batch found.
struct ExpertBatch {
    enum class State : std::uint8_t {
        Experts,  ///< at least one lease
        Done,     ///< every demanded expert was delivered before
        Stopped,  ///< the stop token asked to stop; nothing is delivered
    };
    State state = State::Done;
    std::vector<ExpertLease> leases;  ///< ascending expert id
};

/// One layer's demand being served: the experts come in batches, as they arrive.
///
///     ExpertVisit visit = store.begin_visit(layer, demands, clock_tokens);
///     ... compute what needs no routed expert ...
///     while (true) {
///         Result<ExpertBatch> batch = visit.next_batch(stop);
///         if (!batch || batch->state != ExpertBatch::State::Experts) break;
///         ... compute batch->leases; they are returned at the end of this block ...
///     }
///
/// Move-only; must not outlive its store. One thread, the one that began it. Destroying it early
/// is safe at any time: reads that nobody waits for any longer are cancelled, and what they read
/// so far is dropped when they end.
class ExpertVisit {
public:
    ExpertVisit() = default;

    ExpertVisit(ExpertVisit&& other) noexcept : store_(std::exchange(other.store_, nullptr)) {}

    ExpertVisit& operator=(ExpertVisit&& other) noexcept {
        std::swap(store_, other.store_);
        return *this;
    }

    ExpertVisit(const ExpertVisit&) = delete;
    ExpertVisit& operator=(const ExpertVisit&) = delete;
    ~ExpertVisit();

    /// Waits until at least one demanded expert that was not delivered yet is in memory; gives all
    /// that are. Those in memory already come first.
    /// With fewer free slots than demanded experts the visit goes on as leases are returned.
    /// Holding a batch while asking for the next is allowed as long as one more slot can be had;
    /// when every slot is leased to the caller, this is an Internal error, never a deadlock.
    /// Errors: a read that failed twice (file, offset, errno), weights that break their format.
    /// After an error or Stopped destroy the visit; the store stays usable.
    [[nodiscard]] Result<ExpertBatch> next_batch(const std::stop_token& stop);

    /// True when next_batch would return without waiting for a read: for callers that have other
    /// work to do meanwhile.
    [[nodiscard]] bool any_ready() const;

private:
    friend class ExpertStore;

    explicit ExpertVisit(ExpertStore* store) : store_(store) {}

    ExpertStore* store_ = nullptr;
};

/// Float sessions hold float32 weights; quantised ones the stored integers (or, for a checkpoint
/// in floats, integers made while loading).
enum class ExpertPrecision : std::uint8_t { Quantised, Float };

struct ExpertStoreOptions {
    /// Experts held in memory, over all layers; 0 = all. At least 2.
    std::int64_t n_slots = 0;
    /// Slots that hold what is being computed and not (yet) what is worth keeping:
    /// top_k * (draft + 1). Clamped to what the number of slots allows.
    std::int64_t n_transient_slots = 8;
    int n_io_threads = 4;
    /// Experts that are being read or unpacked at the same time; each has a slab of staging memory.
    int n_staging_slabs = 4;
    ReadMode read_mode = ReadMode::Auto;
    /// Tokens after which a use counts half.
    double heat_half_life_tokens = 256.0;
    ExpertPrecision precision = ExpertPrecision::Quantised;
    FaultInjector* faults = nullptr;  ///< outlives the store; null: none
};

/// A snapshot of what the store did; counts since it was made.
struct ExpertStoreStats {
    std::int64_t n_experts = 0;
    std::int64_t n_slots = 0;
    std::int64_t n_resident = 0;
    std::int64_t slot_bytes = 0;     ///< all slots
    std::int64_t staging_bytes = 0;  ///< slabs that raw bytes pass through
    std::int64_t lookups = 0;
    std::int64_t hits_ram = 0;
    std::int64_t misses = 0;
    std::int64_t evictions = 0;
    std::int64_t bytes_read = 0;
    double read_seconds = 0.0;          ///< summed over the io threads
    double visible_wait_seconds = 0.0;  ///< the engine thread waited and had nothing to compute
    std::int64_t faults_injected = 0;
    std::int64_t faults_repaired = 0;
    bool direct_reads = false;
};

/// All routed experts of one model.
/// Owner: the engine; outlives every visit and lease; the checkpoint, ops, device and fault
/// injector outlive it. Thread: begin_visit, visits, leases and prefill_slots on the engine
/// thread; stats() on any. Its own threads io-0 .. io-n read and pack; the destructor joins them.
/// Failure: by value, see each function; no failure of a read makes the store unusable.
class ExpertStore {
public:
    /// Reads no weight. Errors: fewer than 2 slots (WrongUse), memory (OutOfMemory with the
    /// bytes), a file that cannot be opened, no direct reads where they were demanded.
    [[nodiscard]] static Result<std::unique_ptr<ExpertStore>> create(
        const Checkpoint& checkpoint,
        const Ops& ops,
        Device& device,
        const ExpertStoreOptions& options);

    /// The same from the parts of a checkpoint; its matrices outlive the store.
    [[nodiscard]] static Result<std::unique_ptr<ExpertStore>> create(
        const ExpertSource& source,
        const Ops& ops,
        Device& device,
        const ExpertStoreOptions& options);

    ExpertStore(const ExpertStore&) = delete;
    ExpertStore& operator=(const ExpertStore&) = delete;
    ~ExpertStore();

    /// Counts the use of every demanded expert, starts the reads of those not in memory and
    /// returns at once. One visit at a time: destroy the last one first.
    ///   layer         a layer with routed experts, numbered as in the checkpoint
    ///   demands       each expert at most once, any order; copied
    ///   clock_tokens  tokens processed so far, never falling: the clock of heat
    [[nodiscard]] ExpertVisit begin_visit(int layer,
                                          std::span<const Demand> demands,
                                          std::int64_t clock_tokens);

    /// Reads every expert into memory. WrongUse when there are fewer slots than experts.
    /// `progress` is called on this thread, while it waits. Returns the number of experts in
    /// memory: fewer than all of them only after a stop.
    using Progress = std::function<void(std::int64_t n_resident, std::int64_t n_experts)>;
    [[nodiscard]] Result<std::int64_t> prefill_slots(const Progress& progress,
                                                     const std::stop_token& stop);

    /// True when there is a slot for every expert.
    [[nodiscard]] bool all_fit() const;

    [[nodiscard]] ExpertStoreStats stats() const;

private:
    friend class ExpertLease;
    friend class ExpertVisit;
    class Impl;
    explicit ExpertStore(std::unique_ptr<Impl> impl);

    std::unique_ptr<Impl> impl_;
};

}  // namespace terrace
