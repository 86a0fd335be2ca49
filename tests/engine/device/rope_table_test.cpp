#include "engine/device/rope_table.h"

#include "engine/device/binary64.h"
#include "tests/engine/device/contract_vectors.h"

namespace terrace {
namespace {

using test::contract_vectors;
using test::double_of;

std::uint64_t bits(double x) {
    return std::bit_cast<std::uint64_t>(x);
}

TEST(RopeTable, FrequenciesHaveTheRecordedBits) {
    ASSERT_EQ(contract_vectors()["rope"].size(), 3u);
    for (const auto& c : contract_vectors()["rope"]) {
        const auto f = rope_frequencies(c["theta"], c["d"], {});
        ASSERT_LE(c["f"].size(), f.size());
        for (std::size_t j = 0; j < c["f"].size(); ++j) {
            EXPECT_EQ(bits(f[j]), bits(double_of(c["f"][j]))) << c["d"] << " " << j;
        }
    }
}

TEST(RopeTable, EntriesHaveTheRecordedBits) {
    for (const auto& c : contract_vectors()["rope"]) {
        const auto table = RopeTable::make(c["theta"], c["d"], 4096);
        ASSERT_TRUE(table.ok());
        const auto pairs = static_cast<std::size_t>(table->dims / 2);
        for (const auto& [position, want] : c["positions"].items()) {
            const auto p = std::stoull(position);
            if (p >= 4096) {
                continue;  // the hash of every 1013th position goes further
            }
            const auto cos = test::words_of(want["cos"]);
            const auto sin = test::words_of(want["sin"]);
            EXPECT_EQ(test::bits(&table->cos[p * pairs], cos.size()), cos) << position;
            EXPECT_EQ(test::bits(&table->sin[p * pairs], sin.size()), sin) << position;
        }
    }
}

TEST(RopeTable, AMillionPositionsHaveTheRecordedHash) {
    constexpr std::size_t n_positions = 1048576;
    for (const auto& c : contract_vectors()["rope"]) {
        if (c["d"].get<int>() > 64) {
            continue;  // a gigabyte; the next test takes it entry by entry
        }
        const auto table = RopeTable::make(c["theta"], c["d"], n_positions);
        ASSERT_TRUE(table.ok());
        const auto pairs = static_cast<std::size_t>(table->dims / 2);
        std::uint64_t hash = test::fnv64(nullptr, 0);
        for (std::size_t p = 0; p < n_positions; p += 1013) {
            for (std::size_t i = p * pairs; i < (p + 1) * pairs; ++i) {
                hash = test::fnv64(&table->cos[i], 4, hash);
                hash = test::fnv64(&table->sin[i], 4, hash);
            }
        }
        EXPECT_EQ(hash, test::bits_of(c["fnv64_cos_sin_pairs_every_1013th_position_j_inner"]));
    }
}

TEST(RopeTable, AnglesOfEverySizeHaveTheRecordedHash) {
    for (const auto& c : contract_vectors()["rope"]) {
        const auto f = rope_frequencies(c["theta"], c["d"], {});
        std::uint64_t hash = test::fnv64(nullptr, 0);
        for (int p = 0; p < 1048576; p += 1013) {
            for (const double frequency : f) {
                const auto [s, co] = binary64::sin_cos(p * frequency);
                const float pair[2] = {static_cast<float>(co), static_cast<float>(s)};
                hash = test::fnv64(pair, 8, hash);
            }
        }
        EXPECT_EQ(hash, test::bits_of(c["fnv64_cos_sin_pairs_every_1013th_position_j_inner"]));
    }
}

TEST(RopeTable, YarnHasTheRecordedBits) {
    const auto& c = contract_vectors()["yarn"];
    Yarn yarn;
    yarn.factor = c["factor"];
    yarn.original_positions = c["original"];
    yarn.beta_fast = c["fast"];
    yarn.beta_slow = c["slow"];
    yarn.mscale_all_dim = 1;
    const auto f = rope_frequencies(c["theta"], c["d"], yarn);
    ASSERT_EQ(f.size(), c["f"].size());
    for (std::size_t j = 0; j < f.size(); ++j) {
        EXPECT_EQ(bits(f[j]), bits(double_of(c["f"][j]))) << j;
    }
    EXPECT_EQ(bits(yarn_m(1, yarn.factor)), bits(double_of(c["m_1"])));
    EXPECT_EQ(std::bit_cast<std::uint32_t>(attention_scale(192, yarn)),
              test::words_of(c["softmax_scale_192"]).at(0));
}

TEST(RopeTable, YarnsAmplitudeEntersBeforeTheRounding) {
    Yarn yarn;
    yarn.factor = 32;
    yarn.attention_factor = 1.3465735902799727;
    const auto table = RopeTable::make(150000, 64, 3, yarn);
    ASSERT_TRUE(table.ok());
    EXPECT_EQ(table->cos[0], static_cast<float>(1.3465735902799727));
    EXPECT_EQ(table->sin[0], 0.0f);
    const double f0 = rope_frequencies(150000, 64, yarn)[0];
    const auto at_two = binary64::sin_cos(2 * f0);
    EXPECT_EQ(table->sin[64], static_cast<float>(at_two.sin * 1.3465735902799727));
}

TEST(RopeTable, UnroundedYarnEndsGiveOtherFrequencies) {
    Yarn yarn;
    yarn.factor = 32;
    const auto whole = rope_frequencies(150000, 64, yarn);
    yarn.ends = YarnEnds::Fractional;
    const auto fractional = rope_frequencies(150000, 64, yarn);
    EXPECT_EQ(whole.front(), fractional.front());
    EXPECT_NE(whole[12], fractional[12]);
    EXPECT_EQ(whole.back(), fractional.back());
}

TEST(RopeTable, AttentionScalesHaveTheRecordedBits) {
    const auto& cases = contract_vectors()["inverse_square_roots"];
    ASSERT_GT(cases.size(), 5u);
    for (const auto& [dim, want] : cases.items()) {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(attention_scale(std::stoll(dim))),
                  test::words_of(want).at(0))
            << dim;
    }
}

TEST(RopeTable, RefusesNumbersThatHaveNoTable) {
    Yarn endless;
    endless.factor = 0;
    EXPECT_FALSE(RopeTable::make(10000, 63, 10).ok());
    EXPECT_FALSE(RopeTable::make(10000, 0, 10).ok());
    EXPECT_FALSE(RopeTable::make(1, 64, 10).ok());
    EXPECT_FALSE(RopeTable::make(-1e30, 64, 10).ok());
    EXPECT_FALSE(RopeTable::make(10000, 64, 16777217).ok());
    EXPECT_FALSE(RopeTable::make(10000, 64, 10, endless).ok());
    const auto refused = RopeTable::make(10000, 63, 10);
    EXPECT_EQ(refused.error().code, ErrorCode::Unsupported);
    EXPECT_NE(refused.error().message.find("63 dimensions"), std::string::npos);
}

}  // namespace
}  // namespace terrace
