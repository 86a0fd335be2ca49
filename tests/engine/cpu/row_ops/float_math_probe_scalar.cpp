#include "engine/cpu/float_math.h"
#include "tests/engine/cpu/row_ops/float_math_probe.h"

namespace terrace::cpu::test {

constinit const FloatMath kFloatMathScalar = {[](const float* x, std::int64_t n, float* out) {
                                                  for (std::int64_t i = 0; i < n; ++i) {
                                                      out[i] = exp32(x[i]);
                                                  }
                                              },
                                              [](const float* x, std::int64_t n, float* out) {
                                                  for (std::int64_t i = 0; i < n; ++i) {
                                                      out[i] = sigmoid(x[i]);
                                                  }
                                              },
                                              dot32, sum32};

}  // namespace terrace::cpu::test
