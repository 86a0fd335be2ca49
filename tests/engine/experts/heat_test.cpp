#include "engine/experts/heat.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <tuple>
#include <vector>

namespace terrace {
namespace {

TEST(Heat, FollowsAHandTrace) {
    // Half life 4: used by 2 rows at 0, by 1 row at 4, by 3 rows at 12.
    ExpertHeat heat;
    heat = heat_after_use(heat, 0, 2, 4.0);
    EXPECT_EQ(heat.heat, 2.0);
    heat = heat_after_use(heat, 4, 1, 4.0);
    EXPECT_EQ(heat.heat, 2.0);  // 2/2 + 1
    heat = heat_after_use(heat, 12, 3, 4.0);
    EXPECT_EQ(heat.heat, 3.5);  // 2/4 + 3
    EXPECT_EQ(heat.t_last, 12);
    EXPECT_EQ(score_at(heat, 16, 4.0), 1.75);
    EXPECT_EQ(score_at(heat, 12, 4.0), 3.5);
}

TEST(Heat, OrderIsTheLogarithmOfTheScoreAtClockZero) {
    const ExpertHeat heat{8.0, 512};
    EXPECT_EQ(heat_order(heat, 256.0), 3.0 + 2.0);
    EXPECT_EQ(heat_order(ExpertHeat{}, 256.0), -std::numeric_limits<double>::infinity());
}

TEST(Heat, OrderSurvivesAgesAtWhichScoresVanish) {
    const ExpertHeat older{1.0, 0};
    const ExpertHeat younger{1.0, 10};
    EXPECT_EQ(score_at(older, 1'000'000, 8.0), 0.0);
    EXPECT_EQ(score_at(younger, 1'000'000, 8.0), 0.0);
    EXPECT_LT(heat_order(older, 8.0), heat_order(younger, 8.0));
}

struct Candidates {
    std::vector<std::uint8_t> eligible;
    std::vector<double> order;
    std::vector<std::int64_t> t_last;
    std::vector<std::int32_t> layer;
    std::vector<std::int32_t> expert;

    [[nodiscard]] std::int32_t victim() const {
        return choose_victim({eligible, order, t_last, layer, expert});
    }

    void add(bool is_eligible, double o, std::int64_t t, std::int32_t l, std::int32_t e) {
        eligible.push_back(is_eligible ? 1 : 0);
        order.push_back(o);
        t_last.push_back(t);
        layer.push_back(l);
        expert.push_back(e);
    }
};

TEST(Victim, IsTheColdestOfTheEligible) {
    Candidates c;
    EXPECT_EQ(c.victim(), -1);
    c.add(false, 0.0, 0, 0, 0);
    EXPECT_EQ(c.victim(), -1);
    c.add(true, 3.0, 9, 9, 9);
    c.add(true, 2.0, 9, 9, 9);
    c.add(true, 4.0, 0, 0, 0);
    EXPECT_EQ(c.victim(), 2);
}

TEST(Victim, TiesGoByLastUseThenLayerThenExpert) {
    Candidates c;
    c.add(true, 1.0, 5, 3, 3);
    c.add(true, 1.0, 4, 9, 9);
    EXPECT_EQ(c.victim(), 1);
    c.add(true, 1.0, 4, 8, 9);
    EXPECT_EQ(c.victim(), 2);
    c.add(true, 1.0, 4, 8, 7);
    EXPECT_EQ(c.victim(), 3);
}

TEST(Admission, AsksForAQuarterMoreScore) {
    const auto order = [](double heat) { return heat_order({heat, 0}, 256.0); };
    EXPECT_TRUE(admits(order(1.26), order(1.0)));
    EXPECT_FALSE(admits(order(1.24), order(1.0)));
    EXPECT_FALSE(admits(order(1.0), order(1.0)));
    EXPECT_TRUE(admits(order(0.001), order(0.0))) << "anything beats an expert never used";
}

/// The rule as it is written: scores at the clock, computed anew from the whole history of uses.
struct NaiveExpert {
    std::int32_t layer = 0;
    std::int32_t expert = 0;
    std::int64_t t_last = 0;
    std::vector<std::pair<std::int64_t, std::int64_t>> uses;  ///< clock, rows

    [[nodiscard]] long double score(std::int64_t clock, long double half_life) const {
        long double sum = 0.0L;
        for (const auto& [t, n] : uses) {
            sum += static_cast<long double>(n) *
                   std::pow(2.0L, -static_cast<long double>(clock - t) / half_life);
        }
        return sum;
    }
};

TEST(Victim, AgreesWithTheNaiveRuleOnRandomTraces) {
    for (unsigned seed = 1; seed <= 20; ++seed) {
        std::mt19937 random(seed);
        const double half_life = 1.0 + static_cast<double>(random() % 64);
        constexpr std::int32_t kExperts = 24;
        std::vector<NaiveExpert> naive(kExperts);
        std::vector<ExpertHeat> heat(kExperts);
        for (std::int32_t i = 0; i < kExperts; ++i) {
            naive[static_cast<std::size_t>(i)].layer = i / 8;
            naive[static_cast<std::size_t>(i)].expert = i % 8;
        }
        std::int64_t clock = 0;
        for (int step = 0; step < 300; ++step) {
            clock += static_cast<std::int64_t>(random() % 3);
            const std::size_t used = random() % kExperts;
            const auto rows = static_cast<std::int64_t>(1 + random() % 4);
            heat[used] = heat_after_use(heat[used], clock, rows, half_life);
            naive[used].uses.emplace_back(clock, rows);
            naive[used].t_last = clock;
            Candidates c;
            std::size_t best = kExperts;
            const auto key = [&](std::size_t i) {
                return std::tuple(naive[i].score(clock, static_cast<long double>(half_life)),
                                  naive[i].t_last, naive[i].layer, naive[i].expert);
            };
            for (std::size_t i = 0; i < kExperts; ++i) {
                const bool eligible = random() % 4 != 0;
                c.add(eligible, heat_order(heat[i], half_life), heat[i].t_last, naive[i].layer,
                      naive[i].expert);
                if (eligible && (best == kExperts || key(i) < key(best))) {
                    best = i;
                }
            }
            const std::int32_t victim = c.victim();
            ASSERT_GE(victim, 0);
            const auto chosen = static_cast<std::size_t>(victim);
            if (chosen != best) {
                // Both orders are rounded; only what differs by more is a different choice.
                const long double a = std::get<0>(key(chosen));
                const long double b = std::get<0>(key(best));
                ASSERT_NEAR(static_cast<double>(a / b), 1.0, 1e-12)
                    << "seed " << seed << " step " << step;
            }
        }
    }
}

TEST(Heat, ChoiceDoesNotDependOnWhenItIsMade) {
    std::mt19937 random(7);
    for (int i = 0; i < 1000; ++i) {
        const ExpertHeat a{1.0 + static_cast<double>(random() % 100),
                           static_cast<std::int64_t>(random() % 500)};
        const ExpertHeat b{1.0 + static_cast<double>(random() % 100),
                           static_cast<std::int64_t>(random() % 500)};
        const double order_a = heat_order(a, 100.0);
        const double order_b = heat_order(b, 100.0);
        if (std::abs(order_a - order_b) < 1e-9) {
            continue;
        }
        for (const std::int64_t clock : {500, 600, 900}) {
            EXPECT_EQ(order_a < order_b, score_at(a, clock, 100.0) < score_at(b, clock, 100.0));
        }
    }
}

}  // namespace
}  // namespace terrace
