// Integer attention with AVX2: the tiles hold keys in 16 bits for vpmaddwd (the form q + 128 would
// saturate vpmaddubsw), values in 8 bits for vpmaddubsw with unsigned factors. Only intrinsics and
// internal linkage here, as in attention_avx512.cpp.
#include <immintrin.h>

#include "engine/cpu/attention/attention_256.h"
#include "engine/cpu/attention/avx2_common.h"
#include "engine/cpu/attention/kernels.h"
#include "engine/cpu/attention/kernels_avx2.h"
#include "engine/cpu/float_math_avx2.h"

namespace terrace::cpu {

namespace {

/// Keys of 8 ranks: [groups * 32 dims pairs][8 ranks][2] in 16 bits.
void build_keys(const std::int8_t* const* rows, std::int64_t groups, std::int16_t* out) {
    for (std::int64_t c = 0; c < groups * 64; c += 16) {
        __m256i r[8];
        __m256i t[8];
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
            r[i] = _mm256_cvtepi8_epi16(
                _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[i] + c)));
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
            avx2::store(out + c * 8 + i * 16, _mm256_permute2x128_si256(r[i], r[i + 4], 0x20));
            avx2::store(out + c * 8 + (i + 4) * 16,
                        _mm256_permute2x128_si256(r[i], r[i + 4], 0x31));
        }
    }
}

void build_tile(const std::int8_t* const* rows, const KeyTile& tile) {
    auto* keys = reinterpret_cast<std::int16_t*>(tile.keys);
    for (std::int64_t first = 0; first < round_up(tile.n, 16); first += 8) {
        build_keys(rows + first, tile.groups, keys + first * tile.groups * 64);
    }
    for (std::int64_t first = 0; first < tile.n; first += 64) {
        avx2::build_values(rows + first, avx2::quads_from(tile.n, first), tile.latent_groups,
                           tile.values + first * tile.latent_groups * 64);
    }
}

/// x += a . q, y += b . q for one pair of dims. One block of assembly, because gcc hoists the
/// broadcasts and spills an accumulator otherwise.
inline __attribute__((always_inline)) void dot_wide(
    __m256i& x, __m256i& y, __m256i a, __m256i b, const std::int16_t* q) {
    __m256i t;
    __m256i u;
    asm("vpbroadcastd %6, %2\n\tvpmaddwd %2, %4, %3\n\tvpmaddwd %2, %5, %2\n\t"
        "vpaddd %3, %0, %0\n\tvpaddd %2, %1, %1"
        : "+x"(x), "+x"(y), "=&x"(t), "=&x"(u)
        : "x"(a), "x"(b), "m"(*reinterpret_cast<const std::int16_t(*)[2]>(q)));
}

/// Row dots of 4 pairs with 16 ranks.
void scores_4x16(const KeyTile& tile,
                 const PairQueries& queries,
                 std::int64_t pair,
                 std::int64_t rank,
                 __m256 scale,
                 float* out) {
    const std::int64_t groups = tile.groups;
    const auto* keys0 = reinterpret_cast<const std::int16_t*>(tile.keys) + rank * groups * 64;
    const std::int16_t* keys1 = keys0 + groups * 512;
    alignas(32) float tot[8][8];
    alignas(32) float acc[8][8];
    const __m256 zero_sum = avx2::opaque_zero();
#pragma GCC unroll 8
    for (auto& t : tot) {
        _mm256_store_ps(t, zero_sum);
    }
    for (std::int64_t segment = 0; segment < groups; segment += 8) {
#pragma GCC unroll 8
        for (auto& a : acc) {
            _mm256_store_ps(a, avx2::opaque_zero());
        }
        const std::int64_t end = segment + 8 < groups ? segment + 8 : groups;
        for (std::int64_t k = segment; k < end; ++k) {
            asm volatile("" ::: "memory");
            const __m256i zero = _mm256_setzero_si256();
            __m256i a0 = zero;
            __m256i a1 = zero;
            __m256i b0 = zero;
            __m256i b1 = zero;
            __m256i c0 = zero;
            __m256i c1 = zero;
            __m256i d0 = zero;
            __m256i d1 = zero;
            const std::int16_t* k0 = keys0 + k * 512;
            const std::int16_t* k1 = keys1 + k * 512;
            const std::int16_t* qa = queries.wide + (pair * groups + k) * 64;
            const std::int16_t* qb = qa + groups * 64;
            const std::int16_t* qc = qb + groups * 64;
            const std::int16_t* qd = qc + groups * 64;
#pragma GCC unroll 8
            for (int j = 0; j < 32; ++j) {
                __m256i x = avx2::load(k0 + j * 16);
                __m256i y = avx2::load(k1 + j * 16);
                asm("" : "+x"(x), "+x"(y));  // or gcc loads them again for each pair
                dot_wide(a0, a1, x, y, qa + j * 2);
                dot_wide(b0, b1, x, y, qb + j * 2);
                dot_wide(c0, c1, x, y, qc + j * 2);
                dot_wide(d0, d1, x, y, qd + j * 2);
            }
            const __m256 s0 = _mm256_load_ps(tile.scales + k * 256 + rank);
            const __m256 s1 = _mm256_load_ps(tile.scales + k * 256 + rank + 8);
            const float* query_scale = queries.scales + pair * groups + k;
            avx2::add_group(acc, a0, a1, s0, s1, query_scale[0]);
            avx2::add_group(acc + 2, b0, b1, s0, s1, query_scale[groups]);
            avx2::add_group(acc + 4, c0, c1, s0, s1, query_scale[groups * 2]);
            avx2::add_group(acc + 6, d0, d1, s0, s1, query_scale[groups * 3]);
        }
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
            _mm256_store_ps(tot[i], _mm256_add_ps(_mm256_load_ps(tot[i]), _mm256_load_ps(acc[i])));
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
        _mm256_store_ps(out + i / 2 * 256 + rank + i % 2 * 8,
                        _mm256_mul_ps(_mm256_load_ps(tot[i]), scale));
    }
}

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
            scores_4x16(tile, queries, first + pair, rank, factor, out + pair * 256);
            avx2::prefetch_part(next, part++, n_parts);
        }
    }
}

