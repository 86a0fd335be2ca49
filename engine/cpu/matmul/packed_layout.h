// How a packed matrix lies in memory: one layout for every instruction set, for decode and prefill.
//
// Sixteen rows form a group, and lane r of a vector belongs to row r, so no sum ever runs across
// lanes. A group is a run of blocks of 64 columns; in front of a block that begins a scale group
// stand the scales, one 64-byte vector each (2 or 4 of them when groups are 32 or 16 columns).
// The payload of a block, all as value + offset (8, 128, 4, 2 for int4, int8, int3, int2):
//   int8  16 vectors; dword j of row r holds columns 4j .. 4j+3
//   int4   8 vectors; the low nibbles of dword j hold columns 8j .. 8j+3, the high ones 8j+4 ..
//   8j+7 int2   4 vectors; bits 2s of byte b of dword j hold column 16j + 4s + b int3   the low
//   pairs as int2, then 2 vectors; bit s of byte b of dword h is the high bit of
//          column 32h + 4s + b
// So every four columns of a row come out as one dword of bytes, in order, with a shift and an and.
// With whole groups and blocks, int4 in groups of 64 takes exactly the bytes of the container.
#pragma once

#include <cstdint>

#include "engine/device/tensor.h"

namespace terrace::cpu {

inline constexpr std::int64_t kGroupRows = 16;
inline constexpr std::int64_t kBlockColumns = 64;
inline constexpr std::int64_t kSegmentBlocks = 8;  ///< 512 inputs
inline constexpr std::int64_t kVectorBytes = 64;

struct PackedLayout {
    WeightKind kind = WeightKind::Int8;
    std::int64_t n_groups = 0;          ///< of sixteen rows
    std::int64_t n_blocks = 0;          ///< of 64 columns
    std::int64_t payload_bytes = 0;     ///< of one block
    std::int64_t scales_per_block = 1;  ///< scale vectors in front of a block: 1, 2 or 4
    std::int64_t unit_blocks = 1;       ///< blocks that share them
    std::int64_t group_bytes = 0;
};

/// The layout of a quantised matrix.
[[nodiscard]] PackedLayout packed_layout(WeightFormat format, std::int64_t rows, std::int64_t cols);

/// Where the scale vectors of block k stand, from the begin of the group.
[[nodiscard]] std::int64_t scales_offset(const PackedLayout& layout, std::int64_t block);

/// Where the payload of block k stands, from the begin of the group.
[[nodiscard]] std::int64_t payload_offset(const PackedLayout& layout, std::int64_t block);

/// What is added to a weight so that it can be stored without sign.
[[nodiscard]] std::int32_t stored_offset(WeightKind kind);

}  // namespace terrace::cpu
