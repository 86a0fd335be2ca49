// The row dot straight from arithmetic.md 1, over the packed layout: one row, one token, one block
// after the other. The fast kernels must equal it in every bit.
#include "engine/cpu/matmul/tile_work.h"

namespace terrace::cpu {

namespace {

/// Weight (lane, column) of a block.
std::int32_t weight_at(WeightKind kind,
                       const std::uint8_t* payload,
                       std::int64_t lane,
                       std::int64_t column) {
    const auto byte = [&](std::int64_t vector, std::int64_t b) {
        return static_cast<std::int32_t>(payload[vector * kVectorBytes + lane * 4 + b]);
    };
    const std::int64_t b = column % 4;
    const std::int64_t s = column / 4;
    switch (kind) {
        case WeightKind::Float32:
            break;
        case WeightKind::Int8:
            return byte(s, b) - 128;
        case WeightKind::Int4:
            return ((byte(s / 2, b) >> (s % 2 * 4)) & 15) - 8;
        case WeightKind::Int3: {
            const std::int32_t low = (byte(s / 4, b) >> (s % 4 * 2)) & 3;
            const std::int32_t high = (byte(4 + s / 8, b) >> (s % 8)) & 1;
            return low + 4 * high - 4;
        }
        case WeightKind::Int2:
            return ((byte(s / 4, b) >> (s % 4 * 2)) & 3) - 2;
    }
    return 0;
}

/// One row's weights of one segment as integers, and the scales of its scale groups.
struct RowSegment {
    std::int8_t weights[kSegmentBlocks * kBlockColumns];
    float scales[kSegmentBlocks * 4];
};

void read_segment(const PackedLayout& layout,
                  const std::byte* group,
                  std::int64_t lane,
                  std::int64_t first_block,
                  std::int64_t n_blocks,
                  RowSegment* out) {
    for (std::int64_t k = 0; k < n_blocks; ++k) {
        const auto* payload =
            reinterpret_cast<const std::uint8_t*>(group) + payload_offset(layout, first_block + k);
        for (std::int64_t c = 0; c < kBlockColumns; ++c) {
            out->weights[k * kBlockColumns + c] =
                static_cast<std::int8_t>(weight_at(layout.kind, payload, lane, c));
        }
        const auto* scales =
            reinterpret_cast<const float*>(group + scales_offset(layout, first_block + k));
        for (std::int64_t v = 0; v < layout.scales_per_block; ++v) {
            out->scales[k * layout.scales_per_block + v] = scales[v * kGroupRows + lane];
        }
    }
}

/// acc of one segment for one token; q points at its dword 0, the next dword is `width` on.
float segment_sum(const RowSegment& row,
                  std::int64_t n_blocks,
                  std::int64_t scales_per_block,
                  const std::int8_t* q,
                  const float* token_scales,
                  std::int64_t width) {
    const std::int64_t columns = kBlockColumns / scales_per_block;
    float acc = 0.0f;
    for (std::int64_t block = 0; block < n_blocks * scales_per_block; ++block) {
        std::int32_t isum = 0;
        for (std::int64_t i = 0; i < columns; ++i) {
            const std::int64_t c = block * columns + i;
            isum += row.weights[c] * q[c / 4 * width * 4 + c % 4];
        }
        const float c = row.scales[block] * token_scales[block / scales_per_block * width];
        acc = __builtin_fmaf(static_cast<float>(isum), c, acc);
    }
    return acc;
}

}  // namespace

void matmul_tile_scalar(const TileWork& work) {
    const PackedLayout& layout = *work.layout;
    const Panels& panels = work.panels;
    RowSegment segment;
    for (std::int64_t row = 0; row < work.n_rows; ++row) {
        const std::byte* group = work.weights + row / kGroupRows * layout.group_bytes;
        for (std::int64_t block = 0; block < layout.n_blocks; block += kSegmentBlocks) {
            const std::int64_t left = layout.n_blocks - block;
            const std::int64_t n_blocks = left < kSegmentBlocks ? left : kSegmentBlocks;
            read_segment(layout, group, row % kGroupRows, block, n_blocks, &segment);
            for (std::int64_t t = 0; t < work.n_tokens; ++t) {
                const std::int64_t panel = work.first_panel + t / panels.width;
                const std::int64_t at =
                    (block * panels.n_panels + panel * n_blocks) * panels.width + t % panels.width;
                // One token's dwords lie `width` dwords apart: its first byte is 4 * (t % width).
                const std::int8_t* q =
                    panels.q +
                    (block * panels.n_panels + panel * n_blocks) * panels.width * kBlockColumns +
                    t % panels.width * 4;
                const float acc = segment_sum(segment, n_blocks, layout.scales_per_block, q,
                                              panels.scales + at, panels.width);
                float* out = work.out + t * work.out_stride + row;
                *out = (block == 0 ? 0.0f : *out) + acc;
            }
        }
    }
}

}  // namespace terrace::cpu
