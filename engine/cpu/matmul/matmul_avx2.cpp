// The row dot with AVX2 alone. Exact: int4 sums run modulo 2^16 from -8 * sum(q) of their own 32
// columns, so the true value (at most 32 * 8 * 127) always fits; int8 pairs are at most
// 2 * 128 * 127 and are widened at once. No standard library here: code of this file must not be
// linked into parts that run on older processors.
#include "engine/cpu/matmul/kernels_256.h"

namespace terrace::cpu {

namespace {

struct MaddDot {
    template <Form kForm>
    struct Weights {
        __m256i value;
        __m256i magnitude;  // bytes only

        TERRACE_INLINE void set(__m256i w) {
            if constexpr (kForm == Form::Bytes) {
                value = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
                magnitude = _mm256_abs_epi8(value);
            } else {
                value = w;
            }
        }

        // Bare instructions: GCC 12 moves intrinsics about until the sums are spilled.
        TERRACE_INLINE void add_to(__m256i& sum, __m256i inputs) const {
            if constexpr (kForm == Form::Bytes) {
                const __m256i one = _mm256_set1_epi16(1);
                __m256i pairs;
                __asm__ volatile(
                    "vpsignb %3, %4, %1\n\t"
                    "vpmaddubsw %1, %2, %1\n\t"
                    "vpmaddwd %5, %1, %1\n\t"
                    "vpaddd %1, %0, %0"
                    : "+x"(sum), "=&x"(pairs)
                    : "x"(magnitude), "x"(value), "x"(inputs), "x"(one));
            } else {
                __m256i pairs;
                __asm__ volatile(
                    "vpmaddubsw %3, %2, %1\n\t"
                    "vpaddw %1, %0, %0"
                    : "+x"(sum), "=&x"(pairs)
                    : "x"(value), "x"(inputs));
            }
        }

        static TERRACE_INLINE __m256i int32_sums(__m256i sum) {
            return kForm == Form::Bytes ? sum : _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
        }
    };
};

}  // namespace

void matmul_tile_avx2(const TileWork& work) {
    matmul_tile<MaddDot>(work);
}

}  // namespace terrace::cpu
