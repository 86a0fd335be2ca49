// The inside of ExpertStore: one mutex over slots, heat and the running visit; reading and
// unpacking happen outside it, on the reader's threads.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/experts/expert_catalog.h"
#include "engine/experts/expert_store.h"
#include "engine/experts/heat.h"
#include "engine/experts/pread_reader.h"
#include "engine/experts/slot_cache.h"

namespace terrace {

/// Owner: ExpertStore. Thread: read_done on io threads, stats on any, the rest on the engine's.
class ExpertStore::Impl final : public ReadListener {
public:
    [[nodiscard]] static Result<std::unique_ptr<Impl>> create(ExpertCatalog catalog,
                                                              const ExpertSource& source,
                                                              const Ops& ops,
                                                              Device& device,
                                                              const ExpertStoreOptions& options);
    ~Impl() override;

    void begin_visit(int layer, std::span<const Demand> demands, std::int64_t clock_tokens);
    [[nodiscard]] Result<ExpertBatch> next_batch(ExpertStore* store, const std::stop_token& stop);
    [[nodiscard]] bool any_ready();
    void end_visit();
    void end_lease(std::int32_t slot);

    [[nodiscard]] Result<std::int64_t> prefill_slots(const Progress& progress,
                                                     const std::stop_token& stop);

    void read_done(const ReadCompletion& completion) override;

    [[nodiscard]] bool all_fit() const { return n_slots_ >= catalog_.n_experts(); }

    [[nodiscard]] ExpertStoreStats stats() const;

    // Both for whoever holds a lease: the slot does not change meanwhile.
    [[nodiscard]] const ExpertWeights& weights(std::int32_t slot) const {
        return slots_[static_cast<std::size_t>(slot)].weights;
    }

    [[nodiscard]] ExpertId id(std::int32_t slot) const {
        return catalog_.id(slots_[static_cast<std::size_t>(slot)].number);
    }

private:
    /// Slots are numbered over all classes.
    struct Slot {
        std::int32_t slot_class = 0;
        std::int32_t index = 0;  ///< within its class
        std::byte* memory = nullptr;
        std::int64_t number = -1;  ///< of the expert; constant from reading to free
        ExpertWeights weights;     ///< constant while resident
        ReadPlan plan;             ///< constant while reading
    };

    struct Pool {
        Buffer memory;
        SlotCache cache;
        std::int32_t first_slot = 0;
    };

    enum class EntryState : std::uint8_t {
        Pending,    ///< needs a slot
        Waiting,    ///< is being read
        Ready,      ///< in memory and leased by the visit
        Delivered,  ///< leased by the caller, or returned
    };

    struct Entry {
        std::int64_t number = 0;
        std::int32_t slot = -1;
        EntryState state = EntryState::Pending;
    };

    struct Visit {
        bool active = false;
        std::int64_t serial = 0;
        std::vector<Entry> entries;  ///< ascending expert id
        std::size_t n_delivered = 0;
        std::size_t n_ready = 0;
        std::size_t n_pending = 0;
        std::optional<Error> error;
    };

    Impl(ExpertCatalog catalog, const Ops& ops, const ExpertStoreOptions& options);

    [[nodiscard]] Status make_pools(Device& device);

    [[nodiscard]] SlotCache& cache_of(const Slot& slot) {
        return pools_[static_cast<std::size_t>(slot.slot_class)].cache;
    }

    void demand(Entry& entry, std::int32_t n_rows, std::int64_t clock);
    void touch(std::int32_t slot);
    [[nodiscard]] std::int32_t start_read(std::int64_t number, ReadPriority priority);
    void start_pending();
    void drop_read(std::int32_t slot, Entry* entry, std::optional<Error> error);
    void free_after_read(std::int32_t slot);
    void cancel_read(std::int32_t slot);
    [[nodiscard]] bool something_is_read() const;
    [[nodiscard]] ExpertBatch take_ready(ExpertStore* store);
    [[nodiscard]] std::optional<Error> unpack(const Slot& slot,
                                              const ReadCompletion& completion,
                                              ExpertWeights& weights) const;
    [[nodiscard]] Status unpack_matrix(const Slot& slot,
                                       std::size_t which,
                                       const SlotMatrix& place,
                                       const ReadCompletion& completion,
                                       WeightMatrix& matrix) const;
    void become_resident(std::int32_t slot, Entry* entry, const ExpertWeights& weights);
    [[nodiscard]] Entry* entry_waiting_for(std::int32_t slot);
    void request_all();
    void cancel_all();
    [[nodiscard]] std::int64_t n_in(SlotState state) const;

    const ExpertCatalog catalog_;
    const Ops& ops_;
    const double half_life_;
    FaultInjector* const faults_;
    std::int64_t n_slots_ = 0;     // constant after create()
    std::int64_t slot_bytes_ = 0;  // constant after create()

    mutable std::mutex mutex_;  // guards all that follows but reader_
    std::condition_variable_any arrived_;
    std::vector<Pool> pools_;
    std::vector<Slot> slots_;
    std::vector<std::int32_t> slot_of_;  ///< [expert number], -1: on disk only
    std::vector<ExpertHeat> heat_;       ///< [expert number]
    Visit visit_;
    std::optional<Error> prefill_error_;
    bool prefilling_ = false;
    std::uint64_t n_completed_ = 0;  ///< reads that ended, well or not
    ExpertStoreStats stats_;

    // Destroyed first: its threads call read_done.
    std::unique_ptr<PreadReader> reader_;
};

}  // namespace terrace
