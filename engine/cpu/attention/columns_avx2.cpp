// Column sums of packed weights (the absorbed query) and index scores with AVX2. Internal linkage:
// see attention_avx512.cpp.
#include <immintrin.h>

#include "engine/cpu/attention/avx2_common.h"
#include "engine/cpu/attention/kernels_avx2.h"
#include "engine/cpu/float_math_avx2.h"

namespace terrace::cpu {

namespace {

/// Products q * s of 64 rows; rows from `left` on count as +0, and so do faults.
inline __attribute__((always_inline)) std::int32_t products64(const float* q,
                                                              std::int64_t left,
                                                              const float* s,
                                                              __m256* out) {
    __m256i worst = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
        out[i] =
            _mm256_mul_ps(avx2::load_part(q + i * 8, left - i * 8), _mm256_loadu_ps(s + i * 8));
        worst = _mm256_max_epi32(worst, avx2::magnitude_bits(out[i]));
    }
    const std::int32_t bits = avx2::horizontal_max(worst);
    for (int i = 0; bits >= avx2::kNotFinite && i < 8; ++i) {
        out[i] = avx2::without_faults(out[i]);
    }
    return bits;
}

/// Where the quantised factors of one row go.
struct Factors {
    std::int8_t* q;        ///< [column groups][rows64 / 64][64], quads at avx2::quad_offset
    float* scales;         ///< [column groups][rows64 / 64]
    std::int32_t* starts;  ///< as scales: two int16, -8 * sum of the q of rows 4i, 4i + 1 and of
                           ///< rows 4i + 2, 4i + 3
};

/// -8 * the sums of the numbers that even and odd int16 lanes of vpmaddubsw meet.
inline __attribute__((always_inline)) std::int32_t lane_starts(__m256i a, __m256i b) {
    const __m256i one = _mm256_set1_epi8(1);
    __m256i sum = _mm256_add_epi16(_mm256_maddubs_epi16(one, a), _mm256_maddubs_epi16(one, b));
    __m128i x = _mm_add_epi16(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    x = _mm_add_epi16(x, _mm_shuffle_epi32(x, 0x4e));
    x = _mm_add_epi16(x, _mm_shuffle_epi32(x, 0xb1));
    return _mm_cvtsi128_si32(_mm_mullo_epi16(x, _mm_set1_epi16(-8)));
}

/// quantise8 of q_t * s(t, G) for every column group; the largest bits & 0x7fffffff met.
std::uint32_t quantise_factors(const float* q,
                               std::int64_t n_rows,
                               std::int64_t n_groups,
                               const float* scales,
                               std::int64_t rows64,
                               const Factors& out) {
    const std::int64_t n64 = rows64 / 64;
    std::int32_t worst = 0;
    for (std::int64_t item = 0; item < n_groups * n64; ++item) {
        const std::int64_t t = item % n64 * 64;
        __m256 v[8];
        const std::int32_t bits = products64(q + t, n_rows - t, scales + item * 64, v);
        worst = bits > worst ? bits : worst;
        __m256i m = avx2::magnitude_bits(v[0]);
#pragma GCC unroll 8
        for (int i = 1; i < 8; ++i) {
            m = _mm256_max_epi32(m, avx2::magnitude_bits(v[i]));
        }
        const float a = __builtin_bit_cast(float, avx2::horizontal_max(m));
        const bool kept = a >= 0x1p-60f;
        const __m256 r = _mm256_set1_ps(kept ? 127.0f / a : 0.0f);
        out.scales[item] = kept ? a / 127.0f : 0.0f;
        __m256i packed[2];
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
            __m256i n[4];
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                n[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[half * 4 + i], r));
            }
            packed[half] =
                _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3]));
            avx2::store(out.q + item * 64 + half * 32, packed[half]);
        }
        out.starts[item] = lane_starts(packed[0], packed[1]);
    }
    return static_cast<std::uint32_t>(worst);
}

enum class Width : std::uint8_t { Nibbles, Bytes };

