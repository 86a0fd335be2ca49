// The row ops with AVX2: eight lanes.
#include "engine/cpu/float_math_avx2.h"
#include "engine/cpu/row_ops/row_kernels_lanes.h"

namespace terrace::cpu {

namespace {

struct Lanes {
    using V = __m256;
    static constexpr std::int64_t kLanes = 8;
    static constexpr int kVectors = 4;  // hold the 32 partial sums of dot32
    static constexpr int kDotRows = 3;  // with one weight row 12 of the 16 registers hold sums
    static constexpr int kDotWeights = 1;

    static V set(float x) { return _mm256_set1_ps(x); }

    static V load(const float* x) { return _mm256_loadu_ps(x); }

    static V load_part(const float* x, std::int64_t n) { return avx2::load_part(x, n); }

    static V load(const float* x, std::int64_t n) {
        return n >= kLanes ? _mm256_loadu_ps(x) : avx2::load_part(x, n);
    }

    static V load_int8(const std::int8_t* q) {
        const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(q));
        return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
    }

    /// Four numbers, each twice.
    static V load_doubled(const float* x) {
        const __m256 both = _mm256_broadcast_ps(reinterpret_cast<const __m128*>(x));
        return _mm256_permutevar8x32_ps(both, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
    }

    static void store(float* x, V v) { _mm256_storeu_ps(x, v); }

    static void store(float* x, std::int64_t n, V v) {
        if (n >= kLanes) {
            _mm256_storeu_ps(x, v);
        } else {
            avx2::store_part(x, n, v);
        }
    }

    static V add(V a, V b) { return _mm256_add_ps(a, b); }

    static V sub(V a, V b) { return _mm256_sub_ps(a, b); }

    static V mul(V a, V b) { return _mm256_mul_ps(a, b); }

    static V div(V a, V b) { return _mm256_div_ps(a, b); }

    static V min(V a, V b) { return _mm256_min_ps(a, b); }

    static V max(V a, V b) { return _mm256_max_ps(a, b); }

    static V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }

    static V fmsub(V a, V b, V c) { return _mm256_fmsub_ps(a, b, c); }

    /// a * b - c in even lanes, a * b + c in odd ones.
    static V fmaddsub(V a, V b, V c) { return _mm256_fmaddsub_ps(a, b, c); }

    static V swap_pairs(V a) { return _mm256_permute_ps(a, 0xB1); }

    static V negate(V a) { return avx2::negate(a); }

    static V exp32(V a) { return avx2::exp32(a); }

    static V sigmoid(V a) { return avx2::sigmoid(a); }

    static float dot32(const float* x, const float* w, std::int64_t n) {
        return avx2::dot32(x, w, n);
    }

    static float sum32(const float* x, std::int64_t n) { return avx2::sum32(x, n); }

    static float reduce32(const V* acc) { return avx2::reduce32(acc[0], acc[1], acc[2], acc[3]); }

    static __m256i zero_bits() { return _mm256_setzero_si256(); }

    static __m256i max_bits(__m256i largest, V x) {
        const __m256i magnitude =
            _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
        return _mm256_max_epi32(largest, magnitude);
    }

    static std::uint32_t largest_of(__m256i bits) {
        __m128i m = _mm_max_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
        m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4E));
        m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xB1));
        return static_cast<std::uint32_t>(_mm_cvtsi128_si32(m));
    }
};

}  // namespace

constinit const RowKernels kRowKernelsAvx2 = kernels_of<Lanes>();

}  // namespace terrace::cpu
