// Integer attention with AVX-VNNI. Only intrinsics and internal linkage here, as in
// attention_avx512.cpp.
#include "engine/cpu/attention/vnni256_kernels.h"

namespace terrace::cpu {

namespace {

/// acc += four products of unsigned and signed bytes. Inline assembly, because gcc 12 copies and
/// spills the accumulators of the intrinsic.
struct VexDot {
    static inline __attribute__((always_inline)) void add(__m256i& acc, __m256i u, __m256i s) {
        asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc) : "x"(u), "x"(s));
    }
};

}  // namespace

const AttentionKernels& attention_kernels_avxvnni() {
    return vnni256::kKernels<VexDot>;
}

}  // namespace terrace::cpu
