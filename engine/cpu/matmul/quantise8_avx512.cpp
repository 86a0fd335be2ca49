// quantise8 with AVX-512. A group with a NaN or an infinity, and a last group that is not full, go
// through the scalar twin. No standard library here: code of this file must not be linked into
// parts that run on older processors.
#include <immintrin.h>

#include "engine/cpu/quantise8.h"

namespace terrace::cpu {

namespace {

constexpr std::int64_t kGroup = 64;

std::uint32_t largest_bits(const __m512* v) {
    const __m512i mask = _mm512_set1_epi32(0x7fffffff);
    __m512i m[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        m[i] = _mm512_and_si512(_mm512_castps_si512(v[i]), mask);
    }
    const __m512i max =
        _mm512_max_epu32(_mm512_max_epu32(m[0], m[1]), _mm512_max_epu32(m[2], m[3]));
    return _mm512_reduce_max_epu32(max);
}

}  // namespace

std::uint32_t quantise_row_avx512(
    const float* x, std::int64_t n, std::int8_t* q, float* scales, std::int32_t* sums) {
    std::uint32_t row_max = 0;
    for (std::int64_t first = 0; first < n; first += kGroup, ++scales, q += kGroup) {
        std::int32_t* sum = sums == nullptr ? nullptr : sums + first / kGroup;
        __m512 v[4] = {};
        std::uint32_t bits = kNotFiniteBits;
        if (n - first >= kGroup) {
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                v[i] = _mm512_loadu_ps(x + first + 16 * i);
            }
            bits = largest_bits(v);
        }
        if (bits >= kNotFiniteBits) {
            const std::int64_t count = n - first < kGroup ? n - first : kGroup;
            const std::uint32_t group_max = quantise_row_scalar(x + first, count, q, scales, sum);
            row_max = group_max > row_max ? group_max : row_max;
            continue;
        }
        row_max = bits > row_max ? bits : row_max;
        const float a = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(bits))));
        const bool tiny = a < 0x1p-60f;
        const __m512 r = _mm512_set1_ps(tiny ? 0.0f : 127.0f / a);
        __m512i total = _mm512_setzero_si512();
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            // The products never leave +-127.5, so the saturating conversion is the clamp.
            const __m512i k = _mm512_cvtps_epi32(_mm512_mul_ps(v[i], r));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16 * i), _mm512_cvtsepi32_epi8(k));
            total = _mm512_add_epi32(total, k);
        }
        *scales = tiny ? 0.0f : a / 127.0f;
        if (sum != nullptr) {
            *sum = _mm512_reduce_add_epi32(total);
        }
    }
    return row_max;
}

}  // namespace terrace::cpu
