// The float functions of docs/arithmetic.md 2 with sixteen lanes; the same bits as float_math.h.
// Internal linkage throughout: see float_math.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace terrace::cpu::avx512 {

/// Lanes below n; n may be below 0 or above 16.
[[maybe_unused]] static inline __mmask16 mask_of(std::int64_t n) {
    return n <= 0    ? static_cast<__mmask16>(0)
           : n >= 16 ? static_cast<__mmask16>(0xffff)
                     : static_cast<__mmask16>((1u << n) - 1);
}

/// The first n numbers (at most 16), then +0; never reads past them.
[[maybe_unused]] static inline __m512 load_part(const float* x, std::int64_t n) {
    return _mm512_maskz_loadu_ps(mask_of(n), x);
}

/// Writes the first n lanes (at most 16).
[[maybe_unused]] static inline void store_part(float* x, std::int64_t n, __m512 v) {
    _mm512_mask_storeu_ps(x, mask_of(n), v);
}

[[maybe_unused]] static inline __m512 negate(__m512 x) {
    return _mm512_castsi512_ps(
        _mm512_xor_si512(_mm512_castps_si512(x), _mm512_set1_epi32(INT32_MIN)));
}

[[maybe_unused]] static inline __m512 exp32(__m512 x) {
    // min returns its second operand when one is NaN, so NaN passes.
    const __m512 v = _mm512_min_ps(_mm512_set1_ps(87.0f), x);
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(v, _mm512_set1_ps(0x1.715476p+0f)),
                                          _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 t = _mm512_fmadd_ps(n, _mm512_set1_ps(-0x1.62e4p-1f), v);
    t = _mm512_fmadd_ps(n, _mm512_set1_ps(-0x1.7f7d1cp-20f), t);
    __m512 p = _mm512_set1_ps(0x1.6a2434p-10f);
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(0x1.1239e2p-7f));
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(0x1.5558f2p-5f));
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(0x1.555492p-3f));
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(0x1.fffffcp-2f));
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(1.0f));
    // p * 2^n is normal inside the range, so scaling is exact there.
    const __mmask16 kept = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.0f), _CMP_NLT_UQ);
    return _mm512_maskz_scalef_ps(kept, p, n);
}

[[maybe_unused]] static inline __m512 sigmoid(__m512 x) {
    const __m512 one = _mm512_set1_ps(1.0f);
    return _mm512_div_ps(one, _mm512_add_ps(one, exp32(negate(x))));
}

/// Adds 32 partial sums, 0 .. 15 in a0 and 16 .. 31 in a1, in the contract's order.
[[maybe_unused]] static inline float reduce32(__m512 a0, __m512 a1) {
    const __m512 b = _mm512_add_ps(a0, a1);
    const __m256 c = _mm256_add_ps(_mm512_castps512_ps256(b), _mm512_extractf32x8_ps(b, 1));
    const __m128 d = _mm_add_ps(_mm256_castps256_ps128(c), _mm256_extractf128_ps(c, 1));
    const __m128 e = _mm_add_ps(d, _mm_movehl_ps(d, d));
    return _mm_cvtss_f32(_mm_add_ss(e, _mm_movehdup_ps(e)));
}

[[maybe_unused]] static inline float dot32(const float* x, const float* w, std::int64_t n) {
    __m512 a0 = _mm512_setzero_ps();
    __m512 a1 = a0;
    std::int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        a0 = _mm512_fmadd_ps(_mm512_loadu_ps(x + i), _mm512_loadu_ps(w + i), a0);
        a1 = _mm512_fmadd_ps(_mm512_loadu_ps(x + i + 16), _mm512_loadu_ps(w + i + 16), a1);
    }
    if (i < n) {
        const std::int64_t left = n - i;
        x += i;
        w += i;
        a0 = _mm512_fmadd_ps(load_part(x, left), load_part(w, left), a0);
        a1 = _mm512_fmadd_ps(load_part(x + 16, left - 16), load_part(w + 16, left - 16), a1);
    }
    return reduce32(a0, a1);
}

[[maybe_unused]] static inline float sum32(const float* x, std::int64_t n) {
    __m512 a0 = _mm512_setzero_ps();
    __m512 a1 = a0;
    std::int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        a0 = _mm512_add_ps(a0, _mm512_loadu_ps(x + i));
        a1 = _mm512_add_ps(a1, _mm512_loadu_ps(x + i + 16));
    }
    if (i < n) {
        const std::int64_t left = n - i;
        x += i;
        a0 = _mm512_add_ps(a0, load_part(x, left));
        a1 = _mm512_add_ps(a1, load_part(x + 16, left - 16));
    }
    return reduce32(a0, a1);
}

}  // namespace terrace::cpu::avx512
