#include "engine/experts/slot_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>
#include <vector>

namespace terrace {
namespace {

using S = SlotState;
using E = SlotEvent;

TEST(SlotLife, HasExactlyTheseEdges) {
    const std::map<std::pair<S, E>, S> table = {
        {{S::Free, E::StartRead}, S::Reading},   {{S::Reading, E::ReadDone}, S::Resident},
        {{S::Reading, E::ReadDropped}, S::Free}, {{S::Resident, E::Lease}, S::Resident},
        {{S::Resident, E::Retire}, S::Retiring}, {{S::Retiring, E::LastLeaseEnded}, S::Free},
        {{S::Free, E::Kill}, S::Dead},           {{S::Reading, E::Kill}, S::Dead},
        {{S::Resident, E::Kill}, S::Dead},       {{S::Retiring, E::Kill}, S::Dead},
    };
    for (const S state : {S::Free, S::Reading, S::Resident, S::Retiring, S::Dead}) {
        for (const E event : {E::StartRead, E::ReadDone, E::ReadDropped, E::Lease, E::Retire,
                              E::LastLeaseEnded, E::Kill}) {
            const auto edge = table.find({state, event});
            const std::optional<S> expected =
                edge == table.end() ? std::nullopt : std::optional(edge->second);
            EXPECT_EQ(next_state(state, event), expected)
                << "state " << static_cast<int>(state) << " event " << static_cast<int>(event);
        }
    }
}

/// Reads an expert into a slot, uses it at clock `order` and returns the slot.
std::int32_t use(SlotCache& cache, ExpertId id, double order, std::int64_t visit) {
    const auto taken = cache.take(id, ReadPriority::Demand);
    EXPECT_TRUE(taken.has_value());
    cache.touch(taken->slot, order, static_cast<std::int64_t>(order), visit);
    cache.read_done(taken->slot);
    cache.lease(taken->slot);
    cache.end_lease(taken->slot);
    return taken->slot;
}

TEST(SlotCache, KeepsWhateverComesWhileThereIsRoom) {
    SlotCache cache(4, 2);
    const std::int32_t a = use(cache, {0, 1}, 1.0, 1);
    const std::int32_t b = use(cache, {0, 2}, 1.0, 2);
    EXPECT_TRUE(cache.kept(a));
    EXPECT_TRUE(cache.kept(b));
    const std::int32_t c = use(cache, {0, 3}, 1.0, 3);
    EXPECT_FALSE(cache.kept(c)) << "as hot as the others is not hotter";
    EXPECT_EQ(cache.n_kept(), 2);
    EXPECT_EQ(cache.n_in(S::Resident), 3);
    EXPECT_EQ(cache.n_in(S::Free), 1);
}

TEST(SlotCache, AHotterExpertTakesThePlaceOfTheColdestKeptOne) {
    SlotCache cache(4, 2);
    const std::int32_t cold = use(cache, {0, 1}, 1.0, 1);
    const std::int32_t warm = use(cache, {0, 2}, 2.0, 2);
    const std::int32_t hot = use(cache, {0, 3}, 5.0, 3);
    EXPECT_FALSE(cache.kept(cold));
    EXPECT_TRUE(cache.kept(warm));
    EXPECT_TRUE(cache.kept(hot));
    EXPECT_EQ(cache.state(cold), S::Resident) << "usable until its slot is needed";
}

TEST(SlotCache, DoesNotReplaceWhatTheSameVisitUsed) {
    SlotCache cache(4, 2);
    const std::int32_t a = use(cache, {0, 1}, 1.0, 7);
    const std::int32_t b = use(cache, {0, 2}, 2.0, 7);
    const std::int32_t c = use(cache, {0, 3}, 9.0, 7);
    EXPECT_TRUE(cache.kept(a));
    EXPECT_TRUE(cache.kept(b));
    EXPECT_FALSE(cache.kept(c));
}

TEST(SlotCache, EvictsTheColdestUnleasedExpert) {
    SlotCache cache(3, 3);
    const std::int32_t a = use(cache, {0, 1}, 3.0, 1);
    const std::int32_t b = use(cache, {0, 2}, 1.0, 2);
    const std::int32_t c = use(cache, {0, 3}, 2.0, 3);
    cache.lease(b);
    const auto taken = cache.take({1, 0}, ReadPriority::Demand);
    ASSERT_TRUE(taken.has_value());
    EXPECT_EQ(taken->slot, c);
    EXPECT_EQ(taken->evicted, (ExpertId{0, 3}));
    EXPECT_EQ(cache.state(a), S::Resident);
    EXPECT_EQ(cache.id(c), (ExpertId{1, 0}));
}

TEST(SlotCache, TakesNothingWhenAllIsLeasedOrRead) {
    SlotCache cache(2, 2);
    const std::int32_t a = use(cache, {0, 1}, 1.0, 1);
    cache.lease(a);
    ASSERT_TRUE(cache.take({0, 2}, ReadPriority::Prefetch).has_value());
    EXPECT_FALSE(cache.take({0, 3}, ReadPriority::Demand).has_value());
    cache.end_lease(a);
    EXPECT_TRUE(cache.take({0, 3}, ReadPriority::Demand).has_value());
}

TEST(SlotCache, NeverTakesAKeptSlot) {
    SlotCache cache(4, 1);
    for (std::int32_t i = 0; i < 3; ++i) {
        EXPECT_TRUE(cache.kept(use(cache, {0, i}, 1.0, i + 1)));
    }
    ASSERT_TRUE(cache.take({0, 8}, ReadPriority::Demand).has_value());
    EXPECT_FALSE(cache.take({0, 9}, ReadPriority::Demand).has_value());
}

TEST(SlotCache, ARetiredSlotIsFreeAfterItsLastLease) {
    SlotCache cache(2, 2);
    const std::int32_t a = use(cache, {0, 1}, 1.0, 1);
    cache.lease(a);
    cache.lease(a);
    cache.retire(a);
    EXPECT_EQ(cache.state(a), S::Retiring);
    cache.end_lease(a);
    EXPECT_EQ(cache.state(a), S::Retiring);
    cache.end_lease(a);
    EXPECT_EQ(cache.state(a), S::Free);
    EXPECT_EQ(cache.n_in(S::Free), 2);
}

TEST(SlotCache, ADroppedReadFreesItsSlot) {
    SlotCache cache(2, 2);
    const auto taken = cache.take({0, 1}, ReadPriority::Background);
    ASSERT_TRUE(taken.has_value());
    cache.raise_priority(taken->slot, ReadPriority::Demand);
    cache.raise_priority(taken->slot, ReadPriority::Prefetch);
    EXPECT_EQ(cache.priority(taken->slot), ReadPriority::Demand);
    cache.read_dropped(taken->slot);
    EXPECT_EQ(cache.n_in(S::Free), 2);
    EXPECT_EQ(cache.id(taken->slot).layer, -1);
}

TEST(SlotCache, ADeadSlotIsNeverTakenAgain) {
    SlotCache cache(3, 3);
    const std::int32_t leased = use(cache, {0, 1}, 1.0, 1);
    cache.lease(leased);
    cache.kill(leased);
    cache.end_lease(leased);
    const auto reading = cache.take({0, 2}, ReadPriority::Demand);
    ASSERT_TRUE(reading.has_value());
    cache.kill(reading->slot);
    const auto last = cache.take({0, 3}, ReadPriority::Demand);
    ASSERT_TRUE(last.has_value());
    cache.read_dropped(last->slot);
    cache.kill(last->slot);
    EXPECT_FALSE(cache.take({0, 4}, ReadPriority::Demand).has_value());
    EXPECT_EQ(cache.n_in(S::Dead), 3);
}

TEST(SlotCache, AnIllegalStepIsABrokenPromise) {
    SlotCache cache(2, 2);
    EXPECT_DEATH(cache.lease(0), "has_value");
    EXPECT_DEATH(cache.read_done(0), "has_value");
    EXPECT_DEATH(cache.end_lease(0), "leases_");
    EXPECT_DEATH(cache.retire(0), "has_value");
    EXPECT_DEATH(cache.raise_priority(0, ReadPriority::Demand), "Reading");
}

TEST(SlotCache, CountsStayRightOverRandomLives) {
    for (unsigned seed = 1; seed <= 10; ++seed) {
        std::mt19937 random(seed);
        SlotCache cache(8, 3);
        std::vector<std::int32_t> leased;
        std::vector<std::int32_t> reading;
        for (int step = 0; step < 3000; ++step) {
            const unsigned what = random() % 4;
            if (what == 0) {
                const auto id = static_cast<std::int32_t>(random() % 100);
                if (const auto taken = cache.take({0, id}, ReadPriority::Demand)) {
                    cache.touch(taken->slot, static_cast<double>(random() % 50), step, step);
                    reading.push_back(taken->slot);
                }
            } else if (what == 1 && !reading.empty()) {
                const std::int32_t slot = reading.back();
                reading.pop_back();
                if (random() % 5 == 0) {
                    cache.read_dropped(slot);
                } else {
                    cache.read_done(slot);
                    cache.lease(slot);
                    leased.push_back(slot);
                }
            } else if (what >= 2 && !leased.empty()) {
                const std::size_t i = random() % leased.size();
                cache.end_lease(leased[i]);
                leased.erase(leased.begin() + static_cast<std::ptrdiff_t>(i));
            }
            int n_kept = 0;
            int n_resident = 0;
            for (std::int32_t slot = 0; slot < 8; ++slot) {
                n_kept += cache.kept(slot) ? 1 : 0;
                n_resident += cache.state(slot) == S::Resident ? 1 : 0;
                ASSERT_TRUE(!cache.kept(slot) || cache.state(slot) == S::Resident);
            }
            ASSERT_EQ(n_kept, cache.n_kept());
            ASSERT_LE(n_kept, 5);
            ASSERT_EQ(n_resident, cache.n_in(S::Resident));
            ASSERT_EQ(static_cast<int>(reading.size()), cache.n_in(S::Reading));
            ASSERT_EQ(cache.n_in(S::Free), 8 - n_resident - static_cast<int>(reading.size()));
        }
    }
}

}  // namespace
}  // namespace terrace
