// Pieces that the AVX2 kernels of the attention family share. Internal linkage throughout: see
// float_math.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace terrace::cpu::avx2 {

/// Bits of a magnitude from here on are NaN or infinity.
static constexpr std::int32_t kNotFinite = 0x7f800000;

static inline __attribute__((always_inline)) __m256i load(const void* at) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(at));
}

static inline __attribute__((always_inline)) void store(void* at, __m256i v) {
    _mm256_storeu_si256(static_cast<__m256i*>(at), v);
}

/// Zero that the compiler does not know to be zero: gcc turns known zero stores over an array into
/// `rep stos`, which takes longer than the kernel's own arithmetic on small tiles.
[[maybe_unused]] static inline __attribute__((always_inline)) __m256 opaque_zero() {
    __m256 zero = _mm256_setzero_ps();
    asm("" : "+x"(zero));
    return zero;
}

/// Four bytes in every lane.
[[maybe_unused]] static inline __attribute__((always_inline)) __m256i broadcast4(
    const void* bytes) {
    std::int32_t four;
    __builtin_memcpy(&four, bytes, 4);
    return _mm256_set1_epi32(four);
}

[[maybe_unused]] static inline __m256i magnitude_bits(__m256 x) {
    return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
}

/// NaN and infinity become +0.
[[maybe_unused]] static inline __m256 without_faults(__m256 x) {
    const __m256i good = _mm256_cmpgt_epi32(_mm256_set1_epi32(kNotFinite), magnitude_bits(x));
    return _mm256_and_ps(x, _mm256_castsi256_ps(good));
}

[[maybe_unused]] static inline float horizontal_max(__m256 v) {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

[[maybe_unused]] static inline std::int32_t horizontal_max(__m256i v) {
    __m128i x = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    x = _mm_max_epi32(x, _mm_shuffle_epi32(x, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(x, _mm_shuffle_epi32(x, 0xb1)));
}

/// The maxima of eight vectors of numbers >= 0, in their order.
[[maybe_unused]] static inline __attribute__((always_inline)) __m256 horizontal_max8(
    const __m256* v) {
    const auto pair = [](__m256 a, __m256 b) {  // lanes of a in the lower half, of b in the upper
        return _mm256_max_ps(_mm256_permute2f128_ps(a, b, 0x20),
                             _mm256_permute2f128_ps(a, b, 0x31));
    };
    const auto merge = [](__m256 a, __m256 b) {
        return _mm256_max_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xEE));
    };
    const __m256 a = merge(pair(v[0], v[4]), pair(v[1], v[5]));
    const __m256 b = merge(pair(v[2], v[6]), pair(v[3], v[7]));
    return _mm256_max_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xDD));
}

/// Place of numbers 4 * quad .. + 3 of 64 that two packs have narrowed to bytes: dword 4L + j of
/// each half of 32 holds numbers 8j + 4L .. + 3.
[[maybe_unused]] static constexpr int quad_offset(int quad) {
    return ((quad >> 3) * 8 + (quad & 1) * 4 + ((quad & 7) >> 1)) * 4;
}

}  // namespace terrace::cpu::avx2