/// Scores i .. i + 7 of n; those that do not exist are `otherwise`.
inline __attribute__((always_inline)) __m256 scores_at(const float* scores,
                                                       std::int64_t i,
                                                       std::int64_t n,
                                                       __m256 otherwise) {
    const __m256 v = _mm256_load_ps(scores + i);
    return i + 8 <= n ? v
                      : _mm256_blendv_ps(otherwise, v, _mm256_castsi256_ps(avx2::mask_of(n - i)));
}

/// NaN and infinite scores become +0.
__attribute__((noinline)) void clean_scores(float* scores, std::int64_t n) {
    for (std::int64_t i = 0; i < n; i += 8) {
        _mm256_store_ps(scores + i, avx2::without_faults(_mm256_load_ps(scores + i)));
    }
}

/// The largest product of p and scale over 64 ranks, lane by lane.
inline __attribute__((always_inline)) __m256 largest_product(const float* p, const float* scale) {
    __m256 m[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
        m[i & 1] = _mm256_max_ps(
            m[i & 1], _mm256_mul_ps(_mm256_load_ps(p + i * 8), _mm256_load_ps(scale + i * 8)));
    }
    return _mm256_max_ps(m[0], m[1]);
}

/// 64 products p * scale * r as bytes. Dword order: see avx2::quad_offset.
inline __attribute__((always_inline)) void pack_products(const float* p,
                                                         const float* scale,
                                                         __m256 r,
                                                         std::uint8_t* q) {
#pragma GCC unroll 2
    for (int half = 0; half < 64; half += 32) {
        __m256i v[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const __m256 product = _mm256_mul_ps(_mm256_load_ps(p + half + i * 8),
                                                 _mm256_load_ps(scale + half + i * 8));
            v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(product, r));
        }
        avx2::store(q + half, _mm256_packus_epi16(_mm256_packs_epi32(v[0], v[1]),
                                                  _mm256_packs_epi32(v[2], v[3])));
    }
}

/// x += four factors . a, y += four factors . b. One block of assembly, as in dot_wide.
inline __attribute__((always_inline)) void dot_values(
    __m256i& x, __m256i& y, __m256i a, __m256i b, __m256i one, const std::uint8_t* factor) {
    __m256i t;
    __m256i u;
    asm("vpbroadcastd %7, %2\n\tvpmaddubsw %4, %2, %3\n\tvpmaddubsw %5, %2, %2\n\t"
        "vpmaddwd %6, %3, %3\n\tvpmaddwd %6, %2, %2\n\tvpaddd %3, %0, %0\n\tvpaddd %2, %1, %1"
        : "+x"(x), "+x"(y), "=&x"(t), "=&x"(u)
        : "x"(a), "x"(b), "x"(one), "m"(*reinterpret_cast<const std::uint8_t(*)[4]>(factor)));
}

