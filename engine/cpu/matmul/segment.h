// What the fast kernels share: the walk over a tile. The instruction sets bring their own kernels
// and include this header inside their own flags, so everything here has internal linkage.
#pragma once

#include "engine/cpu/matmul/tile_work.h"

namespace terrace::cpu {

namespace {

#define TERRACE_INLINE inline __attribute__((always_inline))

/// One segment (at most 8 blocks) of one or more groups of sixteen rows.
struct Segment {
    const std::uint8_t* payload = nullptr;  ///< first group
    std::int64_t payload_step = 0;          ///< from one group to the next
    std::int64_t payload_at[kSegmentBlocks];
    const std::uint8_t* scales = nullptr;
    std::int64_t scales_step = 0;
    std::int64_t scales_at[kSegmentBlocks];
    std::int64_t n_blocks = 0;
};

/// One panel of the segment's activations, and what a prefill kernel should fetch meanwhile: lines
/// from two places, `fetch_step` bytes on for every two dwords of columns.
struct PanelPart {
    const std::int8_t* q = nullptr;
    const float* scales = nullptr;
    const std::int32_t* corrections = nullptr;
    const std::uint8_t* fetch[2] = {};
    std::int64_t fetch_step = 0;
};

/// Adds the segment's products to `total` [width][groups][16]; starts from +0 when `first`.
using SegmentKernel = void (*)(const Segment& segment,
                               const PanelPart& part,
                               float* total,
                               bool first);

// Bytes of the weights of one segment, unpacked to one byte each.
constexpr std::int64_t kUnpackedBytes = kSegmentBlocks * kGroupRows * kBlockColumns;

/// The segments of a row group, one after the other. Only additions: a division here would cost as
/// much as the memory of a block in decode.
struct SegmentWalk {
    std::int64_t first_block = 0;
    std::int64_t at = 0;       ///< where the next block begins, from the begin of the group
    std::int64_t in_unit = 0;  ///< blocks of the current scale unit that are behind us
    std::int64_t scales = 0;   ///< where the scales of the unit stand
};

/// The segment that begins at walk.first_block; moves the walk behind it.
TERRACE_INLINE Segment next_segment(const PackedLayout& layout,
                                    const std::uint8_t* group,
                                    SegmentWalk* walk) {
    Segment segment;
    segment.payload = group;
    segment.scales = group;
    segment.payload_step = layout.group_bytes;
    segment.scales_step = layout.group_bytes;
    const std::int64_t left = layout.n_blocks - walk->first_block;
    segment.n_blocks = left < kSegmentBlocks ? left : kSegmentBlocks;
    for (std::int64_t k = 0; k < segment.n_blocks; ++k) {
        if (walk->in_unit == 0) {
            walk->scales = walk->at;
            walk->at += layout.scales_per_block * kVectorBytes;
        }
        segment.scales_at[k] = walk->scales;
        segment.payload_at[k] = walk->at;
        walk->at += layout.payload_bytes;
        walk->in_unit = walk->in_unit + 1 == layout.unit_blocks ? 0 : walk->in_unit + 1;
    }
    walk->first_block += segment.n_blocks;
    return segment;
}

TERRACE_INLINE PanelPart panel_part(const TileWork& work,
                                    std::int64_t first_block,
                                    std::int64_t n_blocks,
                                    std::int64_t panel) {
    const Panels& p = work.panels;
    const std::int64_t blocks_before =
        (first_block * p.n_panels + (work.first_panel + panel) * n_blocks) * p.width;
    PanelPart part;
    part.q = p.q + blocks_before * kBlockColumns;
    part.scales = p.scales + blocks_before;
    part.corrections = p.corrections + blocks_before * work.layout->scales_per_block;
    return part;
}

/// The first panel of a segment fetches the weights of the next one, the others their successor's
/// activations, which come out of L2 in this order.
TERRACE_INLINE void plan_fetch(const Segment& segment,
                               const PackedLayout& layout,
                               const std::uint8_t* group,
                               std::int64_t next_at,
                               std::int64_t panel,
                               std::int64_t width,
                               PanelPart* part) {
    constexpr std::int64_t kInputsAhead = 1024;
    if (panel == 0) {
        part->fetch[0] = group + next_at;
        part->fetch[1] = group + next_at + (segment.scales_step);
        part->fetch_step = (layout.payload_bytes + kVectorBytes) / 8;
    } else {
        part->fetch[0] = reinterpret_cast<const std::uint8_t*>(part->q) + kInputsAhead;
        part->fetch[1] = part->fetch[0];
        part->fetch_step = 8 * width;
    }
}

/// Sixteen dwords. A vector type of the compiler: one register, or two, or four.
typedef std::uint32_t Lanes __attribute__((vector_size(64), aligned(64)));

/// Unpacks a block to [16 dwords][16 rows][4 columns] bytes: what is stored + `shift_to_base`.
TERRACE_INLINE void unpack_block(WeightKind kind,
                                 const std::uint8_t* payload,
                                 std::uint32_t shift_to_base,
                                 std::uint8_t* out) {
    const Lanes* in = reinterpret_cast<const Lanes*>(payload);
    Lanes* to = reinterpret_cast<Lanes*>(out);
    if (kind == WeightKind::Int4) {
        for (int j = 0; j < 8; ++j) {
            to[2 * j] = (in[j] & 0x0f0f0f0fu) + shift_to_base;
            to[2 * j + 1] = ((in[j] >> 4) & 0x0f0f0f0fu) + shift_to_base;
        }
    } else if (kind == WeightKind::Int3) {
        for (int j = 0; j < 16; ++j) {
            const Lanes low = (in[j / 4] >> (2 * (j % 4))) & 0x03030303u;
            const Lanes high = (in[4 + j / 8] >> (j % 8)) & 0x01010101u;
            to[j] = (low | (high << 2)) + shift_to_base;
        }
    } else {
        for (int j = 0; j < 16; ++j) {
            to[j] = ((in[j / 4] >> (2 * (j % 4))) & 0x03030303u) + shift_to_base;
        }
    }
}

/// Moves the segment to an unpacked copy of its weights.
TERRACE_INLINE void unpack_segment(WeightKind kind,
                                   std::int64_t n_groups,
                                   std::uint32_t shift_to_base,
                                   std::uint8_t* buffer,
                                   Segment* segment) {
    for (std::int64_t g = 0; g < n_groups; ++g) {
        for (std::int64_t k = 0; k < segment->n_blocks; ++k) {
            unpack_block(
                kind, segment->payload + g * segment->payload_step + segment->payload_at[k],
                shift_to_base, buffer + g * kUnpackedBytes + k * kGroupRows * kBlockColumns);
        }
    }
    segment->payload = buffer;
    segment->payload_step = kUnpackedBytes;
    for (std::int64_t k = 0; k < segment->n_blocks; ++k) {
        segment->payload_at[k] = k * kGroupRows * kBlockColumns;
    }
}

}  // namespace

}  // namespace terrace::cpu
