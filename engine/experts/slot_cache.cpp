#include "engine/experts/slot_cache.h"

#include <limits>

#include "engine/device/check.h"

namespace terrace {

std::optional<SlotState> next_state(SlotState state, SlotEvent event) {
    if (event == SlotEvent::Kill && state != SlotState::Dead) {
        return SlotState::Dead;
    }
    switch (state) {
        case SlotState::Free:
            if (event == SlotEvent::StartRead) {
                return SlotState::Reading;
            }
            break;
        case SlotState::Reading:
            if (event == SlotEvent::ReadDone) {
                return SlotState::Resident;
            }
            if (event == SlotEvent::ReadDropped) {
                return SlotState::Free;
            }
            break;
        case SlotState::Resident:
            if (event == SlotEvent::Lease) {
                return SlotState::Resident;
            }
            if (event == SlotEvent::Retire) {
                return SlotState::Retiring;
            }
            break;
        case SlotState::Retiring:
            if (event == SlotEvent::LastLeaseEnded) {
                return SlotState::Free;
            }
            break;
        case SlotState::Dead:
            break;
    }
    return std::nullopt;
}

SlotCache::SlotCache(std::int32_t n_slots, std::int32_t n_transient)
    : max_kept_(n_slots - n_transient),
      states_(index(n_slots), SlotState::Free),
      priorities_(index(n_slots), ReadPriority::Background),
      leases_(index(n_slots), 0),
      kept_(index(n_slots), 0),
      visits_(index(n_slots), 0),
      orders_(index(n_slots), -std::numeric_limits<double>::infinity()),
      t_last_(index(n_slots), 0),
      layers_(index(n_slots), -1),
      experts_(index(n_slots), -1),
      eligible_(index(n_slots), 0) {
    CHECK(n_transient >= 0 && n_transient <= n_slots);
    counts_[static_cast<std::size_t>(SlotState::Free)] = n_slots;
    free_.reserve(index(n_slots));
    for (std::int32_t slot = n_slots - 1; slot >= 0; --slot) {
        free_.push_back(slot);
    }
}

void SlotCache::step(std::int32_t slot, SlotEvent event) {
    const SlotState before = states_[index(slot)];
    const std::optional<SlotState> after = next_state(before, event);
    CHECK(after.has_value());
    states_[index(slot)] = *after;
    --counts_[static_cast<std::size_t>(before)];
    ++counts_[static_cast<std::size_t>(*after)];
    if (*after == SlotState::Free) {
        layers_[index(slot)] = -1;
        experts_[index(slot)] = -1;
        free_.push_back(slot);
    }
}

template <typename Rule>
std::int32_t SlotCache::coldest(Rule rule) {
    for (std::size_t i = 0; i < states_.size(); ++i) {
        const bool idle = states_[i] == SlotState::Resident && leases_[i] == 0;
        eligible_[i] = idle && rule(i) ? 1 : 0;
    }
    return choose_victim({eligible_, orders_, t_last_, layers_, experts_});
}

std::optional<SlotCache::Taken> SlotCache::take(ExpertId id, ReadPriority priority) {
    Taken taken;
    if (free_.empty()) {
        taken.slot = coldest([this](std::size_t i) { return kept_[i] == 0; });
        if (taken.slot < 0) {
            return std::nullopt;
        }
        taken.evicted = this->id(taken.slot);
        retire(taken.slot);
    }
    taken.slot = free_.back();
    free_.pop_back();
    step(taken.slot, SlotEvent::StartRead);
    const std::size_t i = index(taken.slot);
    priorities_[i] = priority;
    layers_[i] = id.layer;
    experts_[i] = id.expert;
    orders_[i] = -std::numeric_limits<double>::infinity();
    t_last_[i] = 0;
    visits_[i] = 0;
    return taken;
}

void SlotCache::raise_priority(std::int32_t slot, ReadPriority priority) {
    CHECK(states_[index(slot)] == SlotState::Reading);
    if (priorities_[index(slot)] < priority) {
        priorities_[index(slot)] = priority;
    }
}

void SlotCache::touch(std::int32_t slot, double order, std::int64_t t_last, std::int64_t visit) {
    orders_[index(slot)] = order;
    t_last_[index(slot)] = t_last;
    visits_[index(slot)] = visit;
}

void SlotCache::read_done(std::int32_t slot) {
    step(slot, SlotEvent::ReadDone);
    // A free place is given to whoever comes first; only replacing has to be earned.
    if (n_kept_ < max_kept_) {
        set_kept(slot, 1);
    }
}

void SlotCache::read_dropped(std::int32_t slot) {
    step(slot, SlotEvent::ReadDropped);
}

void SlotCache::lease(std::int32_t slot) {
    step(slot, SlotEvent::Lease);
    ++leases_[index(slot)];
}

void SlotCache::end_lease(std::int32_t slot) {
    CHECK(leases_[index(slot)] > 0);
    if (--leases_[index(slot)] > 0) {
        return;
    }
    if (states_[index(slot)] == SlotState::Retiring) {
        step(slot, SlotEvent::LastLeaseEnded);
    } else if (states_[index(slot)] == SlotState::Resident && !kept(slot)) {
        decide_keeping(slot);
    }
}

void SlotCache::decide_keeping(std::int32_t slot) {
    if (n_kept_ < max_kept_) {
        set_kept(slot, 1);
        return;
    }
    if (max_kept_ == 0) {
        return;
    }
    const std::int64_t visit = visits_[index(slot)];
    const std::int32_t victim =
        coldest([this, visit](std::size_t i) { return kept_[i] != 0 && visits_[i] < visit; });
    if (victim >= 0 && admits(orders_[index(slot)], orders_[index(victim)])) {
        set_kept(victim, 0);
        set_kept(slot, 1);
    }
}

void SlotCache::set_kept(std::int32_t slot, std::uint8_t kept) {
    n_kept_ += static_cast<std::int32_t>(kept) - static_cast<std::int32_t>(kept_[index(slot)]);
    kept_[index(slot)] = kept;
}

void SlotCache::retire(std::int32_t slot) {
    step(slot, SlotEvent::Retire);
    set_kept(slot, 0);
    if (leases_[index(slot)] == 0) {
        step(slot, SlotEvent::LastLeaseEnded);
    }
}

void SlotCache::kill(std::int32_t slot) {
    if (states_[index(slot)] == SlotState::Free) {
        std::erase(free_, slot);
    }
    step(slot, SlotEvent::Kill);
    set_kept(slot, 0);
    layers_[index(slot)] = -1;
    experts_[index(slot)] = -1;
}

}  // namespace terrace
