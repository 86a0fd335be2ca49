// The router on every instruction set: equal to the scalar twin, ties, groups and saturation.
#include <cmath>
#include <set>

#include "tests/engine/cpu/row_ops/row_ops_fixture.h"

namespace terrace::cpu::test {
namespace {

struct Routed {
    std::vector<std::int32_t> ids;
    std::vector<float> gates;

    bool operator==(const Routed& other) const {
        return ids == other.ids && bits(gates) == bits(other.gates);
    }
};

Routed run(Context context,
           Rows& x,
           const std::vector<float>& weight,
           const float* bias,
           const RouterRule& rule) {
    const auto n = static_cast<std::size_t>(x.n_rows * rule.top_k);
    Routed routed{std::vector<std::int32_t>(n, -1), std::vector<float>(n)};
    RouterJob job;
    job.weight = weight.data();
    job.bias = bias;
    job.input.values = x.first();
    job.input.stride = x.stride;
    job.input.n_rows = x.n_rows;
    job.input.width = x.row_width;
    job.ids = routed.ids.data();
    job.gates = routed.gates.data();
    const auto positions = positions_of(x.n_rows);
    route(context, job, rule, {positions.data(), 3});
    return routed;
}

/// A rule whose logits come straight from the weights: one input, 1.
Routed run_logits(Context context,
                  const std::vector<float>& logits,
                  const float* bias,
                  RouterRule rule) {
    Rows one(1, 1, 0);
    one.first()[0] = 1.0f;
    rule.n_experts = static_cast<std::int64_t>(logits.size());
    return run(context, one, logits, bias, rule);
}

class RouteTest : public OnEveryIsa {};

TEST_P(RouteTest, EqualsTheTwinForOneRowAndMany) {
    Machine alone(1);
    std::uint32_t seed = 1;

    struct Shape {
        std::int64_t n_rows, width, n_experts, top_k, n_group, topk_group;
    };

    const Shape shapes[] = {{1, 6144, 256, 8, 1, 1},  {1, 33, 12, 3, 1, 1},
                            {7, 1160, 24, 4, 4, 2},   {300, 200, 32, 4, 8, 4},
                            {70, 1025, 256, 8, 8, 4}, {5, 64, 5, 5, 1, 1}};
    for (const Shape& shape : shapes) {
        for (const auto scoring :
             {Scoring::Sigmoid, Scoring::SoftmaxThenTopK, Scoring::TopKThenSoftmax}) {
            ++seed;
            Rows x(shape.n_rows, shape.width, seed, Traps::Finite);
            for (float& value : x.data) {
                value = std::abs(value) > 8 ? 1.0f : value;
            }
            const auto weight =
                numbers(static_cast<std::size_t>(shape.n_experts * shape.width), seed + 100);
            const auto bias = numbers(static_cast<std::size_t>(shape.n_experts), seed + 200);
            RouterRule rule{
                scoring, shape.n_experts, shape.top_k, shape.n_group, shape.topk_group, true, 2.5f};
            for (const float* b : {bias.data(), static_cast<const float*>(nullptr)}) {
                const Routed got = run(context(), x, weight, b, rule);
                EXPECT_TRUE(got == run(alone.context(Isa::Scalar), x, weight, b, rule))
                    << shape.n_rows << " rows, " << shape.n_experts << " experts";
                const std::set<std::int32_t> distinct(got.ids.begin(),
                                                      got.ids.begin() + shape.top_k);
                EXPECT_EQ(static_cast<std::int64_t>(distinct.size()), shape.top_k);
            }
        }
    }
}

TEST_P(RouteTest, ARowIsRoutedAloneAsAmongOthers) {
    Rows x(33, 584, 5);
    const auto weight = numbers(40 * 584, 6);
    const RouterRule rule{Scoring::Sigmoid, 40, 4, 1, 1, true, 1.0f};
    const Routed all = run(context(), x, weight, nullptr, rule);
    for (std::int64_t r = 0; r < x.n_rows; ++r) {
        Rows one(1, 584, 0);
        std::copy(x.view().row(r), x.view().row(r) + 584, one.first());
        const Routed alone = run(context(), one, weight, nullptr, rule);
        EXPECT_TRUE(std::equal(alone.ids.begin(), alone.ids.end(), all.ids.begin() + 4 * r));
        EXPECT_EQ(bits(alone.gates), bits(all.gates.data() + 4 * r, 4));
    }
}

TEST_P(RouteTest, EqualScoresGoToTheLowerExpert) {
    RouterRule rule;
    rule.top_k = 3;
    const Routed routed =
        run_logits(context(), {0.5f, 2.0f, -1.0f, 2.0f, 2.0f, 0.5f, 2.0f}, nullptr, rule);
    EXPECT_EQ(routed.ids, (std::vector<std::int32_t>{1, 3, 4}));
    EXPECT_EQ(routed.gates[0], routed.gates[2]);
}

TEST_P(RouteTest, MinusZeroEqualsZero) {
    RouterRule rule;
    rule.scoring = Scoring::TopKThenSoftmax;
    rule.top_k = 2;
    const std::vector<float> bias = {-0.0f, 0.0f, -0.0f};
    const Routed routed = run_logits(context(), {-0.0f, 0.0f, -0.0f}, bias.data(), rule);
    EXPECT_EQ(routed.ids, (std::vector<std::int32_t>{0, 1}));
}

TEST_P(RouteTest, TheCorrectionBiasDecidesTheChoiceButNotTheWeight) {
    RouterRule rule;
    rule.top_k = 2;
    rule.norm_topk = false;
    const std::vector<float> logits = {3.0f, 2.0f, 1.0f, 0.0f};
    const std::vector<float> bias = {0.0f, 0.0f, 0.0f, 9.0f};
    const Routed plain = run_logits(context(), logits, nullptr, rule);
    const Routed biased = run_logits(context(), logits, bias.data(), rule);
    EXPECT_EQ(plain.ids, (std::vector<std::int32_t>{0, 1}));
    EXPECT_EQ(biased.ids, (std::vector<std::int32_t>{3, 0}));
    EXPECT_EQ(biased.gates[0], 0.5f);
    EXPECT_EQ(biased.gates[1], plain.gates[0]);
}

TEST_P(RouteTest, OnlyTheBestGroupsMayBeChosenFrom) {
    RouterRule rule;
    rule.scoring = Scoring::TopKThenSoftmax;
    rule.top_k = 3;
    rule.n_group = 3;
    rule.topk_group = 1;
    // The first group has the largest expert, the second the largest sum of two.
    const Routed routed = run_logits(
        context(), {9.0f, 1.0f, 0.0f, 6.0f, 5.0f, 4.0f, 3.0f, 3.0f, 3.0f}, nullptr, rule);
    EXPECT_EQ(routed.ids, (std::vector<std::int32_t>{3, 4, 5}));
    // Equal groups: the lower one.
    const Routed tie = run_logits(context(), {1.0f, 1.0f, 1.0f, 6.0f, 5.0f, 4.0f, 5.0f, 6.0f, 4.0f},
                                  nullptr, rule);
    EXPECT_EQ(tie.ids, (std::vector<std::int32_t>{3, 4, 5}));
}

TEST_P(RouteTest, WeightsAreScaledAlsoWhenTheyAreNotNormalised) {
    RouterRule rule;
    rule.top_k = 1;
    rule.norm_topk = false;
    rule.scaling = 2.5f;
    const Routed routed = run_logits(context(), {0.0f, -1.0f}, nullptr, rule);
    EXPECT_EQ(routed.gates[0], 1.25f);
}

INSTANTIATE_TEST_SUITE_P(Isas, RouteTest, ::testing::ValuesIn(available_isas()), isa_name);

}  // namespace
}  // namespace terrace::cpu::test