/// 4 pairs x 16 columns (vectors `vector` and the next of a column group).
void values_4x16(const KeyTile& tile,
                 std::int64_t group,
                 std::int64_t vector,
                 const std::uint8_t* q,
                 const float* s,
                 float* z,
                 std::int64_t z_stride) {
    const __m256i one = _mm256_set1_epi16(1);
    const std::int64_t pair_bytes = tile.latent_groups * 256;
    const std::int64_t pair_scales = tile.latent_groups * 4;
    alignas(32) float f[8][8];
#pragma GCC unroll 8
    for (auto& x : f) {
        _mm256_store_ps(x, avx2::opaque_zero());
    }
    for (std::int64_t n = 0; n < (tile.n + 63) / 64; ++n) {
        asm volatile("" ::: "memory");
        const std::int8_t* v = tile.values + (n * tile.latent_groups + group) * 4096 + vector * 32;
        const std::uint8_t* factor = q + (group * 4 + n) * 64;
        const __m256i zero = _mm256_setzero_si256();
        __m256i a0 = zero;
        __m256i a1 = zero;
        __m256i b0 = zero;
        __m256i b1 = zero;
        __m256i c0 = zero;
        __m256i c1 = zero;
        __m256i d0 = zero;
        __m256i d1 = zero;
        const auto add_quad = [&](int quad) __attribute__((always_inline)) {
            __m256i x = avx2::load(v + quad * 256);
            __m256i y = avx2::load(v + quad * 256 + 32);
            asm("" : "+x"(x), "+x"(y));
            const std::uint8_t* four = factor + avx2::quad_offset(quad);
            dot_values(a0, a1, x, y, one, four);
            dot_values(b0, b1, x, y, one, four + pair_bytes);
            dot_values(c0, c1, x, y, one, four + pair_bytes * 2);
            dot_values(d0, d1, x, y, one, four + pair_bytes * 3);
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
        const float* scale = s + group * 4 + n;
        avx2::add_values(f, a0, a1, scale[0]);
        avx2::add_values(f + 2, b0, b1, scale[pair_scales]);
        avx2::add_values(f + 4, c0, c1, scale[pair_scales * 2]);
        avx2::add_values(f + 6, d0, d1, scale[pair_scales * 3]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
        _mm256_store_ps(z + i / 2 * z_stride + group * 64 + (vector + i % 2) * 8,
                        _mm256_load_ps(f[i]));
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
            for (std::int64_t vector = 0; vector < 8; vector += 2) {
                values_4x16(tile, group, vector, q + pair * tile.latent_groups * 256,
                            s + pair * tile.latent_groups * 4, z + pair * z_stride, z_stride);
            }
        }
    }
}

constexpr AttentionKernels kKernels = {2,
                                       build_tile,
                                       scores,
                                       softmax_avx2,
                                       factors_avx2,
                                       values,
                                       merge_avx2,
                                       column_sum_avx2,
                                       index_scores_avx2,
                                       dot32_avx2,
                                       multiply_add_avx2};

}  // namespace

BlockSum softmax_avx2(float* scores, std::int64_t n, std::int64_t padded, float* p) {
    const __m256 low = _mm256_set1_ps(-__builtin_inff());
    BlockSum result;
    __m256 maximum = low;
    __m256i worst = _mm256_setzero_si256();
    for (std::int64_t i = 0; i < n; i += 8) {
        const __m256 v = scores_at(scores, i, n, _mm256_set1_ps(scores[0]));
        worst = _mm256_max_epi32(worst, avx2::magnitude_bits(v));
        maximum = _mm256_max_ps(maximum, v);
    }
    if (avx2::horizontal_max(worst) >= avx2::kNotFinite) {
        result.fault = true;
        clean_scores(scores, n);
        maximum = low;
        for (std::int64_t i = 0; i < n; i += 8) {
            maximum = _mm256_max_ps(maximum, scores_at(scores, i, n, low));
        }
    }
    result.maximum = avx2::horizontal_max(maximum);
    const __m256 top = _mm256_set1_ps(result.maximum);
    __m256 sum[4];
#pragma GCC unroll 4
    for (auto& s : sum) {
        s = _mm256_setzero_ps();
    }
    std::int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
            const __m256 y = avx2::exp32(_mm256_sub_ps(_mm256_load_ps(scores + i + j * 8), top));
            _mm256_store_ps(p + i + j * 8, y);
            sum[j] = _mm256_add_ps(sum[j], y);
        }
    }
    for (; i < n; i += 32) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
            // exp of minus infinity is +0.
            const __m256 y = avx2::exp32(_mm256_sub_ps(scores_at(scores, i + j * 8, n, low), top));
            _mm256_store_ps(p + i + j * 8, y);
            sum[j] = _mm256_add_ps(sum[j], y);
        }
    }
    for (; i < padded; i += 8) {
        _mm256_store_ps(p + i, _mm256_setzero_ps());
    }
    result.sum = avx2::reduce32(sum[0], sum[1], sum[2], sum[3]);
    return result;
}

