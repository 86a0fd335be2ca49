#include "tests/engine/cpu/attention/evex_attention.h"

#include "engine/cpu/attention/vnni256_kernels.h"

namespace terrace::cpu {

namespace {

struct EvexDot {
    static inline __attribute__((always_inline)) void add(__m256i& acc, __m256i u, __m256i s) {
        asm("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(u), "v"(s));
    }
};

}  // namespace

const AttentionKernels& attention_kernels_evex256() {
    return vnni256::kKernels<EvexDot>;
}

}  // namespace terrace::cpu
