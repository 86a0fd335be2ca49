#include "engine/cpu/attention/top_k.h"

#include <algorithm>
#include <numeric>

#include "tests/engine/cpu/attention/attention_fixture.h"

namespace terrace::cpu::test {

namespace {

/// The first k of the total order, ascending, by a plain sort.
std::vector<std::int32_t> by_sorting(const std::vector<float>& scores, std::int64_t k) {
    std::vector<std::int32_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        const float x = scores[static_cast<std::size_t>(a)];
        const float y = scores[static_cast<std::size_t>(b)];
        return x != y ? x > y : a < b;
    });
    order.resize(static_cast<std::size_t>(k));
    std::sort(order.begin(), order.end());
    return order;
}

std::vector<std::int32_t> selected(const std::vector<float>& scores, std::int64_t k) {
    std::vector<std::int32_t> out(static_cast<std::size_t>(k));
    select_top_k(scores.data(), static_cast<std::int64_t>(scores.size()), k, out.data());
    return out;
}

TEST(TopK, EqualsASortForEveryKOfSmallLists) {
    Random random(31);
    for (const int distinct : {1, 2, 5, 1000}) {
        std::vector<float> scores;
        for (int i = 0; i < 70; ++i) {
            scores.push_back(static_cast<float>(static_cast<int>(random() % 2000) % distinct) -
                             static_cast<float>(distinct) / 2.0f);
        }
        for (std::int64_t k = 0; k <= 70; ++k) {
            EXPECT_EQ(selected(scores, k), by_sorting(scores, k)) << distinct << " " << k;
        }
    }
}

TEST(TopK, EqualsASortOverLongListsOfAllSizes) {
    Random random(32);
    for (const float spread : {0.1f, 20.0f}) {
        const auto scores = random_numbers(random, 30000, spread);
        for (const std::int64_t k : {1, 100, 2048, 29999, 30000}) {
            EXPECT_EQ(selected(scores, k), by_sorting(scores, k));
        }
    }
}

TEST(TopK, TreatsBothZerosAlike) {
    const std::vector<float> scores = {-0.0f, 0.0f, -0.0f, 0.0f, -1.0f};
    EXPECT_EQ(selected(scores, 1), (std::vector<std::int32_t>{0}));
    EXPECT_EQ(selected(scores, 3), (std::vector<std::int32_t>{0, 1, 2}));
}

}  // namespace

}  // namespace terrace::cpu::test
