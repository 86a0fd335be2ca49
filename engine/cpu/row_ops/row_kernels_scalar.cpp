// The scalar twins of the row ops: docs/arithmetic.md 2 and 4 line by line.
#include "engine/cpu/float_math.h"
#include "engine/cpu/row_ops/row_kernels.h"

namespace terrace::cpu {

namespace {

void rms_norm(const float* x, const float* weight, float eps, std::int64_t n, float* out) {
    const float v = dot32(x, x, n) / static_cast<float>(n) + eps;
    const float r = 1.0f / __builtin_sqrtf(v);
    for (std::int64_t i = 0; i < n; ++i) {
        out[i] = (x[i] * r) * weight[i];
    }
}

void layer_norm(float* x, const float* weight, const float* bias, float eps, std::int64_t n) {
    const float mean = sum32(x, n) / static_cast<float>(n);
    for (std::int64_t i = 0; i < n; ++i) {
        x[i] = x[i] - mean;
    }
    const float v = dot32(x, x, n) / static_cast<float>(n) + eps;
    const float r = 1.0f / __builtin_sqrtf(v);
    for (std::int64_t i = 0; i < n; ++i) {
        x[i] = __builtin_fmaf(x[i] * r, weight[i], bias[i]);
    }
}

void swiglu(const float* gate, const float* up, std::int64_t n, float* out) {
    for (std::int64_t i = 0; i < n; ++i) {
        out[i] = (gate[i] / (1.0f + exp32(-gate[i]))) * up[i];
    }
}

void clamped_swiglu(const float* gate, const float* up, std::int64_t n, float* out) {
    for (std::int64_t i = 0; i < n; ++i) {
        // Comparisons this way round let NaN pass.
        const float g = gate[i] > 7.0f ? 7.0f : gate[i];
        const float below = up[i] > 7.0f ? 7.0f : up[i];
        const float u = below < -7.0f ? -7.0f : below;
        out[i] = (g / (1.0f + exp32(-(1.702f * g)))) * (u + 1.0f);
    }
}

void rotate(float& a, float& b, float cos, float sin) {
    const float rotated = __builtin_fmaf(a, cos, -(b * sin));
    b = __builtin_fmaf(b, cos, a * sin);
    a = rotated;
}

void rotate_interleaved(float* x, const float* cos, const float* sin, std::int64_t dims) {
    for (std::int64_t j = 0; j < dims / 2; ++j) {
        rotate(x[2 * j], x[2 * j + 1], cos[j], sin[j]);
    }
}

void rotate_halves(float* x, const float* cos, const float* sin, std::int64_t dims) {
    for (std::int64_t j = 0; j < dims / 2; ++j) {
        rotate(x[j], x[j + dims / 2], cos[j], sin[j]);
    }
}

void scale_int8(const std::int8_t* q, float scale, std::int64_t n, float* out) {
    for (std::int64_t i = 0; i < n; ++i) {
        out[i] = static_cast<float>(q[i]) * scale;
    }
}

void dots(const DotTile& tile) {
    for (std::int64_t r = 0; r < tile.n_rows; ++r) {
        for (std::int64_t j = 0; j < tile.n_weights; ++j) {
            tile.out[r * tile.out_stride + j] =
                dot32(tile.x + r * tile.x_stride, tile.weight + j * tile.width, tile.width);
        }
    }
}

void sigmoids(const float* x, std::int64_t n, float* out) {
    for (std::int64_t i = 0; i < n; ++i) {
        out[i] = sigmoid(x[i]);
    }
}

float exp_sum(const float* x, float shift, std::int64_t n, float* out) {
    for (std::int64_t i = 0; i < n; ++i) {
        out[i] = exp32(x[i] - shift);
    }
    return sum32(out, n);
}

void accumulate(const float* x, float factor, std::int64_t n, float* acc) {
    for (std::int64_t i = 0; i < n; ++i) {
        acc[i] = __builtin_fmaf(factor, x[i], acc[i]);
    }
}

void add(float* x, const float* y, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
        x[i] = x[i] + y[i];
    }
}

std::uint32_t largest_bits(const float* x, std::int64_t n) {
    std::uint32_t largest = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, x[i]) & 0x7fffffff;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

}  // namespace

constinit const RowKernels kRowKernelsScalar = {
    rms_norm,      layer_norm, swiglu,      clamped_swiglu, rotate_interleaved,
    rotate_halves, scale_int8, dots,        sigmoids,       exp_sum,
    accumulate,    add,        largest_bits};

}  // namespace terrace::cpu
