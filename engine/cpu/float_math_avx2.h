// The float functions of docs/arithmetic.md 2 with eight lanes; the same bits as float_math.h.
// Internal linkage throughout: see float_math.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace terrace::cpu::avx2 {

/// Lanes below n are all ones, the others zero; n may be below 0 or above 8.
[[maybe_unused]] static inline __m256i mask_of(std::int64_t n) {
    const int limit = n < 0 ? 0 : n > 8 ? 8 : static_cast<int>(n);
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(limit), lane);
}

/// The first n numbers (at most 8), then +0; never reads past them.
[[maybe_unused]] static inline __m256 load_part(const float* x, std::int64_t n) {
    return _mm256_maskload_ps(x, mask_of(n));
}

/// Writes the first n lanes (at most 8).
[[maybe_unused]] static inline void store_part(float* x, std::int64_t n, __m256 v) {
    _mm256_maskstore_ps(x, mask_of(n), v);
}

[[maybe_unused]] static inline __m256 negate(__m256 x) {
    return _mm256_xor_ps(x, _mm256_set1_ps(-0.0f));
}

[[maybe_unused]] static inline __m256 exp32(__m256 x) {
    // min returns its second operand when one is NaN, so NaN passes.
    const __m256 v = _mm256_min_ps(_mm256_set1_ps(87.0f), x);
    const __m256 n = _mm256_round_ps(_mm256_mul_ps(v, _mm256_set1_ps(0x1.715476p+0f)),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 t = _mm256_fmadd_ps(n, _mm256_set1_ps(-0x1.62e4p-1f), v);
    t = _mm256_fmadd_ps(n, _mm256_set1_ps(-0x1.7f7d1cp-20f), t);
    __m256 p = _mm256_set1_ps(0x1.6a2434p-10f);
    p = _mm256_fmadd_ps(p, t, _mm256_set1_ps(0x1.1239e2p-7f));
    p = _mm256_fmadd_ps(p, t, _mm256_set1_ps(0x1.5558f2p-5f));
    p = _mm256_fmadd_ps(p, t, _mm256_set1_ps(0x1.555492p-3f));
    p = _mm256_fmadd_ps(p, t, _mm256_set1_ps(0x1.fffffcp-2f));
    p = _mm256_fmadd_ps(p, t, _mm256_set1_ps(1.0f));
    p = _mm256_fmadd_ps(p, t, _mm256_set1_ps(1.0f));
    const __m256i power =
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    const __m256 y = _mm256_mul_ps(p, _mm256_castsi256_ps(power));
    const __m256 too_small = _mm256_cmp_ps(x, _mm256_set1_ps(-87.0f), _CMP_LT_OQ);
    return _mm256_andnot_ps(too_small, y);
}

[[maybe_unused]] static inline __m256 sigmoid(__m256 x) {
    const __m256 one = _mm256_set1_ps(1.0f);
    return _mm256_div_ps(one, _mm256_add_ps(one, exp32(negate(x))));
}

/// Adds 32 partial sums, 0 .. 7 in a0, 8 .. 15 in a1 and so on, in the contract's order.
[[maybe_unused]] static inline float reduce32(__m256 a0, __m256 a1, __m256 a2, __m256 a3) {
    const __m256 b0 = _mm256_add_ps(a0, a2);
    const __m256 b1 = _mm256_add_ps(a1, a3);
    const __m256 c = _mm256_add_ps(b0, b1);
    const __m128 d = _mm_add_ps(_mm256_castps256_ps128(c), _mm256_extractf128_ps(c, 1));
    const __m128 e = _mm_add_ps(d, _mm_movehl_ps(d, d));
    return _mm_cvtss_f32(_mm_add_ss(e, _mm_movehdup_ps(e)));
}

[[maybe_unused]] static inline float dot32(const float* x, const float* w, std::int64_t n) {
    __m256 a0 = _mm256_setzero_ps();
    __m256 a1 = a0;
    __m256 a2 = a0;
    __m256 a3 = a0;
    std::int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        a0 = _mm256_fmadd_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(w + i), a0);
        a1 = _mm256_fmadd_ps(_mm256_loadu_ps(x + i + 8), _mm256_loadu_ps(w + i + 8), a1);
        a2 = _mm256_fmadd_ps(_mm256_loadu_ps(x + i + 16), _mm256_loadu_ps(w + i + 16), a2);
        a3 = _mm256_fmadd_ps(_mm256_loadu_ps(x + i + 24), _mm256_loadu_ps(w + i + 24), a3);
    }
    if (i < n) {
        const std::int64_t left = n - i;
        x += i;
        w += i;
        a0 = _mm256_fmadd_ps(load_part(x, left), load_part(w, left), a0);
        a1 = _mm256_fmadd_ps(load_part(x + 8, left - 8), load_part(w + 8, left - 8), a1);
        a2 = _mm256_fmadd_ps(load_part(x + 16, left - 16), load_part(w + 16, left - 16), a2);
        a3 = _mm256_fmadd_ps(load_part(x + 24, left - 24), load_part(w + 24, left - 24), a3);
    }
    return reduce32(a0, a1, a2, a3);
}

[[maybe_unused]] static inline float sum32(const float* x, std::int64_t n) {
    __m256 a0 = _mm256_setzero_ps();
    __m256 a1 = a0;
    __m256 a2 = a0;
    __m256 a3 = a0;
    std::int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        a0 = _mm256_add_ps(a0, _mm256_loadu_ps(x + i));
        a1 = _mm256_add_ps(a1, _mm256_loadu_ps(x + i + 8));
        a2 = _mm256_add_ps(a2, _mm256_loadu_ps(x + i + 16));
        a3 = _mm256_add_ps(a3, _mm256_loadu_ps(x + i + 24));
    }
    if (i < n) {
        const std::int64_t left = n - i;
        x += i;
        a0 = _mm256_add_ps(a0, load_part(x, left));
        a1 = _mm256_add_ps(a1, load_part(x + 8, left - 8));
        a2 = _mm256_add_ps(a2, load_part(x + 16, left - 16));
        a3 = _mm256_add_ps(a3, load_part(x + 24, left - 24));
    }
    return reduce32(a0, a1, a2, a3);
}

}  // namespace terrace::cpu::avx2
