#include "engine/device/rope_table.h"
#include "tests/engine/cpu/row_ops/row_ops_fixture.h"

namespace terrace::cpu::test {
namespace {

class RowOpsContract : public OnEveryIsa {};

FloatRows one_row(std::vector<float>& x) {
    const auto n = static_cast<std::int64_t>(x.size());
    return {x.data(), 1, n, n};
}

ActivationRows float_form(std::vector<float>& x) {
    ActivationRows rows;
    rows.values = x.data();
    rows.n_rows = 1;
    rows.width = static_cast<std::int64_t>(x.size());
    rows.stride = rows.width;
    return rows;
}

TEST_P(RowOpsContract, NormsHaveTheRecordedBits) {
    int n_checked = 0;
    for (const auto& c : contract_vectors()["reductions"]) {
        if (!c.contains("rmsnorm_eps_1e-5")) {
            continue;
        }
        auto x = floats_of(c["x"]);
        const auto w = floats_of(c["w"]);
        const auto b = floats_of(c["b"]);
        std::vector<float> y(x.size());
        rms_norm(context(), one_row(x), w.data(), 1e-5f, float_form(y), {});
        EXPECT_EQ(bits(y), words_of(c["rmsnorm_eps_1e-5"])) << c["n"];
        layer_norm(context(), one_row(x), w.data(), b.data(), 1e-6f);
        EXPECT_EQ(bits(x), words_of(c["layernorm_eps_1e-6"])) << c["n"];
        ++n_checked;
    }
    EXPECT_EQ(n_checked, 6);
}

TEST_P(RowOpsContract, SwigluHasTheRecordedBits) {
    const auto& c = contract_vectors()["exp"];
    auto gate = floats_of(c["x"]);
    for (float& g : gate) {
        g = std::isinf(g) ? 1.0f : g;
    }
    auto up = floats_of(c["swiglu_u"]);
    std::vector<float> y(gate.size());
    swiglu(context(), one_row(gate), one_row(up), Activation::SwiGlu, float_form(y), {});
    EXPECT_EQ(bits(y), words_of(c["swiglu"]));
}

TEST_P(RowOpsContract, BothActivationsHaveTheBitsOfTheSecondImplementation) {
    const auto& c = more_contract_vectors()["gated"];
    auto gate = floats_of(c["g"]);
    auto up = floats_of(c["u"]);
    ASSERT_GE(gate.size(), 24u);
    std::vector<float> y(gate.size());
    swiglu(context(), one_row(gate), one_row(up), Activation::SwiGlu, float_form(y), {});
    EXPECT_EQ(bits(y), words_of(c["swiglu"]));
    swiglu(context(), one_row(gate), one_row(up), Activation::ClampedSwiGlu, float_form(y), {});
    EXPECT_EQ(bits(y), words_of(c["gpt_oss"]));
}

TEST_P(RowOpsContract, RotationOfOnePairHasTheRecordedBits) {
    const auto& c = contract_vectors()["rope_pair"];
    const std::int32_t position = c["p"];
    const auto table = RopeTable::make(c["theta"], c["d"], position + 1);
    ASSERT_TRUE(table.ok());
    const std::int64_t d = table->dims;
    const std::int64_t j = c["j"];
    for (const RopePairs pairs : {RopePairs::Interleaved, RopePairs::HalfSplit}) {
        std::vector<float> x(static_cast<std::size_t>(d));
        const std::int64_t a = pairs == RopePairs::Interleaved ? 2 * j : j;
        const std::int64_t b = pairs == RopePairs::Interleaved ? 2 * j + 1 : j + d / 2;
        x[a] = floats_of(c["a"])[0];
        x[b] = floats_of(c["b"])[0];
        RopeJob job;
        job.x = x.data();
        job.row_stride = d;
        job.n_rows = 1;
        job.dims = d;
        job.pairs = pairs;
        job.cos = table->cos.data();
        job.sin = table->sin.data();
        job.positions = &position;
        rope(context(), job);
        EXPECT_EQ(bits(&x[a], 1), words_of(c["a'"]));
        EXPECT_EQ(bits(&x[b], 1), words_of(c["b'"]));
    }
}

/// What a router chooses when its logits are these: one input, 1, and the logits as weights.
struct Chosen {
    std::vector<std::int32_t> ids;
    std::vector<float> gates;
};

Chosen route_logits(Context context,
                    const std::vector<float>& logits,
                    const float* bias,
                    const RouterRule& rule) {
    std::vector<float> one = {1.0f};
    Chosen chosen{std::vector<std::int32_t>(static_cast<std::size_t>(rule.top_k), -1),
                  std::vector<float>(static_cast<std::size_t>(rule.top_k))};
    RouterJob job;
    job.weight = logits.data();
    job.bias = bias;
    job.input = float_form(one);
    job.ids = chosen.ids.data();
    job.gates = chosen.gates.data();
    route(context, job, rule, {});
    return chosen;
}

TEST_P(RowOpsContract, SigmoidRoutersChooseAsRecorded) {
    auto cases = contract_vectors()["router_sigmoid"];
    // Here the sums in rank order and in id order differ.
    for (const auto& c : more_contract_vectors()["router_sigmoid"]) {
        cases.push_back(c);
    }
    ASSERT_EQ(cases.size(), 7u);
    for (const auto& c : cases) {
        const auto logits = floats_of(c["logits"]);
        const auto bias = floats_of(c["bias"]);
        RouterRule rule;
        rule.n_experts = static_cast<std::int64_t>(logits.size());
        rule.top_k = c["k"];
        rule.scaling = std::stof(c["factor"].get<std::string>());
        const Chosen chosen = route_logits(context(), logits, bias.data(), rule);
        EXPECT_EQ(chosen.ids, c["chosen"].get<std::vector<std::int32_t>>());
        EXPECT_EQ(bits(chosen.gates), words_of(c["weights"]));
    }
}

TEST_P(RowOpsContract, SoftmaxRoutersChooseAsRecorded) {
    ASSERT_EQ(contract_vectors()["router_softmax"].size(), 3u);
    for (const auto& c : contract_vectors()["router_softmax"]) {
        const auto logits = floats_of(c["logits"]);
        RouterRule rule;
        rule.n_experts = static_cast<std::int64_t>(logits.size());
        rule.top_k = c["k"];
        rule.norm_topk = false;
        const auto check = [&](Scoring scoring, const char* key) {
            rule.scoring = scoring;
            const Chosen chosen = route_logits(context(), logits, nullptr, rule);
            EXPECT_EQ(chosen.ids, c["chosen"].get<std::vector<std::int32_t>>()) << key;
            EXPECT_EQ(bits(chosen.gates), words_of(c[key])) << key;
        };
        check(Scoring::TopKThenSoftmax, "after_topk");
        check(Scoring::SoftmaxThenTopK, "before_topk");
        rule.norm_topk = true;
        check(Scoring::SoftmaxThenTopK, "before_topk_norm");
    }
}

TEST_P(RowOpsContract, GroupsLimitTheChoiceAsRecorded) {
    const auto& c = contract_vectors()["router_groups"];
    const auto choice = floats_of(c["choice"]);
    RouterRule rule;
    rule.n_experts = static_cast<std::int64_t>(choice.size());
    rule.top_k = c["k"];
    rule.n_group = c["groups"];
    rule.topk_group = c["keep"];
    // Softmax routers choose by the logits themselves, so the recorded values enter unrounded.
    rule.scoring = Scoring::TopKThenSoftmax;
    const Chosen chosen = route_logits(context(), choice, nullptr, rule);
    EXPECT_EQ(chosen.ids, c["chosen"].get<std::vector<std::int32_t>>());
}

TEST_P(RowOpsContract, ExpertsAreSummedAsRecorded) {
    const auto& c = contract_vectors()["expert_sum"];
    auto h = floats_of(c["h"]);
    const auto shared = floats_of(c["shared"]);
    auto outputs = floats_of(c["expert_2"]);
    const auto five = floats_of(c["expert_5"]);
    outputs.insert(outputs.end(), five.begin(), five.end());
    const float g2 = floats_of(c["g_2"])[0];
    const float g5 = floats_of(c["g_5"])[0];
    // Expert 5 was chosen first; its output lies behind the other.
    const std::vector<std::int32_t> ids = {5, 2};
    const std::vector<std::int32_t> output_rows = {1, 0};
    const std::vector<float> gates = {g5, g2};
    ExpertSum job;
    job.n_rows = 1;
    job.top_k = 2;
    job.width = static_cast<std::int64_t>(h.size());
    job.ids = ids.data();
    job.gates = gates.data();
    job.outputs = outputs.data();
    job.output_rows = output_rows.data();
    job.shared = shared.data();
    job.residual = h.data();
    job.residual_stride = job.width;
    sum_experts(context(), job);
    EXPECT_EQ(bits(h), words_of(c["h'"]));
}

INSTANTIATE_TEST_SUITE_P(Isas, RowOpsContract, ::testing::ValuesIn(available_isas()), isa_name);

}  // namespace
}  // namespace terrace::cpu::test
