#include "engine/device/binary64.h"

#include "tests/engine/device/contract_vectors.h"

namespace terrace {
namespace {

using test::contract_vectors;
using test::double_of;

std::uint64_t bits(double x) {
    return std::bit_cast<std::uint64_t>(x);
}

const nlohmann::json& cases(const char* key) {
    return contract_vectors()["binary64"][key];
}

TEST(Binary64, LogarithmHasTheRecordedBits) {
    ASSERT_GT(cases("ln").size(), 20u);
    for (const auto& c : cases("ln")) {
        EXPECT_EQ(bits(binary64::ln(double_of(c[0]))), bits(double_of(c[1]))) << c;
    }
}

TEST(Binary64, ExponentialHasTheRecordedBits) {
    ASSERT_GT(cases("exp64").size(), 20u);
    for (const auto& c : cases("exp64")) {
        EXPECT_EQ(bits(binary64::exp(double_of(c[0]))), bits(double_of(c[1]))) << c;
    }
}

TEST(Binary64, PowerHasTheRecordedBits) {
    ASSERT_GE(cases("pow").size(), 4u);
    for (const auto& c : cases("pow")) {
        EXPECT_EQ(bits(binary64::pow(double_of(c[0]), double_of(c[1]))), bits(double_of(c[2])))
            << c;
    }
}

TEST(Binary64, SineAndCosineHaveTheRecordedBits) {
    ASSERT_GT(cases("x_sin_cos").size(), 20u);
    for (const auto& c : cases("x_sin_cos")) {
        const auto [sine, cosine] = binary64::sin_cos(double_of(c[0]));
        EXPECT_EQ(bits(sine), bits(double_of(c[1]))) << c;
        EXPECT_EQ(bits(cosine), bits(double_of(c[2]))) << c;
    }
}

TEST(Binary64, ExponentialIsClosedAtBothEnds) {
    EXPECT_EQ(bits(binary64::exp(-709.0)), bits(0.0));
    EXPECT_EQ(bits(binary64::exp(1e300)), bits(binary64::exp(708.0)));
    EXPECT_EQ(binary64::exp(0.0), 1.0);
}

}  // namespace
}  // namespace terrace
