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

/// Keys of 16 ranks: [groups * 16 quads][16 ranks][4] of value + 128. Loads of 16 bytes go straight
/// to their lane, which saves half of the transpose.
void build_keys(const std::int8_t* const* rows, std::int64_t groups, std::uint8_t* out) {
    const __m512i flip = _mm512_set1_epi8(-128);
    for (std::int64_t c = 0; c < groups * 4; ++c) {
        __m512i v[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const auto part = [&](int rank) {
                return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[rank] + c * 16));
            };
            v[i] = _mm512_castsi128_si512(part(i));
            v[i] = _mm512_mask_broadcast_i32x4(v[i], 0x00f0, part(4 + i));
            v[i] = _mm512_mask_broadcast_i32x4(v[i], 0x0f00, part(8 + i));
            v[i] = _mm512_mask_broadcast_i32x4(v[i], 0xf000, part(12 + i));
            v[i] = _mm512_xor_si512(v[i], flip);
        }
        const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]);
        const __m512i b = _mm512_unpackhi_epi32(v[0], v[1]);
        const __m512i x = _mm512_unpacklo_epi32(v[2], v[3]);
        const __m512i y = _mm512_unpackhi_epi32(v[2], v[3]);
        std::uint8_t* o = out + c * 256;
        _mm512_store_si512(o, _mm512_unpacklo_epi64(a, x));
        _mm512_store_si512(o + 64, _mm512_unpackhi_epi64(a, x));
        _mm512_store_si512(o + 128, _mm512_unpacklo_epi64(b, y));
        _mm512_store_si512(o + 192, _mm512_unpackhi_epi64(b, y));
    }
}

