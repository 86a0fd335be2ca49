// The row ops' inner loops, one set of functions for each instruction set. This header is included
// by files compiled for AVX-512, so it names plain functions only and pulls in nothing inline.
#pragma once

#include <cstdint>

namespace terrace::cpu {

/// A rectangle of dot products: out[r * out_stride + j] = dot32(x row r, weight row j).
struct DotTile {
    const float* x;  ///< [n_rows, width], row stride x_stride
    std::int64_t x_stride;
    std::int64_t n_rows;
    const float* weight;  ///< [n_weights, width], dense
    std::int64_t n_weights;
    std::int64_t width;
    float* out;
    std::int64_t out_stride;
};

/// Functions on rows of n float32 at any alignment. `out` may be the input itself, else they do
/// not overlap. Every set gives the same bits; the scalar one is the plain reading of
/// docs/arithmetic.md.
struct RowKernels {
    void (*rms_norm)(const float* x, const float* weight, float eps, std::int64_t n, float* out);
    void (*layer_norm)(float* x, const float* weight, const float* bias, float eps, std::int64_t n);
    void (*swiglu)(const float* gate, const float* up, std::int64_t n, float* out);
    void (*clamped_swiglu)(const float* gate, const float* up, std::int64_t n, float* out);
    /// cos, sin [dims / 2]; pairs (2j, 2j + 1).
    void (*rotate_interleaved)(float* x, const float* cos, const float* sin, std::int64_t dims);
    /// cos, sin [dims / 2]; pairs (j, j + dims / 2).
    void (*rotate_halves)(float* x, const float* cos, const float* sin, std::int64_t dims);
    void (*scale_int8)(const std::int8_t* q, float scale, std::int64_t n, float* out);
    void (*dots)(const DotTile& tile);
    void (*sigmoid)(const float* x, std::int64_t n, float* out);
    /// out = exp(x - shift); returns sum32 of it.
    float (*exp_sum)(const float* x, float shift, std::int64_t n, float* out);
    /// acc = fma(factor, x, acc)
    void (*accumulate)(const float* x, float factor, std::int64_t n, float* acc);
    /// x = x + y
    void (*add)(float* x, const float* y, std::int64_t n);
    /// Largest bits & 0x7fffffff; 0 for n = 0.
    std::uint32_t (*largest_bits)(const float* x, std::int64_t n);
};

extern const RowKernels kRowKernelsScalar;
extern const RowKernels kRowKernelsAvx2;
extern const RowKernels kRowKernelsAvx512;

}  // namespace terrace::cpu
