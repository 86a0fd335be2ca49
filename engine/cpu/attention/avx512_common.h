// Pieces that the AVX-512 kernels of the attention family share. Internal linkage throughout: see
// float_math.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace terrace::cpu::avx512 {

/// Bits of a magnitude from here on are NaN or infinity.
static constexpr std::int32_t kNotFinite = 0x7f800000;

/// acc[i] += four products of unsigned and signed bytes. Inline assembly, because gcc 12 copies and
/// spills the accumulators of the intrinsic.
static inline __attribute__((always_inline)) void dot_u8_s8(__m512i& acc, __m512i u, __m512i s) {
    asm("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(u), "v"(s));
}

/// Zero that the compiler does not know to be zero: gcc turns known zero stores over an array into
/// `rep stos`, which takes longer than the kernel's own arithmetic on small tiles.
static inline __attribute__((always_inline)) __m512 opaque_zero() {
    __m512 zero = _mm512_setzero_ps();
    asm("" : "+v"(zero));
    return zero;
}

/// Four bytes in every lane.
static inline __attribute__((always_inline)) __m512i broadcast4(const void* bytes) {
    std::int32_t four;
    __builtin_memcpy(&four, bytes, 4);
    return _mm512_set1_epi32(four);
}

[[maybe_unused]] static inline __m512i magnitude_bits(__m512 x) {
    return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
}

/// NaN and infinity become +0.
[[maybe_unused]] static inline __m512 without_faults(__m512 x) {
    const __mmask16 good =
        _mm512_cmplt_epi32_mask(magnitude_bits(x), _mm512_set1_epi32(kNotFinite));
    return _mm512_maskz_mov_ps(good, x);
}

/// Place of numbers 4 * quad .. + 3 of 64 that two packs have narrowed to bytes.
[[maybe_unused]] static constexpr int quad_offset(int quad) {
    return ((quad & 3) * 4 + (quad >> 2)) * 4;
}

/// Lane of vector i in the result of horizontal_max16.
static constexpr int tree_lane(int i) {
    return (i & 3) * 4 + ((i >> 3) & 1) * 2 + ((i >> 2) & 1);
}

/// The maximum (as signed integers) of each of 16 vectors, in lane tree_lane(i). Magnitudes of
/// floats compare like their bits, and NaN and infinity come out on top.
static inline __attribute__((always_inline)) __m512i horizontal_max16(const __m512i* v) {
    __m512i a[8];
    __m512i b[4];
    __m512 c[2];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
        a[i] = _mm512_max_epi32(_mm512_shuffle_i32x4(v[2 * i], v[2 * i + 1], 0x44),
                                _mm512_shuffle_i32x4(v[2 * i], v[2 * i + 1], 0xEE));
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        b[i] = _mm512_max_epi32(_mm512_shuffle_i32x4(a[2 * i], a[2 * i + 1], 0x88),
                                _mm512_shuffle_i32x4(a[2 * i], a[2 * i + 1], 0xDD));
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
        const __m512 x = _mm512_castsi512_ps(b[2 * i]);
        const __m512 y = _mm512_castsi512_ps(b[2 * i + 1]);
        c[i] = _mm512_castsi512_ps(
            _mm512_max_epi32(_mm512_castps_si512(_mm512_shuffle_ps(x, y, 0x44)),
                             _mm512_castps_si512(_mm512_shuffle_ps(x, y, 0xEE))));
    }
    return _mm512_max_epi32(_mm512_castps_si512(_mm512_shuffle_ps(c[0], c[1], 0x88)),
                            _mm512_castps_si512(_mm512_shuffle_ps(c[0], c[1], 0xDD)));
}

/// quantise8's factor r = 127 / a and scale s = a / 127 of 16 groups; 0 below 2^-60.
[[maybe_unused]] static inline void group_scales(__m512i largest, float* r, float* s) {
    const __m512 a = _mm512_castsi512_ps(largest);
    const __m512 top = _mm512_set1_ps(127.0f);
    const __mmask16 kept = _mm512_cmp_ps_mask(a, _mm512_set1_ps(0x1p-60f), _CMP_GE_OQ);
    _mm512_store_ps(r, _mm512_maskz_div_ps(kept, top, a));
    _mm512_store_ps(s, _mm512_maskz_div_ps(kept, a, top));
}

}  // namespace terrace::cpu::avx512
