// Packing for the column sum (arithmetic.md 1): the absorbed query reads K rows of kv_b this way.
// Called by pack() of engine/cpu/matmul.h for WeightUse::ColumnSum.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/device/tensor.h"

namespace terrace::cpu {

/// Columns that lie together in the packed form.
inline constexpr std::int64_t kColumnChunk = 64;

/// Where things lie in a matrix packed for the column sum.
/// Quantised: payload [n_chunks][rows64 / 4][64 columns][4 rows], int8 as value + 128, two rows of
/// four to a byte as value + 8 (rows 0-3 low, rows 4-7 high) for the others; then scales
/// [n_groups][rows64] f32. Float32: rows of row_stride numbers.
struct ColumnLayout {
    ColumnLayout(WeightFormat format, std::int64_t n_rows, std::int64_t n_cols);

    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t rows64 = 0;
    std::int64_t n_chunks = 0;
    std::int64_t chunk_bytes = 0;
    std::int64_t n_groups = 0;
    std::int64_t group_columns = 0;
    std::int64_t scales_offset = 0;
    std::int64_t row_stride = 0;
    std::int64_t bytes = 0;
};

/// Bytes that pack_columns writes; a multiple of 64.
[[nodiscard]] std::int64_t packed_column_bytes(WeightFormat format,
                                               std::int64_t rows,
                                               std::int64_t cols);

/// Rewrites a raw matrix for the column sum. `out` is aligned to 64. Thread-safe.
void pack_columns(const RawMatrix& raw, std::byte* out);

/// Weight of row `r`, column `c` of a packed quantised matrix; for the scalar twin and for tests.
[[nodiscard]] inline int packed_weight(WeightKind kind,
                                       const std::byte* packed,
                                       const ColumnLayout& layout,
                                       std::int64_t r,
                                       std::int64_t c) {
    const std::byte* chunk = packed + c / kColumnChunk * layout.chunk_bytes;
    const std::int64_t column = c % kColumnChunk * 4 + r % 4;
    if (kind == WeightKind::Int8) {
        return std::to_integer<int>(chunk[r / 4 * 256 + column]) - 128;
    }
    const int pair = std::to_integer<int>(chunk[r / 8 * 256 + column]);
    return ((pair >> (r % 8 / 4 * 4)) & 15) - 8;
}

}  // namespace terrace::cpu
