// Integer attention with AVX-512-VNNI: key tiles, scores, softmax, factors, values, merge.
// Only intrinsics and internal linkage here: an inline function of the standard library compiled
// with these flags could be picked by the linker for a processor that lacks them.
#include <immintrin.h>

#include "engine/cpu/attention/avx512_common.h"
#include "engine/cpu/attention/kernels.h"
#include "engine/cpu/attention/kernels_avx512.h"
#include "engine/cpu/float_math_avx512.h"

namespace terrace::cpu {

namespace {

using avx512::dot_u8_s8;

/// Transposes 16 x 16 numbers of 32 bits in place.
inline __attribute__((always_inline)) void transpose16(__m512i* r) {
    __m512i t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

/// Keys of 16 ranks: [groups * 16 quads][16 ranks][4] of value + 128. Whole lines are loaded: a
/// version that puts 16-byte loads straight into their lanes needs fewer shuffles and waits longer
/// for rows that are not in the first-level cache.
void build_keys(const std::int8_t* const* rows, std::int64_t groups, std::uint8_t* out) {
    const __m512i flip = _mm512_set1_epi8(-128);
    for (std::int64_t k = 0; k < groups; ++k) {
        __m512i r[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
            r[i] = _mm512_xor_si512(_mm512_loadu_si512(rows[i] + k * 64), flip);
        }
        transpose16(r);
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
            _mm512_store_si512(out + (k * 16 + i) * 64, r[i]);
        }
    }
}

/// Values of 64 ranks: [latent groups][16 quads of ranks][4][16 columns][4 ranks]. The column of
/// vector m, lane 4L + j is 16L + 4m + j; `merge` undoes that once.
void build_values(const std::int8_t* const* rows,
                  std::int64_t n_quads,
                  std::int64_t latent_groups,
                  std::int8_t* out) {
    for (std::int64_t quad = 0; quad < n_quads; ++quad) {
        for (std::int64_t g = 0; g < latent_groups; ++g) {
            const __m512i a = _mm512_loadu_si512(rows[quad * 4] + g * 64);
            const __m512i b = _mm512_loadu_si512(rows[quad * 4 + 1] + g * 64);
            const __m512i c = _mm512_loadu_si512(rows[quad * 4 + 2] + g * 64);
            const __m512i d = _mm512_loadu_si512(rows[quad * 4 + 3] + g * 64);
            const __m512i ab_low = _mm512_unpacklo_epi8(a, b);
            const __m512i ab_high = _mm512_unpackhi_epi8(a, b);
            const __m512i cd_low = _mm512_unpacklo_epi8(c, d);
            const __m512i cd_high = _mm512_unpackhi_epi8(c, d);
            std::int8_t* o = out + g * 4096 + quad * 256;
            _mm512_store_si512(o, _mm512_unpacklo_epi16(ab_low, cd_low));
            _mm512_store_si512(o + 64, _mm512_unpackhi_epi16(ab_low, cd_low));
            _mm512_store_si512(o + 128, _mm512_unpacklo_epi16(ab_high, cd_high));
            _mm512_store_si512(o + 192, _mm512_unpackhi_epi16(ab_high, cd_high));
        }
    }
}

/// Quads of ranks in the 64 ranks from `first` on.
inline std::int64_t quads_from(std::int64_t n, std::int64_t first) {
    const std::int64_t quads = (n - first + 3) / 4;
    return quads < 16 ? quads : 16;
}

void build_tile(const std::int8_t* const* rows, const KeyTile& tile) {
    for (std::int64_t first = 0; first < tile.n; first += 16) {
        build_keys(rows + first, tile.groups, tile.keys + first * tile.groups * 64);
    }
    for (std::int64_t first = 0; first < tile.n; first += 64) {
        build_values(rows + first, quads_from(tile.n, first), tile.latent_groups,
                     tile.values + first * tile.latent_groups * 64);
    }
}

/// acc += isum * (key scales * query scale), for 16 ranks of one pair.
inline __attribute__((always_inline)) void add_group(float* acc,
                                                     __m512i isum,
                                                     __m512 key_scale,
                                                     float query_scale) {
    const __m512 c = _mm512_mul_ps(key_scale, _mm512_set1_ps(query_scale));
    _mm512_store_ps(acc, _mm512_fmadd_ps(_mm512_cvtepi32_ps(isum), c, _mm512_load_ps(acc)));
}

/// One group of 64 numbers of 4 pairs with 16 * kTiles ranks.
template <int kTiles>
inline __attribute__((always_inline)) void score_group(const KeyTile& tile,
                                                       const PairQueries& queries,
                                                       std::int64_t item,
                                                       std::int64_t k,
                                                       std::int64_t rank,
                                                       float (*acc)[16]) {
    const std::int64_t groups = tile.groups;
    const std::uint8_t* keys = tile.keys + (rank * groups + k * 16) * 64;
    const std::int8_t* q = queries.q + item * 64;
    __m512i isum[4][kTiles];
#pragma GCC unroll 4
    for (int h = 0; h < 4; ++h) {
#pragma GCC unroll 2
        for (int i = 0; i < kTiles; ++i) {
            isum[h][i] = _mm512_set1_epi32(queries.offsets[item + h * groups]);
        }
    }
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j) {
        __m512i x[kTiles];
#pragma GCC unroll 2
        for (int i = 0; i < kTiles; ++i) {
            x[i] = _mm512_load_si512(keys + i * groups * 1024 + j * 64);
        }
#pragma GCC unroll 4
        for (int h = 0; h < 4; ++h) {
            const __m512i quad = avx512::broadcast4(q + h * groups * 64 + j * 4);
#pragma GCC unroll 2
            for (int i = 0; i < kTiles; ++i) {
                dot_u8_s8(isum[h][i], x[i], quad);
            }
        }
    }
#pragma GCC unroll 4
    for (int h = 0; h < 4; ++h) {
#pragma GCC unroll 2
        for (int i = 0; i < kTiles; ++i) {
            add_group(acc[h * kTiles + i], isum[h][i],
                      _mm512_load_ps(tile.scales + k * 256 + rank + i * 16),
                      queries.scales[item + h * groups]);
        }
    }
}

/// Row dots of 4 pairs with 16 * kTiles ranks. Float accumulators live in L1: gcc would spill the
/// integer ones otherwise.
template <int kTiles>
void score_pairs(const KeyTile& tile,
                 const PairQueries& queries,
                 std::int64_t pair,
                 std::int64_t rank,
                 __m512 scale,
                 float* out) {
    alignas(64) float tot[4 * kTiles][16];
    alignas(64) float acc[4 * kTiles][16];
    const __m512 zero = avx512::opaque_zero();
#pragma GCC unroll 8
    for (auto& t : tot) {
        _mm512_store_ps(t, zero);
    }
    for (std::int64_t segment = 0; segment < tile.groups; segment += 8) {
#pragma GCC unroll 8
        for (auto& a : acc) {
            _mm512_store_ps(a, zero);
        }
        const std::int64_t end = segment + 8 < tile.groups ? segment + 8 : tile.groups;
        for (std::int64_t k = segment; k < end; ++k) {
            asm volatile("" ::: "memory");
            score_group<kTiles>(tile, queries, pair * tile.groups + k, k, rank, acc);
        }
#pragma GCC unroll 8
        for (int i = 0; i < 4 * kTiles; ++i) {
            _mm512_store_ps(tot[i], _mm512_add_ps(_mm512_load_ps(tot[i]), _mm512_load_ps(acc[i])));
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < 4 * kTiles; ++i) {
        _mm512_store_ps(out + i / kTiles * 256 + rank + i % kTiles * 16,
                        _mm512_mul_ps(_mm512_load_ps(tot[i]), scale));
    }
}

/// Asks for the rows of the next block whose turn it is: the n-th of n_parts pieces.
void prefetch_part(const NextRows& next, std::int64_t part, std::int64_t n_parts) {
    for (std::int64_t i = next.n * part / n_parts; i < next.n * (part + 1) / n_parts; ++i) {
        for (std::int64_t line = 0; line < next.row_bytes; line += 64) {
            _mm_prefetch(next.rows[i] + line, _MM_HINT_T1);
        }
        _mm_prefetch(reinterpret_cast<const char*>(next.scales[i]), _MM_HINT_T1);
    }
}

void scores(const KeyTile& tile,
            const PairQueries& queries,
            std::int64_t first,
            std::int64_t n,
            float scale,
            float* out,
            const NextRows& next) {
    const __m512 factor = _mm512_set1_ps(scale);
    const std::int64_t n_parts = (tile.n + 31) / 32 * (n / kPairBatch);
    std::int64_t part = 0;
    for (std::int64_t rank = 0; rank < tile.n; rank += 32) {
        for (std::int64_t pair = 0; pair < n; pair += kPairBatch) {
            if (rank + 16 < tile.n) {
                score_pairs<2>(tile, queries, first + pair, rank, factor, out + pair * 256);
            } else {
                score_pairs<1>(tile, queries, first + pair, rank, factor, out + pair * 256);
            }
            prefetch_part(next, part++, n_parts);
        }
    }
}

/// Scores i .. i + 15 of n; those that do not exist are `otherwise`.
inline __attribute__((always_inline)) __m512 scores_at(const float* scores,
                                                       std::int64_t i,
                                                       std::int64_t n,
                                                       __m512 otherwise) {
    const __m512 v = _mm512_load_ps(scores + i);
    return i + 16 <= n ? v : _mm512_mask_blend_ps(avx512::mask_of(n - i), otherwise, v);
}

/// NaN and infinite scores become +0.
__attribute__((noinline)) void clean_scores(float* scores, std::int64_t n) {
    for (std::int64_t i = 0; i < n; i += 16) {
        _mm512_store_ps(scores + i, avx512::without_faults(_mm512_load_ps(scores + i)));
    }
}

BlockSum softmax(float* scores, std::int64_t n, std::int64_t padded, float* p) {
    const __m512 low = _mm512_set1_ps(-__builtin_inff());
    BlockSum result;
    __m512 maximum = low;
    __m512i worst = _mm512_setzero_si512();
    for (std::int64_t i = 0; i < n; i += 16) {
        const __m512 v = scores_at(scores, i, n, _mm512_set1_ps(scores[0]));
        worst = _mm512_max_epi32(worst, avx512::magnitude_bits(v));
        maximum = _mm512_max_ps(maximum, v);
    }
    if (_mm512_reduce_max_epi32(worst) >= avx512::kNotFinite) {
        result.fault = true;
        clean_scores(scores, n);
        maximum = low;
        for (std::int64_t i = 0; i < n; i += 16) {
            maximum = _mm512_max_ps(maximum, scores_at(scores, i, n, low));
        }
    }
    result.maximum = _mm512_reduce_max_ps(maximum);
    const __m512 top = _mm512_set1_ps(result.maximum);
    __m512 sum0 = _mm512_setzero_ps();
    __m512 sum1 = sum0;
    std::int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        const __m512 a = avx512::exp32(_mm512_sub_ps(_mm512_load_ps(scores + i), top));
        const __m512 b = avx512::exp32(_mm512_sub_ps(_mm512_load_ps(scores + i + 16), top));
        _mm512_store_ps(p + i, a);
        _mm512_store_ps(p + i + 16, b);
        sum0 = _mm512_add_ps(sum0, a);
        sum1 = _mm512_add_ps(sum1, b);
    }
    if (i < n) {
        // exp of minus infinity is +0.
        const __m512 a = avx512::exp32(_mm512_sub_ps(scores_at(scores, i, n, low), top));
        const __m512 b = avx512::exp32(_mm512_sub_ps(scores_at(scores, i + 16, n, low), top));
        _mm512_store_ps(p + i, a);
        _mm512_store_ps(p + i + 16, b);
        sum0 = _mm512_add_ps(sum0, a);
        sum1 = _mm512_add_ps(sum1, b);
        i += 32;
    }
    for (; i < padded; i += 16) {
        _mm512_store_ps(p + i, _mm512_setzero_ps());
    }
    result.sum = avx512::reduce32(sum0, sum1);
    return result;
}

/// Quantised bytes of 64 products p * s with the factor r. Dword 4L + j holds ranks 16j + 4L .. + 3
/// (the order that two packs leave).
inline __attribute__((always_inline)) __m512i pack_products(const __m512* p,
                                                            const float* s,
                                                            __m512 r) {
    __m512i v[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        const __m512 product = _mm512_mul_ps(p[i], _mm512_load_ps(s + i * 16));
        v[i] = _mm512_cvtps_epi32(_mm512_mul_ps(product, r));
    }
    return _mm512_packus_epi16(_mm512_packs_epi32(v[0], v[1]), _mm512_packs_epi32(v[2], v[3]));
}

void factors(const KeyTile& tile, const float* p, std::uint8_t* q, float* s) {
    const std::int64_t n64 = (tile.n + 63) / 64;
    // Four groups of columns at a time: one division serves their 16 groups of 64 ranks.
    for (std::int64_t first = 0; first < tile.latent_groups; first += 4) {
        const std::int64_t left = tile.latent_groups - first;
        const std::int64_t count = left < 4 ? left : 4;
        __m512i largest[16];
#pragma GCC unroll 16
        for (auto& v : largest) {
            v = _mm512_castps_si512(avx512::opaque_zero());
        }
        for (std::int64_t n = 0; n < n64; ++n) {
            const float* ranks = p + n * 64;
            for (std::int64_t g = 0; g < count; ++g) {
                const float* scale = tile.scales + (first + g) * 256 + n * 64;
                __m512 product[4];
#pragma GCC unroll 4
                for (int j = 0; j < 4; ++j) {
                    product[j] = _mm512_mul_ps(_mm512_load_ps(ranks + j * 16),
                                               _mm512_load_ps(scale + j * 16));
                }
                largest[g * 4 + n] = _mm512_castps_si512(_mm512_max_ps(
                    _mm512_max_ps(product[0], product[1]), _mm512_max_ps(product[2], product[3])));
            }
        }
        alignas(64) float r[16];
        alignas(64) float scale_out[16];
        avx512::group_scales(avx512::horizontal_max16(largest), r, scale_out);
        for (std::int64_t n = 0; n < n64; ++n) {
            __m512 ranks[4];
#pragma GCC unroll 4
            for (int j = 0; j < 4; ++j) {
                ranks[j] = _mm512_load_ps(p + n * 64 + j * 16);
            }
            for (std::int64_t g = 0; g < count; ++g) {
                const std::int64_t at = (first + g) * 4 + n;
                const std::int64_t lane = n * 4 + g;  // tree_lane(g * 4 + n)
                _mm512_store_si512(q + at * 64,
                                   pack_products(ranks, tile.scales + (first + g) * 256 + n * 64,
                                                 _mm512_set1_ps(r[lane])));
                s[at] = scale_out[lane];
            }
        }
    }
}

/// Four pairs' factors of four ranks times 64 columns.
inline __attribute__((always_inline)) void value_quad(const std::int8_t* v,
                                                      const std::uint8_t* factor,
                                                      std::int64_t pair_bytes,
                                                      __m512i* acc) {
    __m512i w0 = _mm512_load_si512(v);
    __m512i w1 = _mm512_load_si512(v + 64);
    __m512i w2 = _mm512_load_si512(v + 128);
    __m512i w3 = _mm512_load_si512(v + 192);
    // Without this gcc loads the four vectors again for every pair.
    asm("" : "+v"(w0), "+v"(w1), "+v"(w2), "+v"(w3));
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        const __m512i four = avx512::broadcast4(factor + i * pair_bytes);
        dot_u8_s8(acc[i * 4], four, w0);
        dot_u8_s8(acc[i * 4 + 1], four, w1);
        dot_u8_s8(acc[i * 4 + 2], four, w2);
        dot_u8_s8(acc[i * 4 + 3], four, w3);
    }
}

