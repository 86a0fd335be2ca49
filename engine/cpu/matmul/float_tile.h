// Products with float weights: dot32 (arithmetic.md 2) of every row with every token.
#pragma once

#include <cstdint>

namespace terrace::cpu {

struct FloatTileWork {
    const float* weights = nullptr;  ///< [n_rows, cols], first row of the tile
    std::int64_t n_rows = 0;
    std::int64_t cols = 0;
    const float* values = nullptr;  ///< input row 0
    std::int64_t stride = 0;
    const std::int32_t* rows = nullptr;  ///< [n_tokens] rows of the input; null: all in order
    std::int64_t n_tokens = 0;
    float* out = nullptr;  ///< first row of the tile
    std::int64_t out_stride = 0;
};

using FloatTile = void (*)(const FloatTileWork& work);

void float_tile_scalar(const FloatTileWork& work);
void float_tile_avx2(const FloatTileWork& work);
void float_tile_avx512(const FloatTileWork& work);

}  // namespace terrace::cpu
