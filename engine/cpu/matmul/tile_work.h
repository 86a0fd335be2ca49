// What a matmul kernel is asked to do. Plain data and no inline function: this header is read by
// files compiled for one instruction set only.
#pragma once

#include <cstdint>

#include "engine/cpu/matmul/packed_layout.h"

namespace terrace::cpu {

/// How a kernel wants the correction for the stored offset of the weights:
/// isum = sum of (w + offset) * q  -  offset * sum of q.
enum class Correction : std::uint8_t {
    None,    ///< the kernel reads weights with their sign
    Int32,   ///< -offset * sum of q, where the int32 sums start
    Int16x2  ///< the same apart for columns 0, 1 and 2, 3 of each four, where int16 sums start
};

/// Quantised activations side by side, in the order in which a kernel eats them. The tokens stand
/// in panels of `width`; the last panel is filled with zeros.
///   q            [segment][panel][block][16 dwords][width] dwords of four int8
///   scales       [segment][panel][block][width] f32
///   corrections  [segment][panel][block][scales a block][width] int32
struct Panels {
    const std::int8_t* q = nullptr;
    const float* scales = nullptr;
    const std::int32_t* corrections = nullptr;
    std::int64_t width = 1;
    std::int64_t n_panels = 0;
};

/// Some groups of rows of one matrix times some panels of one input.
struct TileWork {
    const PackedLayout* layout = nullptr;
    const std::byte* weights = nullptr;  ///< first group of the tile
    std::int64_t n_rows = 0;             ///< rows of the tile; only the last group may be not full
    Panels panels;
    std::int64_t first_panel = 0;
    std::int64_t n_panels = 0;  ///< of the tile; their tokens at most kMaxTileTokens
    std::int64_t n_tokens = 0;  ///< of those panels, without filling
    float* out = nullptr;       ///< first token, first row of the tile
    std::int64_t out_stride = 0;
};

/// A tile holds at most this many tokens, so that its sums stay near the core.
inline constexpr std::int64_t kMaxTileTokens = 512;

using MatmulTile = void (*)(const TileWork& work);

/// The kernels of one instruction set.
struct MatmulKernels {
    MatmulTile tile = nullptr;
    std::int64_t max_width = 1;                       ///< widest panel
    Correction int4_correction = Correction::Int32;   ///< int4 with one scale a block or fewer
    Correction other_correction = Correction::Int32;  ///< everything else
};

void matmul_tile_scalar(const TileWork& work);
void matmul_tile_avx2(const TileWork& work);
void matmul_tile_avxvnni(const TileWork& work);
void matmul_tile_avx512(const TileWork& work);

}  // namespace terrace::cpu