/// isum of 64 rows x 8 columns (one vector of every step). The int16 lanes may wrap on the way:
/// their final value is a sum of 32 products of -8 .. 7 and -127 .. 127, which fits.
template <Width kWidth>
inline __attribute__((always_inline)) __m256i sum8(const std::uint8_t* weights,
                                                   const std::int8_t* q,
                                                   std::int32_t starts) {
    const __m256i low_half = _mm256_set1_epi8(15);
    const __m256i one = _mm256_set1_epi16(1);
    const __m256i start = _mm256_set1_epi32(starts);
    __m256i low = start;
    __m256i high = kWidth == Width::Bytes ? start : _mm256_setzero_si256();
    constexpr int kSteps = kWidth == Width::Bytes ? 16 : 8;
#pragma GCC unroll 16
    for (int step = 0; step < kSteps; ++step) {
        const __m256i w = avx2::load(weights + step * 256);
        const __m256i l = _mm256_and_si256(w, low_half);
        const __m256i h = _mm256_and_si256(_mm256_srli_epi16(w, 4), low_half);
        const int first = kWidth == Width::Bytes ? step : 2 * step;
        const int second = kWidth == Width::Bytes ? step : 2 * step + 1;
        const __m256i qa = avx2::broadcast4(q + avx2::quad_offset(first));
        const __m256i qb = avx2::broadcast4(q + avx2::quad_offset(second));
        low = _mm256_add_epi16(low, _mm256_maddubs_epi16(l, qa));
        high = _mm256_add_epi16(high, _mm256_maddubs_epi16(h, qb));
    }
    if (kWidth == Width::Nibbles) {
        return _mm256_madd_epi16(_mm256_add_epi16(low, high), one);
    }
    // A byte is w + 128 = 16 h + l, so w = 16 (h - 8) + (l - 8) + 8; starts = -8 * sums of q.
    const __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(_mm256_madd_epi16(high, one), 4),
                                         _mm256_madd_epi16(low, one));
    return _mm256_sub_epi32(sum, _mm256_madd_epi16(start, one));
}

/// All columns of one activation row whose factors are quantised.
template <Width kWidth>
void sum_columns(const ColumnJob& job, const Factors& factors, float* out) {
    const ColumnLayout& layout = *job.layout;
    const std::int64_t n64 = layout.rows64 / 64;
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(job.data);
    for (std::int64_t column = 0; column < layout.cols; column += 8) {
        const std::uint8_t* weights =
            bytes + column / kColumnChunk * layout.chunk_bytes + column % kColumnChunk * 4;
        const std::int64_t group = column / layout.group_columns;
        __m256 acc = _mm256_setzero_ps();
        __m256 tot = _mm256_setzero_ps();
        for (std::int64_t t = 0; t < n64; ++t) {
            const std::int64_t item = group * n64 + t;
            const __m256i isum = sum8<kWidth>(weights + t * (layout.chunk_bytes / n64),
                                              factors.q + item * 64, factors.starts[item]);
            acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(isum), _mm256_set1_ps(factors.scales[item]),
                                  acc);
            if (t % 8 == 7 || t + 1 == n64) {  // a segment of 512 rows ends
                tot = _mm256_add_ps(tot, acc);
                acc = _mm256_setzero_ps();
            }
        }
        avx2::store_part(out + column, layout.cols - column, tot);
    }
}

/// acc += the exact dot of four bytes each; no product of magnitudes up to 127 saturates.
inline __attribute__((always_inline)) __m256i dot_s8(
    __m256i acc, __m256i magnitude, __m256i key, __m256i quad, __m256i one) {
    const __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(quad, key));
    return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, one));
}