/// Values of 64 ranks: [latent groups][16 quads of ranks][4][16 columns][4 ranks]. The column of
/// vector m, lane 4L + j is 16L + 4m + j; `merge` undoes that once.
void build_values(const std::int8_t* const* rows, std::int64_t latent_groups, std::int8_t* out) {
    for (std::int64_t quad = 0; quad < 16; ++quad) {
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

void build_tile(const std::int8_t* const* rows, const KeyTile& tile) {
    for (std::int64_t first = 0; first < round_up(tile.n, 32); first += 16) {
        build_keys(rows + first, tile.groups, tile.keys + first * tile.groups * 64);
    }
    for (std::int64_t first = 0; first < tile.n; first += 64) {
        build_values(rows + first, tile.latent_groups,
                     tile.values + first * tile.latent_groups * 64);
    }
}

/// acc += isum * (key scales * query scale), for 32 ranks of one pair.
inline __attribute__((always_inline)) void add_group(
    float (*acc)[16], __m512i x, __m512i y, __m512 key_scale_x, __m512 key_scale_y, float scale) {
    const __m512 query_scale = _mm512_set1_ps(scale);
    _mm512_store_ps(acc[0],
                    _mm512_fmadd_ps(_mm512_cvtepi32_ps(x), _mm512_mul_ps(key_scale_x, query_scale),
                                    _mm512_load_ps(acc[0])));
    _mm512_store_ps(acc[1],
                    _mm512_fmadd_ps(_mm512_cvtepi32_ps(y), _mm512_mul_ps(key_scale_y, query_scale),
                                    _mm512_load_ps(acc[1])));
}

/// Row dots of 4 pairs with 32 ranks. Float accumulators live in L1: gcc would spill the integer
/// ones otherwise.
void scores_4x32(const KeyTile& tile,
                 const PairQueries& queries,
                 std::int64_t pair,
                 std::int64_t rank,
                 __m512 scale,
                 float* out) {
    const std::int64_t groups = tile.groups;
    const std::uint8_t* keys0 = tile.keys + rank * groups * 64;
    const std::uint8_t* keys1 = keys0 + groups * 1024;
    const std::int8_t* q = queries.q + pair * groups * 64;
    alignas(64) float tot[8][16] = {};
    alignas(64) float acc[8][16];
    for (std::int64_t segment = 0; segment < groups; segment += 8) {
        for (auto& a : acc) {
            _mm512_store_ps(a, _mm512_setzero_ps());
        }
        const std::int64_t end = segment + 8 < groups ? segment + 8 : groups;
        for (std::int64_t k = segment; k < end; ++k) {
            asm volatile("" ::: "memory");
            const std::int32_t* offset = queries.offsets + pair * groups + k;
            __m512i a0 = _mm512_set1_epi32(offset[0]);
            __m512i b0 = _mm512_set1_epi32(offset[groups]);
            __m512i c0 = _mm512_set1_epi32(offset[groups * 2]);
            __m512i d0 = _mm512_set1_epi32(offset[groups * 3]);
            __m512i a1 = a0;
            __m512i b1 = b0;
            __m512i c1 = c0;
            __m512i d1 = d0;
            const std::uint8_t* k0 = keys0 + k * 1024;
            const std::uint8_t* k1 = keys1 + k * 1024;
            const std::int8_t* qa = q + k * 64;
            const std::int8_t* qb = qa + groups * 64;
            const std::int8_t* qc = qb + groups * 64;
            const std::int8_t* qd = qc + groups * 64;
#pragma GCC unroll 16
            for (int j = 0; j < 16; ++j) {
                const __m512i x = _mm512_load_si512(k0 + j * 64);
                const __m512i y = _mm512_load_si512(k1 + j * 64);
                __m512i quad = avx512::broadcast4(qa + j * 4);
                dot_u8_s8(a0, x, quad);
                dot_u8_s8(a1, y, quad);
                quad = avx512::broadcast4(qb + j * 4);
                dot_u8_s8(b0, x, quad);
                dot_u8_s8(b1, y, quad);
                quad = avx512::broadcast4(qc + j * 4);
                dot_u8_s8(c0, x, quad);
                dot_u8_s8(c1, y, quad);
                quad = avx512::broadcast4(qd + j * 4);
                dot_u8_s8(d0, x, quad);
                dot_u8_s8(d1, y, quad);
            }
            const __m512 s0 = _mm512_load_ps(tile.scales + k * 256 + rank);
            const __m512 s1 = _mm512_load_ps(tile.scales + k * 256 + rank + 16);
            const float* query_scale = queries.scales + pair * groups + k;
            add_group(acc, a0, a1, s0, s1, query_scale[0]);
            add_group(acc + 2, b0, b1, s0, s1, query_scale[groups]);
            add_group(acc + 4, c0, c1, s0, s1, query_scale[groups * 2]);
            add_group(acc + 6, d0, d1, s0, s1, query_scale[groups * 3]);
        }
        for (int i = 0; i < 8; ++i) {
            _mm512_store_ps(tot[i], _mm512_add_ps(_mm512_load_ps(tot[i]), _mm512_load_ps(acc[i])));
        }
    }
    for (int i = 0; i < 8; ++i) {
        _mm512_store_ps(out + i / 2 * 256 + rank + i % 2 * 16,
                        _mm512_mul_ps(_mm512_load_ps(tot[i]), scale));
    }
}

void scores(const KeyTile& tile,
            const PairQueries& queries,
            std::int64_t first,
            std::int64_t n,
            float scale,
            float* out) {
    const __m512 factor = _mm512_set1_ps(scale);
    for (std::int64_t rank = 0; rank < tile.n; rank += 32) {
        for (std::int64_t pair = 0; pair < n; pair += kPairBatch) {
            scores_4x32(tile, queries, first + pair, rank, factor, out + pair * 256);
        }
    }
}

BlockSum softmax(float* scores, std::int64_t n, std::int64_t padded, float* p) {
    const __m512 low = _mm512_set1_ps(-__builtin_inff());
    BlockSum result;
    __m512 maximum = low;
    __m512i worst = _mm512_setzero_si512();
    for (std::int64_t i = 0; i < n; i += 16) {
        const __m512 v = _mm512_load_ps(scores + i);
        const __mmask16 exists = avx512::mask_of(n - i);
        worst = _mm512_mask_max_epi32(worst, exists, worst, avx512::magnitude_bits(v));
        maximum = _mm512_mask_max_ps(maximum, exists, maximum, v);
    }
    if (_mm512_reduce_max_epi32(worst) >= avx512::kNotFinite) {
        for (std::int64_t i = 0; i < n; i += 16) {
            _mm512_store_ps(scores + i, avx512::without_faults(_mm512_load_ps(scores + i)));
        }
        result = softmax(scores, n, padded, p);
        result.fault = true;
        return result;
    }
    result.maximum = _mm512_reduce_max_ps(maximum);
    const __m512 top = _mm512_set1_ps(result.maximum);
    __m512 sum0 = _mm512_setzero_ps();
    __m512 sum1 = sum0;
    std::int64_t i = 0;
    for (; i < n; i += 32) {
        const __m512 a = _mm512_maskz_mov_ps(
            avx512::mask_of(n - i), avx512::exp32(_mm512_sub_ps(_mm512_load_ps(scores + i), top)));
        const __m512 b =
            _mm512_maskz_mov_ps(avx512::mask_of(n - i - 16),
                                avx512::exp32(_mm512_sub_ps(_mm512_load_ps(scores + i + 16), top)));
        _mm512_store_ps(p + i, a);
        _mm512_store_ps(p + i + 16, b);
        sum0 = _mm512_add_ps(sum0, a);
        sum1 = _mm512_add_ps(sum1, b);
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
    const std::int64_t groups = tile.latent_groups;
    // Items are (64 ranks, column group), 16 at a time so that one division serves 16 of them.
    const std::int64_t n_items = n64 * groups;
    for (std::int64_t first = 0; first < n_items; first += 16) {
        const std::int64_t count = n_items - first < 16 ? n_items - first : 16;
        __m512i largest[16];
        for (std::int64_t i = 0; i < 16; ++i) {
            largest[i] = _mm512_setzero_si512();
        }
        for (std::int64_t i = 0; i < count; ++i) {
            const float* ranks = p + (first + i) / groups * 64;
            const float* scale =
                tile.scales + (first + i) % groups * 256 + (first + i) / groups * 64;
            __m512 product[4];
#pragma GCC unroll 4
            for (int j = 0; j < 4; ++j) {
                product[j] =
                    _mm512_mul_ps(_mm512_load_ps(ranks + j * 16), _mm512_load_ps(scale + j * 16));
            }
            largest[i] = _mm512_castps_si512(_mm512_max_ps(_mm512_max_ps(product[0], product[1]),
                                                           _mm512_max_ps(product[2], product[3])));
        }
        alignas(64) float r[16];
        alignas(64) float scale_out[16];
        avx512::group_scales(avx512::horizontal_max16(largest), r, scale_out);
        for (std::int64_t i = 0; i < count; ++i) {
            const std::int64_t n = (first + i) / groups;
            const std::int64_t g = (first + i) % groups;
            const int lane = avx512::tree_lane(static_cast<int>(i));
            __m512 ranks[4];
#pragma GCC unroll 4
            for (int j = 0; j < 4; ++j) {
                ranks[j] = _mm512_load_ps(p + n * 64 + j * 16);
            }
            _mm512_store_si512(
                q + (g * 4 + n) * 64,
                pack_products(ranks, tile.scales + g * 256 + n * 64, _mm512_set1_ps(r[lane])));
            s[g * 4 + n] = scale_out[lane];
        }
    }
}

/// 4 pairs x 64 columns of one block. Float accumulators in L1, as in scores_4x32.
void values_4x64(const KeyTile& tile,
                 std::int64_t group,
                 const std::uint8_t* q,
                 const float* s,
                 float* z,
                 std::int64_t z_stride) {
    const std::int64_t pair_bytes = tile.latent_groups * 256;
    alignas(64) float f[16][16] = {};
    const std::int64_t n64 = (tile.n + 63) / 64;
    for (std::int64_t n = 0; n < n64; ++n) {
        asm volatile("" ::: "memory");
        const std::int8_t* v = tile.values + (n * tile.latent_groups + group) * 4096;
        const std::uint8_t* factor = q + (group * 4 + n) * 64;
        __m512i acc[16];
#pragma GCC unroll 16
        for (auto& a : acc) {
            a = _mm512_setzero_si512();
        }
#pragma GCC unroll 16
        for (int quad = 0; quad < 16; ++quad) {
            __m512i w0 = _mm512_load_si512(v + quad * 256);
            __m512i w1 = _mm512_load_si512(v + quad * 256 + 64);
            __m512i w2 = _mm512_load_si512(v + quad * 256 + 128);
            __m512i w3 = _mm512_load_si512(v + quad * 256 + 192);
            // Without this gcc loads the four vectors again for every pair.
            asm("" : "+v"(w0), "+v"(w1), "+v"(w2), "+v"(w3));
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                const __m512i four = avx512::broadcast4(factor + i * pair_bytes +
                                                        ((quad & 3) * 4 + (quad >> 2)) * 4);
                dot_u8_s8(acc[i * 4], four, w0);
                dot_u8_s8(acc[i * 4 + 1], four, w1);
                dot_u8_s8(acc[i * 4 + 2], four, w2);
                dot_u8_s8(acc[i * 4 + 3], four, w3);
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
        for (auto& x : a) {
            x = _mm512_setzero_ps();
        }
        for (std::int64_t b = 0; b < n_blocks; ++b) {
            const __m512 factor = _mm512_set1_ps(factors[b]);
            for (int i = 0; i < 4; ++i) {
                a[i] = _mm512_fmadd_ps(_mm512_load_ps(z + b * block_stride + column + i * 16),
                                       factor, a[i]);
            }
        }
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
