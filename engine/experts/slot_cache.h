// The slots of one memory and one size: which expert is in which, in what state, and whose place
// the next one takes. Knows no bytes and no threads.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/experts/expert_id.h"
#include "engine/experts/expert_reader.h"
#include "engine/experts/heat.h"

namespace terrace {

enum class SlotState : std::uint8_t { Free, Reading, Resident, Retiring, Dead };

enum class SlotEvent : std::uint8_t {
    StartRead,
    ReadDone,
    ReadDropped,     ///< failed, or cancelled and now at its end
    Lease,           ///< somebody reads the weights
    Retire,          ///< the expert has to go; the slot is free when the last lease has ended
    LastLeaseEnded,  ///< of a retiring slot; at once when there was none
    Kill,            ///< the memory is not usable any longer
};

/// The slot-life table, the only place where it stands. Empty: not a legal step.
[[nodiscard]] std::optional<SlotState> next_state(SlotState state, SlotEvent event);

/// Owner: the expert store. One thread at a time: the store's mutex guards it.
/// Failure: a step that the table does not have is a broken promise (CHECK).
///
/// Of n slots at most n - n_transient hold *kept* experts. The others hold what is being read or
/// computed; when its last lease ends an expert is kept if there is room or if it is so much
/// hotter than the coldest kept one that it takes its place. What is not kept stays usable until
/// somebody needs its slot.
class SlotCache {
public:
    /// n_transient is at least 1 unless every expert has a slot.
    SlotCache(std::int32_t n_slots, std::int32_t n_transient);

    struct Taken {
        std::int32_t slot = -1;
        std::optional<ExpertId> evicted;  ///< who was in it before
    };

    /// A slot for an expert that is going to be read: a free one, else that of the coldest expert
    /// that is neither kept nor leased. Empty: every such slot is being read or leased.
    [[nodiscard]] std::optional<Taken> take(ExpertId id, ReadPriority priority);

    void raise_priority(std::int32_t slot, ReadPriority priority);

    /// The expert in the slot was used; `visit` grows by one with each visit of a layer.
    void touch(std::int32_t slot, double order, std::int64_t t_last, std::int64_t visit);

    void read_done(std::int32_t slot);
    void read_dropped(std::int32_t slot);
    void lease(std::int32_t slot);

    /// Ends one lease; the last one decides whether the expert is kept.
    void end_lease(std::int32_t slot);

    /// Makes a resident slot free, now or when its last lease ends.
    void retire(std::int32_t slot);
    void kill(std::int32_t slot);

    [[nodiscard]] SlotState state(std::int32_t slot) const { return states_[index(slot)]; }

    [[nodiscard]] ExpertId id(std::int32_t slot) const {
        return {layers_[index(slot)], experts_[index(slot)]};
    }

    [[nodiscard]] std::int32_t n_leases(std::int32_t slot) const { return leases_[index(slot)]; }

    [[nodiscard]] bool kept(std::int32_t slot) const { return kept_[index(slot)] != 0; }

    [[nodiscard]] ReadPriority priority(std::int32_t slot) const {
        return priorities_[index(slot)];
    }

    [[nodiscard]] std::int32_t n_slots() const { return static_cast<std::int32_t>(states_.size()); }

    [[nodiscard]] std::int32_t n_in(SlotState state) const {
        return counts_[static_cast<std::size_t>(state)];
    }

    [[nodiscard]] std::int32_t n_kept() const { return n_kept_; }

private:
    static std::size_t index(std::int32_t slot) { return static_cast<std::size_t>(slot); }

    void step(std::int32_t slot, SlotEvent event);
    void decide_keeping(std::int32_t slot);
    void set_kept(std::int32_t slot, std::uint8_t kept);

    /// Fills eligible_ with the resident, unleased slots for which `rule` holds and chooses.
    template <typename Rule>
    [[nodiscard]] std::int32_t coldest(Rule rule);

    std::int32_t max_kept_;
    std::int32_t n_kept_ = 0;
    std::int32_t counts_[5] = {};  ///< slots in each state

    // One entry a slot.
    std::vector<SlotState> states_;
    std::vector<ReadPriority> priorities_;
    std::vector<std::int32_t> leases_;
    std::vector<std::uint8_t> kept_;
    std::vector<std::int64_t> visits_;  ///< the last visit that used it
    std::vector<double> orders_;
    std::vector<std::int64_t> t_last_;
    std::vector<std::int32_t> layers_;
    std::vector<std::int32_t> experts_;

    std::vector<std::uint8_t> eligible_;  ///< scratch of coldest()
    std::vector<std::int32_t> free_;      ///< last one is taken first
};

}  // namespace terrace
