#include <numeric>

#include "tests/engine/cpu/row_ops/float_math_probe.h"
#include "tests/engine/cpu/row_ops/row_ops_fixture.h"

namespace terrace::cpu::test {
namespace {

const FloatMath& float_math(Isa isa) {
    return isa == Isa::Scalar   ? kFloatMathScalar
           : isa == Isa::Avx512 ? kFloatMathAvx512
                                : kFloatMathAvx2;
}

class FloatMathTest : public ::testing::TestWithParam<Isa> {
protected:
    const FloatMath& math() { return float_math(GetParam()); }

    std::vector<float> exp_of(const std::vector<float>& x) {
        std::vector<float> y(x.size());
        math().exp32(x.data(), static_cast<std::int64_t>(x.size()), y.data());
        return y;
    }
};

/// The floats whose bit patterns are first, first + step ... at most last, in pieces.
template <typename Body>
void for_patterns(std::uint64_t first, std::uint64_t last, std::uint64_t step, Body body) {
    std::vector<float> x;
    for (std::uint64_t word = first; word <= last; word += step) {
        x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(word)));
        if (x.size() == 4096 || word + step > last) {
            body(x);
            x.clear();
        }
    }
}

TEST_P(FloatMathTest, ExponentialHasTheRecordedBits) {
    const auto& c = contract_vectors()["exp"];
    const auto x = floats_of(c["x"]);
    ASSERT_GT(x.size(), 20u);
    EXPECT_EQ(bits(exp_of(x)), words_of(c["exp"]));
}

TEST_P(FloatMathTest, SigmoidHasTheRecordedBits) {
    const auto& c = contract_vectors()["exp"];
    const auto x = floats_of(c["x"]);
    std::vector<float> y(x.size());
    math().sigmoid(x.data(), static_cast<std::int64_t>(x.size()), y.data());
    EXPECT_EQ(bits(y), words_of(c["sigmoid"]));
}

TEST_P(FloatMathTest, ExponentialOfElevenMillionFloatsHasTheRecordedHash) {
    ASSERT_EQ(contract_vectors()["exp"]["hash_of_ranges"].size(), 2u);
    for (const auto& range : contract_vectors()["exp"]["hash_of_ranges"]) {
        std::uint64_t hash = terrace::test::fnv64(nullptr, 0);
        for_patterns(terrace::test::bits_of(range["first"]), terrace::test::bits_of(range["last"]),
                     range["step"].get<std::uint64_t>(), [&](const std::vector<float>& x) {
                         const auto y = exp_of(x);
                         hash = terrace::test::fnv64(y.data(), y.size() * 4, hash);
                     });
        EXPECT_EQ(hash, terrace::test::bits_of(range["fnv64_of_exp"])) << range;
    }
}

// A stride of 1 takes half a minute for each instruction set and finds nothing either.
TEST_P(FloatMathTest, ExponentialOfEverySixtyFirstFloatEqualsTheTwin) {
    std::vector<float> want(4096);
    std::int64_t n_wrong = 0;
    for_patterns(0, 0xffffffff, 61, [&](const std::vector<float>& x) {
        kFloatMathScalar.exp32(x.data(), static_cast<std::int64_t>(x.size()), want.data());
        const auto y = exp_of(x);
        if (std::memcmp(y.data(), want.data(), y.size() * 4) != 0) {
            n_wrong += bits(y) != bits(want.data(), y.size()) ? 1 : 0;
        }
    });
    EXPECT_EQ(n_wrong, 0);
}

TEST_P(FloatMathTest, ReductionsHaveTheRecordedBits) {
    const auto& cases = contract_vectors()["reductions"];
    ASSERT_EQ(cases.size(), 8u);
    for (const auto& c : cases) {
        const auto x = floats_of(c["x"]);
        const auto w = floats_of(c["w"]);
        const std::int64_t n = c["n"];
        const float dot = math().dot32(x.data(), w.data(), n);
        EXPECT_EQ(bits(&dot, 1), words_of(c["dot32"])) << n;
        if (c.contains("sum32")) {
            const float sum = math().sum32(x.data(), n);
            EXPECT_EQ(bits(&sum, 1), words_of(c["sum32"])) << n;
        }
    }
}

TEST_P(FloatMathTest, ReductionsEqualTheTwinAtEveryLengthAndAddress) {
    const auto x = numbers(1200, 1, Traps::Finite);
    const auto w = numbers(1200, 2, Traps::Finite);
    std::vector<std::int64_t> lengths(200);
    std::iota(lengths.begin(), lengths.end(), 0);
    lengths.push_back(1160);
    for (const std::int64_t n : lengths) {
        const float* from = x.data() + n % 7;
        const float* other = w.data() + n % 5;
        const float dot = math().dot32(from, other, n);
        const float want_dot = kFloatMathScalar.dot32(from, other, n);
        EXPECT_EQ(bits(&dot, 1), bits(&want_dot, 1)) << n;
        const float sum = math().sum32(from, n);
        const float want_sum = kFloatMathScalar.sum32(from, n);
        EXPECT_EQ(bits(&sum, 1), bits(&want_sum, 1)) << n;
    }
}

TEST_P(FloatMathTest, PaddingTurnsTheMinusZeroOfAnUnderflowIntoZero) {
    // The exact product is below the smallest denormal, so the sum of a full block is -0.
    std::vector<float> x(64, 0.0f);
    std::vector<float> w(64, 0.0f);
    std::fill(x.begin(), x.begin() + 32, -0x1p-100f);
    std::fill(w.begin(), w.begin() + 32, 0x1p-100f);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(math().dot32(x.data(), w.data(), 32)), 0x80000000u);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(math().dot32(x.data(), w.data(), 33)), 0u);
}

TEST_P(FloatMathTest, ExponentialKeepsNanAndIsClosedAtBothEnds) {
    const float infinity = std::numeric_limits<float>::infinity();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const auto y = exp_of({nan, -nan, infinity, -infinity, 1e30f, -87.0f,
                           std::nextafter(-87.0f, -88.0f), 87.0f, std::nextafter(87.0f, 88.0f)});
    EXPECT_TRUE(std::isnan(y[0]));
    EXPECT_TRUE(std::isnan(y[1]));
    EXPECT_EQ(y[2], y[7]);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(y[3]), 0u);
    EXPECT_EQ(y[4], y[7]);
    EXPECT_GT(y[5], 1e-38f);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(y[6]), 0u);
    EXPECT_EQ(y[8], y[7]);
}

INSTANTIATE_TEST_SUITE_P(Isas, FloatMathTest, ::testing::ValuesIn(available_isas()), isa_name);

}  // namespace
}  // namespace terrace::cpu::test
