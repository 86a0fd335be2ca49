// The sampler against recorded draws, and against a plain reading of docs/arithmetic.md 5 that
// sorts the whole vocabulary.
#include "engine/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "engine/device/binary64.h"
#include "engine/device/philox.h"
#include "tests/engine/device/contract_vectors.h"

namespace terrace {
namespace {

using test::bits;

/// E of the exponential race for one id.
double race_time(std::uint64_t seed, std::int64_t index, std::int32_t id) {
    const auto words =
        philox4x32({static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
                   {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(id) >> 2, 1, 0});
    const double u = (words[static_cast<std::size_t>(id & 3)] + 0.5) * 0x1p-32;
    return -binary64::ln(u);
}

SamplingSettings settings_of(const nlohmann::json& c) {
    SamplingSettings s;
    s.temperature = c.value("temperature", 1.0);
    s.top_k = c.value("top_k", 0);
    s.top_p = c.value("top_p", 1.0);
    s.min_p = c.value("min_p", 0.0);
    s.repetition_penalty = c.value("repetition", 1.0);
    s.frequency_penalty = c.value("frequency", 0.0);
    s.presence_penalty = c.value("presence", 0.0);
    s.seed = std::stoull(c.value("seed", "0"));
    for (const auto& bias : c.value("bias", nlohmann::json::array())) {
        s.logit_bias.emplace_back(bias[0].get<std::int32_t>(), bias[1].get<double>());
    }
    // In the vectors 0 is no penalty at all; in the settings it is the whole context.
    s.penalty_window = c.value("last_n", 0);
    if (s.penalty_window == 0) {
        s.repetition_penalty = 1.0;
        s.frequency_penalty = 0.0;
        s.presence_penalty = 0.0;
    }
    return s;
}

void expect_winners(const nlohmann::json& c) {
    SCOPED_TRACE(c.dump().substr(0, 300));
    const std::vector<float> logits = test::floats_of(c["logits"]);
    std::vector<std::uint8_t> candidates(logits.size(), 1);
    for (std::size_t id = c.value("defined_ids", logits.size()); id < logits.size(); ++id) {
        candidates[id] = 0;
    }
    Sampler sampler(settings_of(c), candidates);
    const auto grown = c["context"].get<std::vector<std::int32_t>>();
    std::vector<std::int32_t> context = grown;
    std::vector<std::int32_t> winners;
    for (std::size_t i = 0; i < 8; ++i) {
        winners.push_back(sampler.draw(logits, static_cast<std::int64_t>(context.size()), context));
        context.push_back(grown[i]);
    }
    EXPECT_EQ(winners, c["winners_at_next_8_positions"].get<std::vector<std::int32_t>>());
}

TEST(Sampler, RunsTheRecordedRace) {
    const auto& cases = test::contract_vectors()["race_E"];
    ASSERT_GE(cases.size(), 20u);
    for (const auto& c : cases) {
        const double e =
            race_time(std::stoull(c["seed"].get<std::string>()), c["position"], c["id"]);
        EXPECT_EQ(std::bit_cast<std::uint64_t>(e), test::bits_of(c["E"].get<std::string>()));
    }
}

TEST(Sampler, DrawsTheRecordedWinners) {
    const auto& cases = test::contract_vectors()["sampler"];
    ASSERT_EQ(cases.size(), 12u);
    for (const auto& c : cases) {
        expect_winners(c);
    }
}

TEST(Sampler, DrawsTheWinnersOfTheEdgeCases) {
    const auto& cases = test::more_contract_vectors()["sampler"];
    ASSERT_GE(cases.size(), 19u);
    for (const auto& c : cases) {
        expect_winners(c);
    }
}

/// docs/arithmetic.md 5 read aloud: every candidate ranked by a full sort.
std::int32_t plain_draw(const SamplingSettings& s,
                        const std::vector<std::uint8_t>& candidates,
                        const std::vector<float>& logits,
                        std::int64_t index,
                        const std::vector<std::int32_t>& context) {
    std::vector<double> l(logits.begin(), logits.end());
    for (const auto& [id, bias] : s.logit_bias) {
        l[static_cast<std::size_t>(id)] += bias;
    }
    const std::size_t n =
        s.penalty_window == 0
            ? context.size()
            : std::min(context.size(), static_cast<std::size_t>(s.penalty_window));
    for (std::size_t id = 0; id < l.size(); ++id) {
        const auto c = std::count(context.end() - static_cast<std::ptrdiff_t>(n), context.end(),
                                  static_cast<std::int32_t>(id));
        if (c > 0) {
            l[id] = l[id] > 0 ? l[id] / s.repetition_penalty : l[id] * s.repetition_penalty;
            l[id] -= static_cast<double>(c) * s.frequency_penalty + s.presence_penalty;
        }
    }
    std::vector<std::int32_t> ranked;
    for (std::size_t id = 0; id < l.size(); ++id) {
        if (candidates[id] != 0) {
            ranked.push_back(static_cast<std::int32_t>(id));
        }
    }
    const bool greedy = s.temperature < 0x1p-10;
    const auto value = [&](std::int32_t id) {
        return greedy ? l[static_cast<std::size_t>(id)]
                      : l[static_cast<std::size_t>(id)] / s.temperature;
    };
    std::stable_sort(ranked.begin(), ranked.end(),
                     [&](std::int32_t a, std::int32_t b) { return value(a) > value(b); });
    if (greedy) {
        return ranked.front();
    }
    if (s.top_k > 0 && ranked.size() > static_cast<std::size_t>(s.top_k)) {
        ranked.resize(static_cast<std::size_t>(s.top_k));
    }
    std::vector<double> p;
    for (const std::int32_t id : ranked) {
        p.push_back(binary64::exp(value(id) - value(ranked.front())));
    }
    while (p.back() == 0.0) {
        p.pop_back();
    }
    if (s.top_p < 1.0) {
        std::vector<std::uint64_t> mass;
        for (const double x : p) {
            mass.push_back(static_cast<std::uint64_t>(std::floor(x * 0x1p40)));
        }
        const auto all = static_cast<double>(std::accumulate(mass.begin(), mass.end(), 0ull));
        std::uint64_t sum = mass[0];
        std::size_t keep = 1;
        while (keep < p.size() && static_cast<double>(sum) < s.top_p * all) {
            sum += mass[keep++];
        }
        p.resize(keep);
    }
    std::int32_t winner = -1;
    double best = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < p.size(); ++i) {
        if (p[i] < s.min_p) {
            continue;
        }
        const double time = race_time(s.seed, index, ranked[i]) / p[i];
        if (time < best || (time == best && ranked[i] < winner)) {
            best = time;
            winner = ranked[i];
        }
    }
    return winner;
}

TEST(Sampler, RanksLazilyAndStillAsAFullSortDoes) {
    std::mt19937 random(20240611);
    std::normal_distribution<float> normal(0.0f, 3.0f);
    const auto one_of = [&](auto list) { return list.begin()[random() % list.size()]; };
    for (int round = 0; round < 400; ++round) {
        SCOPED_TRACE(round);
        const std::size_t vocab = 1 + random() % 600;
        std::vector<float> logits(vocab);
        for (float& x : logits) {
            x = std::round(normal(random) * 4.0f) / 4.0f;  // with equal ones
        }
        std::vector<std::uint8_t> candidates(vocab);
        for (std::uint8_t& c : candidates) {
            c = random() % 8 != 0 ? 1 : 0;
        }
        candidates[random() % vocab] = 1;
        SamplingSettings s;
        s.temperature = one_of(std::initializer_list<double>{0.0, 0.3, 1.0, 2.0});
        s.top_k = one_of(std::initializer_list<std::int32_t>{0, 1, 5, 50, 10000});
        s.top_p = one_of(std::initializer_list<double>{0.0, 0.1, 0.9, 0.999, 1.0});
        s.min_p = one_of(std::initializer_list<double>{0.0, 0.05, 1.0});
        s.repetition_penalty = one_of(std::initializer_list<double>{1.0, 1.3});
        s.presence_penalty = one_of(std::initializer_list<double>{0.0, 0.7});
        s.frequency_penalty = one_of(std::initializer_list<double>{0.0, 0.2});
        s.penalty_window = one_of(std::initializer_list<std::int32_t>{0, 3});
        s.seed = random();
        if (random() % 2 == 0) {
            s.logit_bias = {{static_cast<std::int32_t>(random() % vocab), 2.5}};
        }
        std::vector<std::int32_t> context(1 + random() % 20);
        for (std::int32_t& id : context) {
            id = static_cast<std::int32_t>(random() % vocab);
        }
        const auto index = static_cast<std::int64_t>(context.size());
        Sampler sampler(s, candidates);
        EXPECT_EQ(sampler.draw(logits, index, context),
                  plain_draw(s, candidates, logits, index, context));
    }
}

TEST(Sampler, NeverDrawsAnIdThatTheTokenizerDoesNotDefine) {
    std::vector<float> logits(64, 0.0f);
    std::vector<std::uint8_t> candidates(64, 0);
    candidates[3] = candidates[40] = 1;
    logits[7] = 100.0f;
    for (const double temperature : {0.0, 1.0, 5.0}) {
        for (std::uint64_t seed = 0; seed < 200; ++seed) {
            SamplingSettings s;
            s.temperature = temperature;
            s.seed = seed;
            s.logit_bias = {{7, 1000.0}};
            const std::int32_t id = Sampler(s, candidates).draw(logits, 1, {});
            ASSERT_TRUE(id == 3 || id == 40) << id;
        }
    }
}

TEST(Sampler, DrawsTheSameWhateverWasDrawnBefore) {
    std::mt19937 random(5);
    std::vector<float> logits(100);
    for (float& x : logits) {
        x = static_cast<float>(random() % 100) / 20.0f;
    }
    const std::vector<std::uint8_t> candidates(100, 1);
    SamplingSettings s;
    s.seed = 99;
    Sampler used(s, candidates);
    for (std::int64_t index = 0; index < 50; ++index) {
        EXPECT_EQ(used.draw(logits, index, {}), Sampler(s, candidates).draw(logits, index, {}));
    }
}

}  // namespace
}  // namespace terrace