/// Weighted sum over the heads for 8 keys: keys [groups * 16][16 keys][4], scales [groups][16].
__m256 index_8(const IndexJob& job, const std::int8_t* keys, const float* scales) {
    const __m256i one = _mm256_set1_epi16(1);
    const __m256 key_scale = _mm256_set1_ps(job.key_scale);
    __m256 sum = _mm256_setzero_ps();
    for (std::int64_t head = 0; head < job.n_heads; head += kPairBatch) {
        alignas(32) float acc[4][8];
        alignas(32) float tot[4][8];
#pragma GCC unroll 4
        for (auto& t : tot) {
            _mm256_store_ps(t, avx2::opaque_zero());
        }
        for (std::int64_t k = 0; k < job.groups; ++k) {
            asm volatile("" ::: "memory");
            const std::int64_t item = head * job.groups + k;
            const std::int8_t* q = job.queries.q + item * 64;
            __m256i a = _mm256_setzero_si256();
            __m256i b = a;
            __m256i c = a;
            __m256i d = a;
#pragma GCC unroll 4
            for (int j = 0; j < 16; ++j) {
                const __m256i key = avx2::load(keys + (k * 16 + j) * 64);
                const __m256i magnitude = _mm256_abs_epi8(key);
                const std::int8_t* quad = q + j * 4;
                const std::int64_t next = job.groups * 64;
                a = dot_s8(a, magnitude, key, avx2::broadcast4(quad), one);
                b = dot_s8(b, magnitude, key, avx2::broadcast4(quad + next), one);
                c = dot_s8(c, magnitude, key, avx2::broadcast4(quad + next * 2), one);
                d = dot_s8(d, magnitude, key, avx2::broadcast4(quad + next * 3), one);
            }
            const __m256i isum[4] = {a, b, c, d};
            const __m256 s = _mm256_loadu_ps(scales + k * 16);
            for (int h = 0; h < 4; ++h) {
                const __m256 factor =
                    _mm256_mul_ps(s, _mm256_set1_ps(job.queries.scales[item + h * job.groups]));
                const __m256 old = k % 8 == 0 ? _mm256_setzero_ps() : _mm256_load_ps(acc[h]);
                const __m256 x = _mm256_fmadd_ps(_mm256_cvtepi32_ps(isum[h]), factor, old);
                _mm256_store_ps(acc[h], x);
                if (k % 8 == 7 || k + 1 == job.groups) {
                    _mm256_store_ps(tot[h], _mm256_add_ps(_mm256_load_ps(tot[h]), x));
                }
            }
        }
        for (int h = 0; h < 4; ++h) {
            const __m256 x = _mm256_mul_ps(_mm256_load_ps(tot[h]), key_scale);
            // max gives its second operand for NaN and for -0: exactly relu.
            sum = _mm256_fmadd_ps(_mm256_set1_ps(job.weights[head + h]),
                                  _mm256_max_ps(x, _mm256_setzero_ps()), sum);
        }
    }
    return sum;
}

}  // namespace

void column_sum_avx2(const ColumnJob& job, std::uint32_t* worst) {
    const ColumnLayout& layout = *job.layout;
    const auto* scales = reinterpret_cast<const float*>(job.data + layout.scales_offset);
    for (std::int64_t r = 0; r < job.n_rows; ++r) {
        const Factors factors = {job.factors, job.factor_scales, job.factor_sums};
        worst[r] = quantise_factors(job.q + r * job.q_stride, layout.rows, layout.n_groups, scales,
                                    layout.rows64, factors);
        float* out = job.out + r * job.out_stride;
        if (job.kind == WeightKind::Int8) {
            sum_columns<Width::Bytes>(job, factors, out);
        } else {
            sum_columns<Width::Nibbles>(job, factors, out);
        }
    }
}

void index_scores_avx2(const IndexJob& job) {
    for (std::int64_t half = 0; half < job.n_tiles * 2; ++half) {
        const std::int8_t* keys = job.keys + half / 2 * job.groups * 1024 + half % 2 * 32;
        const float* scales = job.scales + half / 2 * job.groups * 16 + half % 2 * 8;
        _mm256_store_ps(job.out + half * 8, index_8(job, keys, scales));
    }
}

}  // namespace terrace::cpu