void factors_avx2(const KeyTile& tile, const float* p, std::uint8_t* q, float* s) {
    const std::int64_t n64 = (tile.n + 63) / 64;
    // Two groups of columns at a time: one division serves their 8 groups of 64 ranks.
    for (std::int64_t first = 0; first < tile.latent_groups; first += 2) {
        const std::int64_t count = first + 1 < tile.latent_groups ? 2 : 1;
        __m256 largest[8];
#pragma GCC unroll 8
        for (auto& v : largest) {
            v = avx2::opaque_zero();
        }
        for (std::int64_t g = 0; g < count; ++g) {
            for (std::int64_t n = 0; n < n64; ++n) {
                largest[g * 4 + n] =
                    largest_product(p + n * 64, tile.scales + (first + g) * 256 + n * 64);
            }
        }
        const __m256 a = avx2::horizontal_max8(largest);
        const __m256 top = _mm256_set1_ps(127.0f);
        const __m256 kept = _mm256_cmp_ps(a, _mm256_set1_ps(0x1p-60f), _CMP_GE_OQ);
        alignas(32) float r[8];
        alignas(32) float scale_out[8];
        _mm256_store_ps(r, _mm256_and_ps(kept, _mm256_div_ps(top, a)));
        _mm256_store_ps(scale_out, _mm256_and_ps(kept, _mm256_div_ps(a, top)));
        for (std::int64_t g = 0; g < count; ++g) {
            for (std::int64_t n = 0; n < n64; ++n) {
                const std::int64_t at = (first + g) * 4 + n;
                pack_products(p + n * 64, tile.scales + (first + g) * 256 + n * 64,
                              _mm256_set1_ps(r[g * 4 + n]), q + at * 64);
                s[at] = scale_out[g * 4 + n];
            }
        }
    }
}

void merge_avx2(const float* z,
                std::int64_t block_stride,
                const float* factors,
                std::int64_t n_blocks,
                float sum,
                std::int64_t latent,
                float* out) {
    const __m256 divisor = _mm256_set1_ps(sum);
    for (std::int64_t column = 0; column < latent; column += 32) {
        __m256 a[4];
#pragma GCC unroll 4
        for (auto& x : a) {
            x = _mm256_setzero_ps();
        }
        for (std::int64_t b = 0; b < n_blocks; ++b) {
            const __m256 factor = _mm256_set1_ps(factors[b]);
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                a[i] = _mm256_fmadd_ps(_mm256_load_ps(z + b * block_stride + column + i * 8),
                                       factor, a[i]);
            }
        }
#pragma GCC unroll 4
        for (auto& x : a) {
            x = _mm256_div_ps(x, divisor);
        }
        const __m256 true_order[4] = {
            _mm256_permute2f128_ps(a[0], a[1], 0x20), _mm256_permute2f128_ps(a[2], a[3], 0x20),
            _mm256_permute2f128_ps(a[0], a[1], 0x31), _mm256_permute2f128_ps(a[2], a[3], 0x31)};
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            if (column + i * 8 + 8 <= latent) {
                _mm256_storeu_ps(out + column + i * 8, true_order[i]);
                continue;
            }
            avx2::store_part(out + column + i * 8, latent - column - i * 8, true_order[i]);
        }
    }
}

float dot32_avx2(const float* x, const float* w, std::int64_t n) {
    return avx2::dot32(x, w, n);
}

void multiply_add_avx2(float* z, const float* x, float factor, std::int64_t n) {
    const __m256 f = _mm256_set1_ps(factor);
    std::int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        _mm256_storeu_ps(z + i, _mm256_fmadd_ps(_mm256_loadu_ps(x + i), f, _mm256_loadu_ps(z + i)));
    }
    if (i < n) {
        const __m256 sum =
            _mm256_fmadd_ps(avx2::load_part(x + i, n - i), f, avx2::load_part(z + i, n - i));
        avx2::store_part(z + i, n - i, sum);
    }
}

const AttentionKernels& attention_kernels_avx2() {
    return kKernels;
}

}  // namespace terrace::cpu
