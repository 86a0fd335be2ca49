// The binary64 functions of the arithmetic contract (docs/arithmetic.md 2): ours, not the C
// library's, so that every machine gives the same bits. Host only.
#pragma once

namespace terrace::binary64 {

struct SinCos {
    double sin;
    double cos;
};

/// Natural logarithm of a normal x > 0; 1.9 ulp.
[[nodiscard]] double ln(double x);

/// e^x with x limited to 708 above; +0 below -708; 0.85 ulp.
[[nodiscard]] double exp(double x);

/// exp(b * ln(a)) for a normal a > 0.
[[nodiscard]] double pow(double a, double b);

/// Sine and cosine of 0 <= x < 2^24 (radians); absolute error 1.3e-16.
[[nodiscard]] SinCos sin_cos(double x);

}  // namespace terrace::binary64
