// The row ops' inner loops for any vector width: `L` is one instruction set's list of vector
// operations. Included once by each instruction set's file; everything here has internal linkage
// (see engine/cpu/float_math.h).
//
// L: V, a vector of kLanes float32; load and store of whole vectors and, with a count, of the first
// numbers only (the others read as +0); arithmetic; exp32 and sigmoid.
#pragma once

#include "engine/cpu/float_math.h"
#include "engine/cpu/row_ops/row_kernels.h"

namespace terrace::cpu {

namespace {

template <class L>
void normalise(const float* x, float r, const float* weight, std::int64_t n, float* out) {
    const typename L::V factor = L::set(r);
    for (std::int64_t i = 0; i < n; i += L::kLanes) {
        const auto y = L::mul(L::mul(L::load(x + i, n - i), factor), L::load(weight + i, n - i));
        L::store(out + i, n - i, y);
    }
}

template <class L>
void rms_norm(const float* x, const float* weight, float eps, std::int64_t n, float* out) {
    const float v = L::dot32(x, x, n) / static_cast<float>(n) + eps;
    normalise<L>(x, 1.0f / __builtin_sqrtf(v), weight, n, out);
}

template <class L>
void layer_norm(float* x, const float* weight, const float* bias, float eps, std::int64_t n) {
    const auto mean = L::set(L::sum32(x, n) / static_cast<float>(n));
    for (std::int64_t i = 0; i < n; i += L::kLanes) {
        L::store(x + i, n - i, L::sub(L::load(x + i, n - i), mean));
    }
    const float v = L::dot32(x, x, n) / static_cast<float>(n) + eps;
    const auto r = L::set(1.0f / __builtin_sqrtf(v));
    for (std::int64_t i = 0; i < n; i += L::kLanes) {
        const auto d = L::mul(L::load(x + i, n - i), r);
        L::store(x + i, n - i, L::fma(d, L::load(weight + i, n - i), L::load(bias + i, n - i)));
    }
}

template <class L>
void swiglu(const float* gate, const float* up, std::int64_t n, float* out) {
    const auto one = L::set(1.0f);
    for (std::int64_t i = 0; i < n; i += L::kLanes) {
        const auto g = L::load(gate + i, n - i);
        const auto silu = L::div(g, L::add(one, L::exp32(L::negate(g))));
        L::store(out + i, n - i, L::mul(silu, L::load(up + i, n - i)));
    }
}

template <class L>
void clamped_swiglu(const float* gate, const float* up, std::int64_t n, float* out) {
    const auto one = L::set(1.0f);
    const auto limit = L::set(7.0f);
    const auto slope = L::set(1.702f);
    for (std::int64_t i = 0; i < n; i += L::kLanes) {
        // min and max return their second operand when one is NaN, so NaN passes.
        const auto g = L::min(limit, L::load(gate + i, n - i));
        const auto u = L::max(L::set(-7.0f), L::min(limit, L::load(up + i, n - i)));
        const auto silu = L::div(g, L::add(one, L::exp32(L::negate(L::mul(slope, g)))));
        L::store(out + i, n - i, L::mul(silu, L::add(u, one)));
    }
}

inline void rotate_pair(float* a, float* b, float cos, float sin) {
    const float rotated = __builtin_fmaf(*a, cos, -(*b * sin));
    *b = __builtin_fmaf(*b, cos, *a * sin);
    *a = rotated;
}

template <class L>
void rotate_interleaved(float* x, const float* cos, const float* sin, std::int64_t dims) {
    std::int64_t i = 0;
    for (; i + L::kLanes <= dims; i += L::kLanes) {
        const auto v = L::load(x + i);
        const auto across = L::mul(L::swap_pairs(v), L::load_doubled(sin + i / 2));
        L::store(x + i, L::fmaddsub(v, L::load_doubled(cos + i / 2), across));
    }
    for (; i < dims; i += 2) {
        rotate_pair(x + i, x + i + 1, cos[i / 2], sin[i / 2]);
    }
}

template <class L>
void rotate_halves(float* x, const float* cos, const float* sin, std::int64_t dims) {
    const std::int64_t half = dims / 2;
    for (std::int64_t j = 0; j < half; j += L::kLanes) {
        const std::int64_t left = half - j;
        const auto a = L::load(x + j, left);
        const auto b = L::load(x + half + j, left);
        const auto c = L::load(cos + j, left);
        const auto s = L::load(sin + j, left);
        L::store(x + j, left, L::fmsub(a, c, L::mul(b, s)));
        L::store(x + half + j, left, L::fma(b, c, L::mul(a, s)));
    }
}

template <class L>
void scale_int8(const std::int8_t* q, float scale, std::int64_t n, float* out) {
    const auto factor = L::set(scale);
    std::int64_t i = 0;
    for (; i + L::kLanes <= n; i += L::kLanes) {
        L::store(out + i, L::mul(L::load_int8(q + i), factor));
    }
    for (; i < n; ++i) {
        out[i] = static_cast<float>(q[i]) * scale;
    }
}

/// 32 inputs further, or the last ones of a row, of R rows of x against J weight rows: every vector
/// is loaded once and used for all of the other side. Each of the R * J results has its own 32
/// partial sums, as dot32 asks.
template <class L, int R, int J, class Load>
inline void add_products(typename L::V (&acc)[R][J][L::kVectors], const DotTile& tile, Load load) {
#pragma GCC unroll 4
    for (int v = 0; v < L::kVectors; ++v) {
        typename L::V w[J];
#pragma GCC unroll 4
        for (int j = 0; j < J; ++j) {
            w[j] = load(tile.weight + j * tile.width, v * L::kLanes);
        }
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
            const auto x = load(tile.x + r * tile.x_stride, v * L::kLanes);
#pragma GCC unroll 4
            for (int j = 0; j < J; ++j) {
                acc[r][j][v] = L::fma(x, w[j], acc[r][j][v]);
            }
        }
    }
}

/// The first R rows and J weight rows of a tile.
template <class L, int R, int J>
void dots_block(const DotTile& tile) {
    typename L::V acc[R][J][L::kVectors];
    for (auto& row : acc) {
        for (auto& sums : row) {
            for (auto& sum : sums) {
                sum = L::set(0.0f);
            }
        }
    }
    std::int64_t i = 0;
    for (; i + 32 <= tile.width; i += 32) {
        add_products<L, R, J>(
            acc, tile, [i](const float* row, std::int64_t at) { return L::load(row + i + at); });
    }
    if (i < tile.width) {
        add_products<L, R, J>(acc, tile, [i, &tile](const float* row, std::int64_t at) {
            return L::load_part(row + i + at, tile.width - i - at);
        });
    }
    for (int r = 0; r < R; ++r) {
        for (int j = 0; j < J; ++j) {
            tile.out[r * tile.out_stride + j] = L::reduce32(acc[r][j]);
        }
    }
}

/// Weight rows that a single row of x passes together: four streams read memory at its full speed,
/// one stream reached three quarters.
inline constexpr int kStreams = 4;

/// All weight rows of a tile against its first R rows.
template <class L, int R>
void dots_rows(DotTile tile) {
    constexpr int kBlock = R == 1 ? kStreams : L::kDotWeights;
    for (; tile.n_weights >= kBlock; tile.n_weights -= kBlock) {
        dots_block<L, R, kBlock>(tile);
        tile.weight += kBlock * tile.width;
        tile.out += kBlock;
    }
    for (; tile.n_weights > 0; --tile.n_weights) {
        dots_block<L, R, 1>(tile);
        tile.weight += tile.width;
        tile.out += 1;
    }
}

template <class L>
void dots(const DotTile& all) {
    DotTile tile = all;
    for (; tile.n_rows >= L::kDotRows; tile.n_rows -= L::kDotRows) {
        dots_rows<L, L::kDotRows>(tile);
        tile.x += L::kDotRows * tile.x_stride;
        tile.out += L::kDotRows * tile.out_stride;
    }
    for (; tile.n_rows > 0; --tile.n_rows) {
        dots_rows<L, 1>(tile);
        tile.x += tile.x_stride;
        tile.out += tile.out_stride;
    }
}

template <class L>
void sigmoids(const float* x, std::int64_t n, float* out) {
    for (std::int64_t i = 0; i < n; i += L::kLanes) {
        L::store(out + i, n - i, L::sigmoid(L::load(x + i, n - i)));
    }
}

template <class L>
float exp_sum(const float* x, float shift, std::int64_t n, float* out) {
    const auto less = L::set(shift);
    for (std::int64_t i = 0; i < n; i += L::kLanes) {
        L::store(out + i, n - i, L::exp32(L::sub(L::load(x + i, n - i), less)));
    }
    return L::sum32(out, n);
}

template <class L>
void accumulate(const float* x, float factor, std::int64_t n, float* acc) {
    const auto g = L::set(factor);
    for (std::int64_t i = 0; i < n; i += L::kLanes) {
        L::store(acc + i, n - i, L::fma(g, L::load(x + i, n - i), L::load(acc + i, n - i)));
    }
}

template <class L>
void add(float* x, const float* y, std::int64_t n) {
    for (std::int64_t i = 0; i < n; i += L::kLanes) {
        L::store(x + i, n - i, L::add(L::load(x + i, n - i), L::load(y + i, n - i)));
    }
}

template <class L>
std::uint32_t largest_bits(const float* x, std::int64_t n) {
    auto largest = L::zero_bits();
    for (std::int64_t i = 0; i < n; i += L::kLanes) {
        largest = L::max_bits(largest, L::load(x + i, n - i));
    }
    return L::largest_of(largest);
}

template <class L>
constexpr RowKernels kernels_of() {
    return {rms_norm<L>,           layer_norm<L>,    swiglu<L>,     clamped_swiglu<L>,
            rotate_interleaved<L>, rotate_halves<L>, scale_int8<L>, dots<L>,
            sigmoids<L>,           exp_sum<L>,       accumulate<L>, add<L>,
            largest_bits<L>};
}

}  // namespace

}  // namespace terrace::cpu
