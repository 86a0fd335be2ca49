// The parts of the AVX2 table that live in files of their own, or that AVX-VNNI takes over.
#pragma once

#include "engine/cpu/attention/kernels.h"

namespace terrace::cpu {

void column_sum_avx2(const ColumnJob& job, std::uint32_t* worst);
void index_scores_avx2(const IndexJob& job);

BlockSum softmax_avx2(float* scores, std::int64_t n, std::int64_t padded, float* p);
void factors_avx2(const KeyTile& tile, const float* p, std::uint8_t* q, float* s);
void merge_avx2(const float* z,
                std::int64_t block_stride,
                const float* factors,
                std::int64_t n_blocks,
                float sum,
                std::int64_t latent,
                float* out);
float dot32_avx2(const float* x, const float* w, std::int64_t n);
void multiply_add_avx2(float* z, const float* x, float factor, std::int64_t n);

}  // namespace terrace::cpu
