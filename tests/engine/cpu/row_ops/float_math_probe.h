// Makes the float functions of each instruction set callable from a test that is compiled without
// any: they have internal linkage, so each set is probed by a file of its own.
#pragma once

#include <cstdint>

namespace terrace::cpu::test {

struct FloatMath {
    void (*exp32)(const float* x, std::int64_t n, float* out);
    void (*sigmoid)(const float* x, std::int64_t n, float* out);
    float (*dot32)(const float* x, const float* w, std::int64_t n);
    float (*sum32)(const float* x, std::int64_t n);
};

extern const FloatMath kFloatMathScalar;
extern const FloatMath kFloatMathAvx2;
extern const FloatMath kFloatMathAvx512;

}  // namespace terrace::cpu::test
