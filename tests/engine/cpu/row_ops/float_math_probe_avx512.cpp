#include "engine/cpu/float_math_avx512.h"
#include "tests/engine/cpu/row_ops/float_math_probe.h"

namespace terrace::cpu::test {

constinit const FloatMath kFloatMathAvx512 = {
    [](const float* x, std::int64_t n, float* out) {
        for (std::int64_t i = 0; i < n; i += 16) {
            avx512::store_part(out + i, n - i, avx512::exp32(avx512::load_part(x + i, n - i)));
        }
    },
    [](const float* x, std::int64_t n, float* out) {
        for (std::int64_t i = 0; i < n; i += 16) {
            avx512::store_part(out + i, n - i, avx512::sigmoid(avx512::load_part(x + i, n - i)));
        }
    },
    avx512::dot32, avx512::sum32};

}  // namespace terrace::cpu::test
