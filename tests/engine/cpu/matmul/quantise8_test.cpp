#include "engine/cpu/quantise8.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "engine/cpu/matmul.h"
#include "engine/cpu/thread_pool.h"
#include "engine/device/stream.h"

namespace terrace::cpu {

namespace {

struct Quantised {
    std::vector<std::int8_t> q;
    std::vector<std::uint32_t> scale_bits;
    std::vector<std::int32_t> sums;
    std::uint32_t largest = 0;

    bool operator==(const Quantised&) const = default;
};

Quantised run(QuantiseRow quantise_one, const std::vector<float>& x) {
    const auto n = static_cast<std::int64_t>(x.size());
    const auto n_groups = static_cast<std::size_t>((n + 63) / 64);
    Quantised out;
    // One byte off, so that nothing relies on alignment.
    std::vector<std::int8_t> q(n_groups * 64 + 1, 99);
    std::vector<float> scales(n_groups);
    out.sums.resize(n_groups);
    out.largest = quantise_one(x.data(), n, q.data() + 1, scales.data(), out.sums.data());
    out.q.assign(q.begin() + 1, q.end());
    for (const float s : scales) {
        out.scale_bits.push_back(std::bit_cast<std::uint32_t>(s));
    }
    return out;
}

float drawn(std::mt19937_64& random) {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    std::normal_distribution<float> normal;
    switch (random() % 24) {
        case 0:
            return -0.0f;
        case 1:
            return 0x1p-149f;
        case 2:
            return 0x1.fffffep127f;
        case 3:
            return -kInf;
        case 4:
            return std::numeric_limits<float>::quiet_NaN();
        case 5:
            return std::bit_cast<float>(static_cast<std::uint32_t>(random()));
        default:
            return std::ldexp(normal(random), static_cast<int>(random() % 40) - 20);
    }
}

}  // namespace

TEST(Quantise8Test, EveryVersionEqualsTheScalarTwinOverDrawnRows) {
    std::mt19937_64 random(7);
    for (int round = 0; round < 3000; ++round) {
        std::vector<float> x(1 + random() % 300);
        const std::uint64_t style = random() % 4;
        for (float& v : x) {
            v = style == 0   ? drawn(random)
                : style == 1 ? std::ldexp(drawn(random), -100)
                : style == 2
                    ? std::bit_cast<float>(static_cast<std::uint32_t>(random()) & 0xbfffffffu)
                    : static_cast<float>(random() % 255) - 127.0f;
        }
        const Quantised expected = run(quantise_row_scalar, x);
        for (const Isa isa : available_isas()) {
            ASSERT_EQ(expected, run(quantise_row(isa), x)) << to_string(isa) << " round " << round;
        }
    }
}

TEST(Quantise8Test, HalvesRoundToEven) {
    // With 127 as the largest the factor is 1 and every x is its own product.
    const std::vector<float> x = {127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f};
    const std::vector<std::int8_t> expected = {127, 0, 2, 2, 0, -2, -2, 126};
    for (const Isa isa : available_isas()) {
        std::vector<float> full = x;
        full.resize(64);
        const Quantised found = run(quantise_row(isa), full);
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), found.q.begin()))
            << to_string(isa);
    }
}

TEST(Quantise8Test, GroupsBelowTheThresholdAreZero) {
    for (const Isa isa : available_isas()) {
        for (const auto& [largest, zero] : {std::pair{0x1.fffffep-61f, true}, {0x1p-60f, false}}) {
            std::vector<float> x(64, 0.0f);
            x[17] = largest;
            const Quantised found = run(quantise_row(isa), x);
            EXPECT_EQ(found.q[17], zero ? 0 : 127) << to_string(isa);
            EXPECT_EQ(found.scale_bits[0] == 0, zero) << to_string(isa);
        }
    }
}

TEST(Quantise8Test, ANanCountsAsZeroAndTheScaleComesFromTheOthers) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        for (const Isa isa : available_isas()) {
            std::vector<float> x(64, 1.0f);
            x[3] = bad;
            x[60] = -2.0f;
            const Quantised found = run(quantise_row(isa), x);
            EXPECT_GE(found.largest, kNotFiniteBits);
            EXPECT_EQ(found.q[3], 0);
            EXPECT_EQ(found.q[60], -127);
            EXPECT_EQ(found.scale_bits[0], std::bit_cast<std::uint32_t>(2.0f / 127.0f));
        }
    }
}

TEST(Quantise8Test, TheOpReportsTheSmallestFaultyPosition) {
    for (const Isa isa : available_isas()) {
        constexpr std::int64_t kRows = 900;
        constexpr std::int64_t kWidth = 130;
        std::vector<float> values(kRows * kWidth, 0.25f);
        values[700 * kWidth + 129] = std::numeric_limits<float>::infinity();
        values[300 * kWidth + 1] = std::numeric_limits<float>::quiet_NaN();
        std::vector<std::int8_t> q(kRows * 192);
        std::vector<float> scales(kRows * 3);
        std::vector<std::int32_t> sums(kRows * 3);
        std::vector<std::int32_t> positions(kRows);
        for (std::int32_t i = 0; i < kRows; ++i) {
            positions[i] = 5000 + i;
        }
        ThreadPool pool(2);
        Stream stream;
        quantise({&pool, &stream, isa},
                 {values.data(), kWidth, q.data(), scales.data(), sums.data(), kRows, kWidth},
                 {positions.data(), 4});
        const std::optional<NumericFault> fault = stream.faults().first();
        ASSERT_TRUE(fault.has_value());
        EXPECT_EQ(fault->position, 5300);
        EXPECT_EQ(fault->layer, 4);
        EXPECT_EQ(fault->site, FaultSite::Quantise);
        EXPECT_EQ(sums[0], 64 * 127);
        EXPECT_EQ(sums[2], 2 * 127);
    }
}

}  // namespace terrace::cpu
