// The inner kernels of integer attention, one table for each kernel family. The drivers
// (mla_attention.cpp, absorb.cpp, index_select.cpp) own threads, scratch and order; kernels only
// compute on what they are given.
#pragma once

#include <cstdint>

#include "engine/cpu/attention/pack_columns.h"
#include "engine/cpu/cpu_context.h"
#include "engine/device/tensor.h"

namespace terrace::cpu {

/// Pairs (row, head) are computed in batches of this many.
inline constexpr std::int64_t kPairBatch = 4;

/// One block of keys as the score and value kernels read it. The bytes' order is the family's own.
struct KeyTile {
    std::uint8_t* keys = nullptr;   ///< AttentionKernels::key_bytes for every rank and number
    std::int8_t* values = nullptr;  ///< [4][latent groups][64 ranks x 64 columns]
    float* scales = nullptr;        ///< [groups][256], 0 for ranks that do not exist
    std::int64_t n = 0;             ///< ranks, 1 .. 256
    std::int64_t groups = 0;        ///< groups of 64 in a cached row
    std::int64_t latent_groups = 0;
};

/// The quantised queries of all pairs of a tile; padded with zeros to a multiple of kPairBatch.
struct PairQueries {
    std::int8_t* q = nullptr;         ///< [pairs][groups * 64] from quantise8
    std::int16_t* wide = nullptr;     ///< the same in 16 bits, for families that ask for it
    float* scales = nullptr;          ///< [pairs][groups]
    std::int32_t* offsets = nullptr;  ///< [pairs][groups]: -128 * sum of the group's q
};

/// The cached rows of the block after this one: asked for while scores are computed, so that a
/// gather does not wait for memory.
struct NextRows {
    const std::int8_t* const* rows = nullptr;
    const float* const* scales = nullptr;
    std::int64_t n = 0;
    std::int64_t row_bytes = 0;
};

/// Result of one softmax block.
struct BlockSum {
    float maximum = 0.0f;
    float sum = 0.0f;
    bool fault = false;  ///< a score was NaN or infinite and counted as +0
};

/// Column sums of `n_rows` activation rows with one packed matrix.
///   q    [n_rows, rows] f32, row stride q_stride
///   out  [n_rows, cols] f32, row stride out_stride
struct ColumnJob {
    WeightKind kind = WeightKind::Int4;
    const std::byte* data = nullptr;
    const ColumnLayout* layout = nullptr;
    const float* q = nullptr;
    std::int64_t q_stride = 0;
    float* out = nullptr;
    std::int64_t out_stride = 0;
    std::int64_t n_rows = 0;              ///< at most kColumnRows
    std::int8_t* factors = nullptr;       ///< scratch [n_rows][column groups][rows64]
    float* factor_scales = nullptr;       ///< scratch [n_rows][column groups][rows64 / 64]
    std::int32_t* factor_sums = nullptr;  ///< scratch, as factor_scales
};

inline constexpr std::int64_t kColumnRows = 4;

/// Index scores of 16 * n_tiles keys for one row.
struct IndexJob {
    const std::int8_t* keys = nullptr;  ///< first tile, layout of IndexCache
    const float* scales = nullptr;
    std::int64_t n_tiles = 0;
    std::int64_t groups = 0;         ///< groups of 64 in a key
    std::int64_t n_heads = 0;        ///< padded with zeros to a multiple of kPairBatch
    PairQueries queries;             ///< of the heads
    const float* weights = nullptr;  ///< [n_heads], with the factor n_heads^-0.5
    float key_scale = 1.0f;
    float* out = nullptr;  ///< [16 * n_tiles]
};

/// All inner kernels of one family; every family gives the same bits.
struct AttentionKernels {
    int key_bytes = 1;  ///< bytes of one key number in a KeyTile

    /// Fills keys and values of a tile from 256 cached rows (past rank n: any row).
    void (*build_tile)(const std::int8_t* const* rows, const KeyTile& tile);

    /// out [pairs first .. first + n][256] = row dot * scale; n is a multiple of kPairBatch.
    void (*scores)(const KeyTile& tile,
                   const PairQueries& queries,
                   std::int64_t first,
                   std::int64_t n,
                   float scale,
                   float* out,
                   const NextRows& next);

    /// p = exp(score - maximum) for the first n ranks, n >= 1, then +0 up to `padded`, a multiple
    /// of
    /// 64. Scores that are NaN or infinite are overwritten by +0.
    BlockSum (*softmax)(float* scores, std::int64_t n, std::int64_t padded, float* p);

    /// quantise8 of p * scale for each group of columns and 64 ranks.
    ///   q [latent_groups][4][64] in the order that `values` reads; s [latent_groups][4]
    void (*factors)(const KeyTile& tile, const float* p, std::uint8_t* q, float* s);

    /// z [n pairs][latent_groups * 64] in the family's column order, row stride z_stride.
    void (*values)(const KeyTile& tile,
                   const std::uint8_t* q,
                   const float* s,
                   std::int64_t n,
                   float* z,
                   std::int64_t z_stride);

    /// out [latent] = (sum over b of z[b] * factors[b]) / sum, columns in their true order.
    void (*merge)(const float* z,
                  std::int64_t block_stride,
                  const float* factors,
                  std::int64_t n_blocks,
                  float sum,
                  std::int64_t latent,
                  float* out);

    /// Column sums; returns the largest bits & 0x7fffffff of all factors of each row in worst.
    void (*column_sum)(const ColumnJob& job, std::uint32_t* worst);

    void (*index_scores)(const IndexJob& job);

    /// Float sessions.
    float (*dot32)(const float* x, const float* w, std::int64_t n);
    void (*multiply_add)(float* z, const float* x, float factor, std::int64_t n);
};

[[nodiscard]] const AttentionKernels& attention_kernels_avx2();
[[nodiscard]] const AttentionKernels& attention_kernels_avxvnni();
[[nodiscard]] const AttentionKernels& attention_kernels_avx512();

/// Null for Isa::Scalar, which runs the twins.
[[nodiscard]] inline const AttentionKernels* attention_kernels(Isa isa) {
    switch (isa) {
        case Isa::Scalar:
            break;
        case Isa::Avx2:
            return &attention_kernels_avx2();
        case Isa::AvxVnni:
            return &attention_kernels_avxvnni();
        case Isa::Avx512:
            return &attention_kernels_avx512();
    }
    return nullptr;
}

}  // namespace terrace::cpu
