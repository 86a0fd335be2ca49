#include "engine/cpu/float_math_avx512.h"
#include "engine/cpu/matmul/float_tile.h"

namespace terrace::cpu {

void float_tile_avx512(const FloatTileWork& work) {
    for (std::int64_t r = 0; r < work.n_rows; ++r) {
        const float* weights = work.weights + r * work.cols;
        for (std::int64_t t = 0; t < work.n_tokens; ++t) {
            const std::int64_t row = work.rows == nullptr ? t : work.rows[t];
            work.out[t * work.out_stride + r] =
                avx512::dot32(work.values + row * work.stride, weights, work.cols);
        }
    }
}

}  // namespace terrace::cpu