/// 4 pairs x 64 columns of one block. Float accumulators in L1, as in score_pairs.
void values_4x64(const KeyTile& tile,
                 std::int64_t group,
                 const std::uint8_t* q,
                 const float* s,
                 float* z,
                 std::int64_t z_stride) {
    const std::int64_t pair_bytes = tile.latent_groups * 256;
    alignas(64) float f[16][16];
    const __m512 zero = avx512::opaque_zero();
#pragma GCC unroll 16
    for (auto& x : f) {
        _mm512_store_ps(x, zero);
    }
    for (std::int64_t n = 0; n * 64 < tile.n; ++n) {
        asm volatile("" ::: "memory");
        const std::int8_t* v = tile.values + (n * tile.latent_groups + group) * 4096;
        const std::uint8_t* factor = q + (group * 4 + n) * 64;
        __m512i acc[16];
#pragma GCC unroll 16
        for (auto& a : acc) {
            a = _mm512_setzero_si512();
        }
        const auto n_quads = static_cast<int>(quads_from(tile.n, n * 64));
        if (n_quads == 16) {
#pragma GCC unroll 16
            for (int quad = 0; quad < 16; ++quad) {
                value_quad(v + quad * 256, factor + avx512::quad_offset(quad), pair_bytes, acc);
            }
        } else {
            for (int quad = 0; quad < n_quads; ++quad) {
                value_quad(v + quad * 256, factor + avx512::quad_offset(quad), pair_bytes, acc);
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const __m512 scale = _mm512_set1_ps(s[(i * tile.latent_groups + group) * 4 + n]);
#pragma GCC unroll 4
            for (int m = 0; m < 4; ++m) {
                float* at = f[i * 4 + m];
                _mm512_store_ps(at, _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[i * 4 + m]), scale,
                                                    _mm512_load_ps(at)));
            }
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
        _mm512_store_ps(z + i / 4 * z_stride + group * 64 + i % 4 * 16, _mm512_load_ps(f[i]));
    }
}

