// A numeric fault is named by the smallest row, layer and site, whatever the instruction set and
// the number of threads, and the value counts as +0.
#include "tests/engine/cpu/row_ops/row_ops_fixture.h"

namespace terrace::cpu::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Setting {
    Isa isa;
    int n_threads;
};

std::vector<Setting> settings() {
    std::vector<Setting> all;
    for (const Isa isa : available_isas()) {
        for (const int n_threads : {1, 2, 4}) {
            all.push_back({isa, n_threads});
        }
    }
    return all;
}

class RowFaults : public ::testing::TestWithParam<Setting> {
protected:
    Context context() { return machine_.context(GetParam().isa); }

    void expect_fault(std::int32_t position, std::int32_t layer, FaultSite site) {
        const auto fault = machine_.stream().faults().first();
        ASSERT_TRUE(fault.has_value());
        EXPECT_EQ(fault->position, position);
        EXPECT_EQ(fault->layer, layer);
        EXPECT_EQ(fault->site, site);
        machine_.stream().faults().clear();
    }

    bool clean() { return !machine_.stream().faults().first().has_value(); }

    Machine machine_{GetParam().n_threads};
};

TEST_P(RowFaults, ANormedRowIsNamedByItsSmallestPosition) {
    constexpr std::int64_t width = 2500;
    Rows x(40, width, 1);
    const auto weight = numbers(width, 2);
    // Rows need not come in the order of their positions.
    auto positions = positions_of(40);
    std::reverse(positions.begin(), positions.end());
    Activations out(40, width);
    rms_norm(context(), x.view(), weight.data(), 1e-5f, out.view(), {positions.data(), 6});
    EXPECT_TRUE(clean());
    x.view().row(3)[700] = kNan;
    x.view().row(17)[width - 1] = kInfinity;
    x.view().row(38)[0] = -kInfinity;
    rms_norm(context(), x.view(), weight.data(), 1e-5f, out.view(), {positions.data(), 6});
    expect_fault(positions[38], 6, FaultSite::Quantise);
}

TEST_P(RowFaults, AFaultyActivationCountsAsZero) {
    constexpr std::int64_t width = 4200;
    Rows gate(9, width, 1);
    Rows up(9, width, 2);
    const auto positions = positions_of(9);
    Activations out(9, width);
    gate.view().row(5)[3002] = 4.0f;
    up.view().row(5)[3002] = 4.0f;
    up.view().row(5)[3001] = kNan;
    up.view().row(7)[0] = kInfinity;
    swiglu(context(), gate.view(), up.view(), Activation::SwiGlu, out.view(),
           {positions.data(), 1});
    expect_fault(105, 1, FaultSite::Quantise);
    const ActivationRows view = out.view();
    EXPECT_EQ(view.q[5 * view.q_stride() + 3001], 0);
    EXPECT_NE(view.q[5 * view.q_stride() + 3002], 0);

    up.view().row(5)[3001] = 0.0f;
    up.view().row(7)[0] = 0.0f;
    Activations want(9, width);
    swiglu(context(), gate.view(), up.view(), Activation::SwiGlu, want.view(), {});
    EXPECT_TRUE(clean());
    EXPECT_EQ(out.q, want.q);
    EXPECT_EQ(bits(out.scales), bits(want.scales));
    EXPECT_EQ(out.sums, want.sums);
}

TEST_P(RowFaults, AFloatSessionQuantisesNothingAndSoFindsNothing) {
    Rows x(2, 64, 1);
    x.first()[0] = kNan;
    const auto weight = numbers(64, 2);
    Activations out(2, 64);
    ActivationRows floats = out.view();
    floats.q = nullptr;
    rms_norm(context(), x.view(), weight.data(), 1e-5f, floats, {});
    EXPECT_TRUE(clean());
    EXPECT_EQ(out.q[0], 99);
}

TEST_P(RowFaults, ARouterLogitThatIsNotFiniteCountsAsZero) {
    constexpr std::int64_t n_rows = 20;
    constexpr std::int64_t n_experts = 16;
    constexpr std::int64_t width = 100;
    Rows x(n_rows, width, 1);
    std::fill(x.data.begin(), x.data.end(), 1.0f);
    std::vector<float> weight(n_experts * width, -0.01f);
    const auto positions = positions_of(n_rows);
    std::vector<std::int32_t> ids(n_rows * 2, -1);
    std::vector<float> gates(n_rows * 2);
    RouterJob job;
    job.weight = weight.data();
    job.input = {x.first(), x.stride, nullptr, nullptr, nullptr, n_rows, width};
    job.ids = ids.data();
    job.gates = gates.data();
    RouterRule rule;
    rule.n_experts = n_experts;
    rule.top_k = 2;
    route(context(), job, rule, {positions.data(), 2});
    EXPECT_TRUE(clean());
    EXPECT_EQ(ids[0], 0);
    // An infinite product: a logit of -infinity for expert 9 of rows 4 and 11 only.
    weight[9 * width] = -std::numeric_limits<float>::max();
    x.view().row(11)[0] = 100.0f;
    x.view().row(4)[0] = 100.0f;
    route(context(), job, rule, {positions.data(), 2});
    expect_fault(104, 2, FaultSite::Router);
    EXPECT_EQ(ids[2 * 4], 9);  // +0 is more than every other logit
    EXPECT_EQ(gates[2 * 4] > gates[2 * 4 + 1], true);
    EXPECT_EQ(ids[2 * 5], 0);
}

TEST_P(RowFaults, FinalLogitsAreChecked) {
    constexpr std::int64_t width = 40001;
    Rows logits(3, width, 1);
    const auto positions = positions_of(3);
    check_logits(context(), logits.view(), {positions.data(), 78});
    EXPECT_TRUE(clean());
    logits.view().row(2)[1] = kInfinity;
    logits.view().row(1)[width - 1] = kNan;
    const float neighbour = logits.view().row(1)[width - 2];
    check_logits(context(), logits.view(), {positions.data(), 78});
    expect_fault(101, 78, FaultSite::Logits);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(logits.view().row(1)[width - 1]), 0u);
    EXPECT_EQ(logits.view().row(1)[width - 2], neighbour);
}

TEST_P(RowFaults, HugeAndDenormalNumbersAreNoFaults) {
    Rows logits(1, 70, 1);
    logits.first()[3] = -std::numeric_limits<float>::max();
    logits.first()[4] = std::numeric_limits<float>::denorm_min();
    check_logits(context(), logits.view(), {});
    EXPECT_TRUE(clean());
}

std::string setting_name(const ::testing::TestParamInfo<Setting>& setting) {
    return std::string(to_string(setting.param.isa)) + "_" +
           std::to_string(setting.param.n_threads) + "_threads";
}

INSTANTIATE_TEST_SUITE_P(Settings, RowFaults, ::testing::ValuesIn(settings()), setting_name);

}  // namespace
}  // namespace terrace::cpu::test
