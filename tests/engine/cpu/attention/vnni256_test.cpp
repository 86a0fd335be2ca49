// The AVX-VNNI kernels against the AVX2 ones, tile by tile. On a processor without AVX-VNNI the
// same source runs with the EVEX encoding of AVX-512.
#include <algorithm>

#include "tests/engine/cpu/attention/attention_fixture.h"
#include "tests/engine/cpu/attention/evex_attention.h"

namespace terrace::cpu::test {

namespace {

bool offers(Isa isa) {
    const std::vector<Isa> isas = available_isas();
    return std::find(isas.begin(), isas.end(), isa) != isas.end();
}

/// One tile of random keys with the queries of some pairs.
struct TileProblem {
    TileProblem(std::uint64_t seed,
                std::int64_t n_ranks,
                std::int64_t n_groups,
                std::int64_t n_latent,
                std::int64_t n_pairs)
        : n(n_ranks),
          groups(n_groups),
          latent_groups(n_latent),
          pairs(n_pairs),
          rows(256 * n_groups * 64),
          scales(n_groups * 256),
          q(n_pairs * n_groups * 64),
          wide(n_pairs * n_groups * 64),
          query_scales(n_pairs * n_groups),
          offsets(n_pairs * n_groups) {
        Random random(seed);
        const auto byte = [&] {
            return static_cast<std::int8_t>(static_cast<int>(random() % 255) - 127);
        };
        std::generate_n(rows.data(), 256 * groups * 64, byte);
        std::generate_n(q.data(), pairs * groups * 64, byte);
        for (std::int64_t i = 0; i < groups * 256; ++i) {
            scales.data()[i] = i % 256 < n ? 0.001f * static_cast<float>(random() % 90) : 0.0f;
        }
        for (std::int64_t i = 0; i < pairs * groups; ++i) {
            query_scales.data()[i] = 0.01f * static_cast<float>(random() % 20);
            std::int32_t sum = 0;
            for (std::int64_t j = i * 64; j < i * 64 + 64; ++j) {
                sum += q.data()[j];
                wide.data()[j] = q.data()[j];
            }
            offsets.data()[i] = -128 * sum;
        }
    }

    /// Scores, then z of all pairs.
    std::vector<std::uint32_t> solve(const AttentionKernels& kernels) {
        Aligned<std::uint8_t> keys(256 * groups * 128);
        Aligned<std::int8_t> values(256 * latent_groups * 64);
        const KeyTile tile{keys.data(), values.data(), scales.data(), n, groups, latent_groups};
        const PairQueries queries{q.data(), wide.data(), query_scales.data(), offsets.data()};
        const std::int8_t* row_list[256];
        for (std::int64_t i = 0; i < 256; ++i) {
            row_list[i] = rows.data() + i * groups * 64;
        }
        Aligned<float> scores(pairs * 256);
        Aligned<float> p(256);
        Aligned<std::uint8_t> factors(pairs * latent_groups * 256);
        Aligned<float> factor_scales(pairs * latent_groups * 4);
        Aligned<float> z(pairs * latent_groups * 64);
        kernels.build_tile(row_list, tile);
        kernels.scores(tile, queries, 0, pairs, 0.05f, scores.data(), {});
        std::vector<std::uint32_t> all;
        const auto keep = [&](const float* x, std::int64_t count) {
            const auto words = bits(x, static_cast<std::size_t>(count));
            all.insert(all.end(), words.begin(), words.end());
        };
        for (std::int64_t pair = 0; pair < pairs; ++pair) {
            keep(scores.data() + pair * 256, n);
            kernels.softmax(scores.data() + pair * 256, n, round_up(n, 64), p.data());
            kernels.factors(tile, p.data(), factors.data() + pair * latent_groups * 256,
                            factor_scales.data() + pair * latent_groups * 4);
        }
        kernels.values(tile, factors.data(), factor_scales.data(), pairs, z.data(),
                       latent_groups * 64);
        keep(z.data(), pairs * latent_groups * 64);
        return all;
    }

    std::int64_t n;
    std::int64_t groups;
    std::int64_t latent_groups;
    std::int64_t pairs;
    Aligned<std::int8_t> rows;
    Aligned<float> scales;
    Aligned<std::int8_t> q;
    Aligned<std::int16_t> wide;
    Aligned<float> query_scales;
    Aligned<std::int32_t> offsets;
};

TEST(Vnni256, EqualsAvx2) {
    if (!offers(Isa::Avx512) && !offers(Isa::AvxVnni)) {
        GTEST_SKIP() << "1 test skipped: neither AVX-512 nor AVX-VNNI here";
    }
    const AttentionKernels& kernels =
        offers(Isa::AvxVnni) ? attention_kernels_avxvnni() : attention_kernels_evex256();
    for (const std::int64_t n : {1, 8, 10, 17, 64, 100, 255, 256}) {
        for (const auto& [groups, latent_groups] :
             {std::pair<std::int64_t, std::int64_t>{2, 1}, {9, 8}, {17, 16}}) {
            TileProblem problem(static_cast<std::uint64_t>(n * 100 + groups), n, groups,
                                latent_groups, 8);
            EXPECT_EQ(problem.solve(kernels), problem.solve(attention_kernels_avx2()))
                << n << " ranks, " << groups << " groups";
        }
    }
}

}  // namespace

}  // namespace terrace::cpu::test
