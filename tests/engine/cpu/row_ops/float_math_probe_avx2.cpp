#include "engine/cpu/float_math_avx2.h"
#include "tests/engine/cpu/row_ops/float_math_probe.h"

namespace terrace::cpu::test {

constinit const FloatMath kFloatMathAvx2 = {
    [](const float* x, std::int64_t n, float* out) {
        for (std::int64_t i = 0; i < n; i += 8) {
            avx2::store_part(out + i, n - i, avx2::exp32(avx2::load_part(x + i, n - i)));
        }
    },
    [](const float* x, std::int64_t n, float* out) {
        for (std::int64_t i = 0; i < n; i += 8) {
            avx2::store_part(out + i, n - i, avx2::sigmoid(avx2::load_part(x + i, n - i)));
        }
    },
    avx2::dot32, avx2::sum32};

}  // namespace terrace::cpu::test
