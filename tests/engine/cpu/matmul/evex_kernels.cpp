#include "tests/engine/cpu/matmul/evex_kernels.h"

#include "engine/cpu/matmul/kernels_256.h"

namespace terrace::cpu {

namespace {

struct EvexDot {
    template <Form kForm>
    struct Weights {
        __m256i value;

        TERRACE_INLINE void set(__m256i w) { value = w; }

        TERRACE_INLINE void add_to(__m256i& sum, __m256i inputs) const {
            __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(value), "v"(inputs));
        }

        static TERRACE_INLINE __m256i int32_sums(__m256i sum) { return sum; }
    };
};

}  // namespace

void matmul_tile_evex256(const TileWork& work) {
    matmul_tile<EvexDot>(work);
}

}  // namespace terrace::cpu
