// The row ops with AVX-512: sixteen lanes.
#include "engine/cpu/float_math_avx512.h"
#include "engine/cpu/row_ops/row_kernels_lanes.h"

namespace terrace::cpu {

namespace {

struct Lanes {
    using V = __m512;
    static constexpr std::int64_t kLanes = 16;
    static constexpr int kVectors = 2;  // hold the 32 partial sums of dot32
    static constexpr int kDotRows = 4;  // with two weight rows 16 of the 32 registers hold sums
    static constexpr int kDotWeights = 2;

    static V set(float x) { return _mm512_set1_ps(x); }

    static V load(const float* x) { return _mm512_loadu_ps(x); }

    static V load_part(const float* x, std::int64_t n) { return avx512::load_part(x, n); }

    static V load(const float* x, std::int64_t n) {
        return n >= kLanes ? _mm512_loadu_ps(x) : avx512::load_part(x, n);
    }

    static V load_int8(const std::int8_t* q) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(q));
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
    }

    /// Eight numbers, each twice.
    static V load_doubled(const float* x) {
        const __m512i index = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
        return _mm512_permutexvar_ps(index, _mm512_castps256_ps512(_mm256_loadu_ps(x)));
    }

    static void store(float* x, V v) { _mm512_storeu_ps(x, v); }

    static void store(float* x, std::int64_t n, V v) {
        if (n >= kLanes) {
            _mm512_storeu_ps(x, v);
        } else {
            avx512::store_part(x, n, v);
        }
    }

    static V add(V a, V b) { return _mm512_add_ps(a, b); }

    static V sub(V a, V b) { return _mm512_sub_ps(a, b); }

    static V mul(V a, V b) { return _mm512_mul_ps(a, b); }

    static V div(V a, V b) { return _mm512_div_ps(a, b); }

    static V min(V a, V b) { return _mm512_min_ps(a, b); }

    static V max(V a, V b) { return _mm512_max_ps(a, b); }

    static V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }

    static V fmsub(V a, V b, V c) { return _mm512_fmsub_ps(a, b, c); }

    /// a * b - c in even lanes, a * b + c in odd ones.
    static V fmaddsub(V a, V b, V c) { return _mm512_fmaddsub_ps(a, b, c); }

    static V swap_pairs(V a) { return _mm512_permute_ps(a, 0xB1); }

    static V negate(V a) { return avx512::negate(a); }

    static V exp32(V a) { return avx512::exp32(a); }

    static V sigmoid(V a) { return avx512::sigmoid(a); }

    static float dot32(const float* x, const float* w, std::int64_t n) {
        return avx512::dot32(x, w, n);
    }

    static float sum32(const float* x, std::int64_t n) { return avx512::sum32(x, n); }

    static float reduce32(const V* acc) { return avx512::reduce32(acc[0], acc[1]); }

    static __m512i zero_bits() { return _mm512_setzero_si512(); }

    static __m512i max_bits(__m512i largest, V x) {
        const __m512i magnitude =
            _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
        return _mm512_max_epi32(largest, magnitude);
    }

    static std::uint32_t largest_of(__m512i bits) {
        return static_cast<std::uint32_t>(_mm512_reduce_max_epi32(bits));
    }
};

}  // namespace

constinit const RowKernels kRowKernelsAvx512 = kernels_of<Lanes>();

}  // namespace terrace::cpu
