// The row dot with AVX-VNNI: vpdpbusd in its 256-bit VEX form. No standard library here: code of
// this file must not be linked into parts that run on older processors.
#include "engine/cpu/matmul/kernels_256.h"

namespace terrace::cpu {

namespace {

struct VexDot {
    template <Form kForm>
    struct Weights {
        __m256i value;

        TERRACE_INLINE void set(__m256i w) { value = w; }

        TERRACE_INLINE void add_to(__m256i& sum, __m256i inputs) const {
            __asm__ volatile("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(value), "x"(inputs));
        }

        static TERRACE_INLINE __m256i int32_sums(__m256i sum) { return sum; }
    };
};

}  // namespace

void matmul_tile_avxvnni(const TileWork& work) {
    matmul_tile<VexDot>(work);
}

}  // namespace terrace::cpu
