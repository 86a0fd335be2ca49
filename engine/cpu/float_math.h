// The float functions of the arithmetic contract (docs/arithmetic.md 2) as plain scalar code: the
// twins that every vector version must equal, and what vector code uses for single numbers.
//
// Everything in this header and in its vector siblings has internal linkage, and nothing of the
// standard library is called: these headers are compiled with other instruction sets in other
// files, and a shared inline function would let the linker pick the AVX-512 copy for a processor
// that has none.
#pragma once

#include <cstdint>

namespace terrace::cpu {

/// e^x. Below -87 +0, above 87 as at 87; NaN stays NaN.
[[maybe_unused]] static inline float exp32(float x) {
    if (x < -87.0f) {
        return 0.0f;
    }
    if (x > 87.0f) {
        x = 87.0f;
    }
    if (x != x) {
        return x;
    }
    const float n = __builtin_rintf(x * 0x1.715476p+0f);
    float t = __builtin_fmaf(n, -0x1.62e4p-1f, x);
    t = __builtin_fmaf(n, -0x1.7f7d1cp-20f, t);
    float p = 0x1.6a2434p-10f;
    p = __builtin_fmaf(p, t, 0x1.1239e2p-7f);
    p = __builtin_fmaf(p, t, 0x1.5558f2p-5f);
    p = __builtin_fmaf(p, t, 0x1.555492p-3f);
    p = __builtin_fmaf(p, t, 0x1.fffffcp-2f);
    p = __builtin_fmaf(p, t, 1.0f);
    p = __builtin_fmaf(p, t, 1.0f);
    const auto power = static_cast<std::uint32_t>(static_cast<std::int32_t>(n) + 127) << 23;
    return p * __builtin_bit_cast(float, power);
}

[[maybe_unused]] static inline float sigmoid(float x) {
    return 1.0f / (1.0f + exp32(-x));
}

/// Adds 32 partial sums in the contract's order.
[[maybe_unused]] static inline float reduce32(float* acc) {
    for (int m = 16; m >= 1; m /= 2) {
        for (int i = 0; i < m; ++i) {
            acc[i] = acc[i] + acc[i + m];
        }
    }
    return acc[0];
}

/// Sum of x_i * w_i over 32 accumulators. The vectors count as extended with +0 to a multiple of
/// 32, which can turn a -0 into +0.
[[maybe_unused]] static inline float dot32(const float* x, const float* w, std::int64_t n) {
    float acc[32] = {};
    for (std::int64_t i = 0; i < n; ++i) {
        acc[i % 32] = __builtin_fmaf(x[i], w[i], acc[i % 32]);
    }
    for (std::int64_t i = n; i % 32 != 0; ++i) {
        acc[i % 32] = __builtin_fmaf(0.0f, 0.0f, acc[i % 32]);
    }
    return reduce32(acc);
}

/// Sum of x_i, in the order of dot32.
[[maybe_unused]] static inline float sum32(const float* x, std::int64_t n) {
    float acc[32] = {};
    for (std::int64_t i = 0; i < n; ++i) {
        acc[i % 32] = acc[i % 32] + x[i];
    }
    for (std::int64_t i = n; i % 32 != 0; ++i) {
        acc[i % 32] = acc[i % 32] + 0.0f;
    }
    return reduce32(acc);
}

}  // namespace terrace::cpu
