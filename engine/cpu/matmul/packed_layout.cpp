#include "engine/cpu/matmul/packed_layout.h"

namespace terrace::cpu {

namespace {

std::int64_t bits_of(WeightKind kind) {
    switch (kind) {
        case WeightKind::Float32:
            return 32;
        case WeightKind::Int8:
            return 8;
        case WeightKind::Int4:
            return 4;
        case WeightKind::Int3:
            return 3;
        case WeightKind::Int2:
            return 2;
    }
    return 0;
}

}  // namespace

PackedLayout packed_layout(WeightFormat format, std::int64_t rows, std::int64_t cols) {
    PackedLayout layout;
    layout.kind = format.kind;
    layout.n_groups = round_up(rows, kGroupRows) / kGroupRows;
    layout.n_blocks = round_up(cols, kBlockColumns) / kBlockColumns;
    layout.payload_bytes = kGroupRows * kBlockColumns * bits_of(format.kind) / 8;
    if (format.group == 0) {
        layout.unit_blocks = layout.n_blocks;
    } else if (format.group < kBlockColumns) {
        layout.scales_per_block = kBlockColumns / format.group;
    } else {
        layout.unit_blocks = format.group / kBlockColumns;
    }
    const std::int64_t n_units = round_up(layout.n_blocks, layout.unit_blocks) / layout.unit_blocks;
    layout.group_bytes =
        n_units * layout.scales_per_block * kVectorBytes + layout.n_blocks * layout.payload_bytes;
    return layout;
}

std::int64_t scales_offset(const PackedLayout& layout, std::int64_t block) {
    const std::int64_t unit = block / layout.unit_blocks;
    return unit *
           (layout.scales_per_block * kVectorBytes + layout.unit_blocks * layout.payload_bytes);
}

std::int64_t payload_offset(const PackedLayout& layout, std::int64_t block) {
    return scales_offset(layout, block) + layout.scales_per_block * kVectorBytes +
           block % layout.unit_blocks * layout.payload_bytes;
}

std::int32_t stored_offset(WeightKind kind) {
    return kind == WeightKind::Float32 ? 0 : 1 << (bits_of(kind) - 1);
}

}  // namespace terrace::cpu