void values(const KeyTile& tile,
            const std::uint8_t* q,
            const float* s,
            std::int64_t n,
            float* z,
            std::int64_t z_stride) {
    for (std::int64_t group = 0; group < tile.latent_groups; ++group) {
        for (std::int64_t pair = 0; pair < n; pair += kPairBatch) {
            values_4x64(tile, group, q + pair * tile.latent_groups * 256,
                        s + pair * tile.latent_groups * 4, z + pair * z_stride, z_stride);
        }
    }
}

void merge(const float* z,
           std::int64_t block_stride,
           const float* factors,
           std::int64_t n_blocks,
           float sum,
           std::int64_t latent,
           float* out) {
    const __m512 divisor = _mm512_set1_ps(sum);
    for (std::int64_t column = 0; column < latent; column += 64) {
        __m512 a[4];
#pragma GCC unroll 4
        for (auto& x : a) {
            x = _mm512_setzero_ps();
        }
        for (std::int64_t b = 0; b < n_blocks; ++b) {
            const __m512 factor = _mm512_set1_ps(factors[b]);
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                a[i] = _mm512_fmadd_ps(_mm512_load_ps(z + b * block_stride + column + i * 16),
                                       factor, a[i]);
            }
        }
#pragma GCC unroll 4
        for (auto& x : a) {
            x = _mm512_div_ps(x, divisor);
        }
        // A 4x4 transpose of 128-bit lanes: vector L of the result is columns 16L .. 16L + 15.
        const __m512 p = _mm512_shuffle_f32x4(a[0], a[1], 0x44);
        const __m512 q = _mm512_shuffle_f32x4(a[0], a[1], 0xEE);
        const __m512 r = _mm512_shuffle_f32x4(a[2], a[3], 0x44);
        const __m512 s = _mm512_shuffle_f32x4(a[2], a[3], 0xEE);
        a[0] = _mm512_shuffle_f32x4(p, r, 0x88);
        a[1] = _mm512_shuffle_f32x4(p, r, 0xDD);
        a[2] = _mm512_shuffle_f32x4(q, s, 0x88);
        a[3] = _mm512_shuffle_f32x4(q, s, 0xDD);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            avx512::store_part(out + column + i * 16, latent - column - i * 16, a[i]);
        }
    }
}

float dot(const float* x, const float* w, std::int64_t n) {
    return avx512::dot32(x, w, n);
}

void multiply_add(float* z, const float* x, float factor, std::int64_t n) {
    const __m512 f = _mm512_set1_ps(factor);
    for (std::int64_t i = 0; i < n; i += 16) {
        const __m512 sum =
            _mm512_fmadd_ps(avx512::load_part(x + i, n - i), f, avx512::load_part(z + i, n - i));
        avx512::store_part(z + i, n - i, sum);
    }
}

constexpr AttentionKernels kKernels = {1,       build_tile,        scores,
                                       softmax, factors,           values,
                                       merge,   column_sum_avx512, index_scores_avx512,
                                       dot,     multiply_add};

}  // namespace

const AttentionKernels& attention_kernels_avx512() {
    return kKernels;
}

}  // namespace terrace::cpu
