// quantise8 with AVX2. A group with a NaN or an infinity, and a last group that is not full, go
// through the scalar twin. No standard library here: code of this file must not be linked into
// parts that run on older processors.
#include <immintrin.h>

#include "engine/cpu/quantise8.h"

namespace terrace::cpu {

namespace {

constexpr std::int64_t kGroup = 64;

std::uint32_t largest_bits(const float* x) {
    const __m256i mask = _mm256_set1_epi32(0x7fffffff);
    __m256i max = _mm256_setzero_si256();
    for (int i = 0; i < 8; ++i) {
        const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x + 8 * i));
        max = _mm256_max_epi32(max, _mm256_and_si256(bits, mask));
    }
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    return static_cast<std::uint32_t>(_mm_cvtsi128_si32(m));
}

// 32 numbers to int8. The products never leave +-127.5, so packing with saturation is the clamp.
__m256i quantise_32(const float* x, __m256 r) {
    __m256i v[4];
    for (int i = 0; i < 4; ++i) {
        v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), r));
    }
    const __m256i packed =
        _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

std::int32_t sum_of(__m256i a, __m256i b) {
    const __m256i one8 = _mm256_set1_epi8(1);
    const __m256i pairs =
        _mm256_add_epi16(_mm256_maddubs_epi16(one8, a), _mm256_maddubs_epi16(one8, b));
    const __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    return _mm_cvtsi128_si32(s);
}

}  // namespace

std::uint32_t quantise_row_avx2(
    const float* x, std::int64_t n, std::int8_t* q, float* scales, std::int32_t* sums) {
    std::uint32_t row_max = 0;
    for (std::int64_t first = 0; first < n; first += kGroup, ++scales, q += kGroup) {
        std::int32_t* sum = sums == nullptr ? nullptr : sums + first / kGroup;
        const std::uint32_t bits = n - first < kGroup ? kNotFiniteBits : largest_bits(x + first);
        if (bits >= kNotFiniteBits) {
            const std::int64_t count = n - first < kGroup ? n - first : kGroup;
            const std::uint32_t group_max = quantise_row_scalar(x + first, count, q, scales, sum);
            row_max = group_max > row_max ? group_max : row_max;
            continue;
        }
        row_max = bits > row_max ? bits : row_max;
        const float a = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(bits))));
        __m256i lo = _mm256_setzero_si256();
        __m256i hi = _mm256_setzero_si256();
        *scales = 0.0f;
        if (a >= 0x1p-60f) {
            const __m256 r = _mm256_set1_ps(127.0f / a);
            lo = quantise_32(x + first, r);
            hi = quantise_32(x + first + 32, r);
            *scales = a / 127.0f;
        }
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), lo);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + 32), hi);
        if (sum != nullptr) {
            *sum = sum_of(lo, hi);
        }
    }
    return row_max;
}

}  // namespace terrace::cpu
