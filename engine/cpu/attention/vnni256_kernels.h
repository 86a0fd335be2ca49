// Scores and values of integer attention with vpdpbusd on 256-bit vectors. The instruction is a
// template argument: the product compiles its VEX form (AVX-VNNI), a test its EVEX form, which runs
// on processors that have AVX-512 instead. `Dot` must have internal linkage.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "engine/cpu/attention/attention_256.h"
#include "engine/cpu/attention/kernels_avx2.h"

namespace terrace::cpu::vnni256 {

/// Keys of 8 ranks: [groups * 16 quads][8 ranks][4] of value + 128.
[[maybe_unused]] static void build_keys(const std::int8_t* const* rows,
                                        std::int64_t groups,
                                        std::uint8_t* out) {
    const __m256i flip = _mm256_set1_epi8(-128);
    for (std::int64_t c = 0; c < groups * 64; c += 32) {
        __m256i r[8];
        __m256i t[8];
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
            r[i] = _mm256_xor_si256(avx2::load(rows[i] + c), flip);
        }
#pragma GCC unroll 4
        for (int i = 0; i < 8; i += 2) {
            t[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
            t[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
        }
#pragma GCC unroll 2
        for (int i = 0; i < 8; i += 4) {
            r[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
            r[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
            r[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
            r[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            avx2::store(out + c * 8 + i * 32, _mm256_permute2x128_si256(r[i], r[i + 4], 0x20));
            avx2::store(out + c * 8 + (i + 4) * 32,
                        _mm256_permute2x128_si256(r[i], r[i + 4], 0x31));
        }
    }
}

[[maybe_unused]] static void build_tile(const std::int8_t* const* rows, const KeyTile& tile) {
    for (std::int64_t first = 0; first < round_up(tile.n, 16); first += 8) {
        build_keys(rows + first, tile.groups, tile.keys + first * tile.groups * 64);
    }
    for (std::int64_t first = 0; first < tile.n; first += 64) {
        avx2::build_values(rows + first, avx2::quads_from(tile.n, first), tile.latent_groups,
                           tile.values + first * tile.latent_groups * 64);
    }
}

/// Row dots of 4 pairs with 16 ranks.
template <typename Dot>
void scores_4x16(const KeyTile& tile,
                 const PairQueries& queries,
                 std::int64_t pair,
                 std::int64_t rank,
                 __m256 scale,
                 float* out) {
    const std::int64_t groups = tile.groups;
    alignas(32) float tot[8][8];
    alignas(32) float acc[8][8];
    const __m256 zero = avx2::opaque_zero();
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
        _mm256_store_ps(tot[i], zero);
        _mm256_store_ps(acc[i], zero);
    }
    for (std::int64_t k = 0; k < groups; ++k) {
        asm volatile("" ::: "memory");
        const std::uint8_t* k0 = tile.keys + (rank * groups + k * 8) * 64;
        const std::uint8_t* k1 = k0 + groups * 512;
        const std::int64_t item = pair * groups + k;
        const std::int8_t* q = queries.q + item * 64;
        __m256i isum[4][2];
#pragma GCC unroll 4
        for (int h = 0; h < 4; ++h) {
            isum[h][0] = _mm256_set1_epi32(queries.offsets[item + h * groups]);
            isum[h][1] = isum[h][0];
        }
#pragma GCC unroll 16
        for (int j = 0; j < 16; ++j) {
            const __m256i x = avx2::load(k0 + j * 32);
            const __m256i y = avx2::load(k1 + j * 32);
#pragma GCC unroll 4
            for (int h = 0; h < 4; ++h) {
                const __m256i quad = avx2::broadcast4(q + h * groups * 64 + j * 4);
                Dot::add(isum[h][0], x, quad);
                Dot::add(isum[h][1], y, quad);
            }
        }
        const __m256 s0 = _mm256_load_ps(tile.scales + k * 256 + rank);
        const __m256 s1 = _mm256_load_ps(tile.scales + k * 256 + rank + 8);
#pragma GCC unroll 4
        for (int h = 0; h < 4; ++h) {
            avx2::add_group(acc + 2 * h, isum[h][0], isum[h][1], s0, s1,
                            queries.scales[item + h * groups]);
        }
        if (k % 8 == 7 || k + 1 == groups) {  // a segment of 512 ends
#pragma GCC unroll 8
            for (int i = 0; i < 8; ++i) {
                _mm256_store_ps(tot[i],
                                _mm256_add_ps(_mm256_load_ps(tot[i]), _mm256_load_ps(acc[i])));
                _mm256_store_ps(acc[i], avx2::opaque_zero());
            }
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
        _mm256_store_ps(out + i / 2 * 256 + rank + i % 2 * 8,
                        _mm256_mul_ps(_mm256_load_ps(tot[i]), scale));
    }
}

template <typename Dot>
void scores(const KeyTile& tile,
            const PairQueries& queries,
            std::int64_t first,
            std::int64_t n,
            float scale,
            float* out,
            const NextRows& next) {
    const __m256 factor = _mm256_set1_ps(scale);
    const std::int64_t n_parts = (tile.n + 15) / 16 * (n / kPairBatch);
    std::int64_t part = 0;
    for (std::int64_t rank = 0; rank < tile.n; rank += 16) {
        for (std::int64_t pair = 0; pair < n; pair += kPairBatch) {
            scores_4x16<Dot>(tile, queries, first + pair, rank, factor, out + pair * 256);
            avx2::prefetch_part(next, part++, n_parts);
        }
    }
}

/// 4 pairs x 16 columns (vectors `vector` and the next of a column group).
template <typename Dot>
void values_4x16(const KeyTile& tile,
                 std::int64_t group,
                 std::int64_t vector,
                 const std::uint8_t* q,
                 const float* s,
                 float* z,
                 std::int64_t z_stride) {
    const std::int64_t pair_bytes = tile.latent_groups * 256;
    alignas(32) float f[8][8];
#pragma GCC unroll 8
    for (auto& x : f) {
        _mm256_store_ps(x, avx2::opaque_zero());
    }
    for (std::int64_t n = 0; n * 64 < tile.n; ++n) {
        asm volatile("" ::: "memory");
        const std::int8_t* v = tile.values + (n * tile.latent_groups + group) * 4096 + vector * 32;
        const std::uint8_t* factor = q + (group * 4 + n) * 64;
        __m256i acc[4][2];
#pragma GCC unroll 4
        for (auto& a : acc) {
            a[0] = _mm256_setzero_si256();
            a[1] = a[0];
        }
        const auto add_quad = [&](int quad) __attribute__((always_inline)) {
            const __m256i x = avx2::load(v + quad * 256);
            const __m256i y = avx2::load(v + quad * 256 + 32);
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                const __m256i four =
                    avx2::broadcast4(factor + i * pair_bytes + avx2::quad_offset(quad));
                Dot::add(acc[i][0], four, x);
                Dot::add(acc[i][1], four, y);
            }
        };
        const auto n_quads = static_cast<int>(avx2::quads_from(tile.n, n * 64));
        if (n_quads == 16) {
#pragma GCC unroll 16
            for (int quad = 0; quad < 16; ++quad) {
                add_quad(quad);
            }
        } else {
            for (int quad = 0; quad < n_quads; ++quad) {
                add_quad(quad);
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            avx2::add_values(f + 2 * i, acc[i][0], acc[i][1],
                             s[(i * tile.latent_groups + group) * 4 + n]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
        _mm256_store_ps(z + i / 2 * z_stride + group * 64 + (vector + i % 2) * 8,
                        _mm256_load_ps(f[i]));
    }
}

template <typename Dot>
void values(const KeyTile& tile,
            const std::uint8_t* q,
            const float* s,
            std::int64_t n,
            float* z,
            std::int64_t z_stride) {
    for (std::int64_t group = 0; group < tile.latent_groups; ++group) {
        for (std::int64_t pair = 0; pair < n; pair += kPairBatch) {
            for (std::int64_t vector = 0; vector < 8; vector += 2) {
                values_4x16<Dot>(tile, group, vector, q + pair * tile.latent_groups * 256,
                                 s + pair * tile.latent_groups * 4, z + pair * z_stride, z_stride);
            }
        }
    }
}

/// The table: scores and values by `Dot`, everything else as AVX2 does it.
template <typename Dot>
inline constexpr AttentionKernels kKernels = {
    1,          build_tile,      scores<Dot>,       softmax_avx2, factors_avx2,     values<Dot>,
    merge_avx2, column_sum_avx2, index_scores_avx2, dot32_avx2,   multiply_add_avx2};

}  // namespace terrace::cpu::vnni256
