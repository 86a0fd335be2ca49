// Rewrites container matrices in the layout of packed_layout.h. Runs on reader threads while
// experts enter their slots, so it must keep up with a disk.
#include <cstring>

#include "engine/cpu/attention/pack_columns.h"
#include "engine/cpu/matmul.h"
#include "engine/cpu/matmul/packed_layout.h"

namespace terrace::cpu {

namespace {

// A whole block of one row is at most this many dwords.
constexpr std::int64_t kMaxDwords = 16;

using Dwords = std::uint32_t[kMaxDwords];

std::uint32_t swap_bits(std::uint32_t x, int distance, std::uint32_t mask) {
    const std::uint32_t t = (x ^ (x >> distance)) & mask;
    return x ^ t ^ (t << distance);
}

// Nibbles 0 1 2 3 4 5 6 7 become 0 4 1 5 2 6 3 7: the low ones then are the first four columns.
std::uint32_t spread_nibbles(std::uint32_t x) {
    return swap_bits(swap_bits(x, 8, 0x0000ff00u), 4, 0x00f000f0u);
}

// The pairs of a dword as a 4 x 4 matrix, transposed: pair s of byte b becomes column 4s + b.
std::uint32_t spread_pairs(std::uint32_t x) {
    return swap_bits(swap_bits(x, 6, 0x00cc00ccu), 12, 0x0000f0f0u);
}

// Bit 4s + b goes to bit s of byte b.
std::uint32_t spread_bits(std::uint32_t x) {
    std::uint32_t out = 0;
    for (int b = 0; b < 4; ++b) {
        std::uint32_t y = (x >> b) & 0x11111111u;
        y = (y | (y >> 3)) & 0x03030303u;
        y = (y | (y >> 6)) & 0x000f000fu;
        y = (y | (y >> 12)) & 0xffu;
        out |= y << (8 * b);
    }
    return out;
}

void spread(WeightKind kind, Dwords x) {
    switch (kind) {
        case WeightKind::Float32:
            break;
        case WeightKind::Int8:
            for (int j = 0; j < 16; ++j) {
                x[j] ^= 0x80808080u;
            }
            break;
        case WeightKind::Int4:
            for (int j = 0; j < 8; ++j) {
                x[j] = spread_nibbles(x[j]);
            }
            break;
        case WeightKind::Int3:
            for (int j = 0; j < 4; ++j) {
                x[j] = spread_pairs(x[j]);
            }
            x[4] = spread_bits(x[4]);
            x[5] = spread_bits(x[5]);
            break;
        case WeightKind::Int2:
            for (int j = 0; j < 4; ++j) {
                x[j] = spread_pairs(x[j]);
            }
            break;
    }
}

// One block of one group: row r of the raw block goes to lane r of every vector. Rows and columns
// that do not exist stay zero bits; their inputs are zero or their outputs are dropped.
void pack_payload(const RawMatrix& raw, std::int64_t group, std::int64_t block, std::byte* out) {
    const WeightKind kind = raw.format.kind;
    const std::int64_t row_bytes = raw_row_bytes(kind, raw.cols);
    const std::int64_t block_bytes = raw_row_bytes(kind, kBlockColumns);
    const std::int64_t begin = block * block_bytes;
    const std::int64_t left = row_bytes - begin;
    const auto bytes = static_cast<std::size_t>(left < block_bytes ? left : block_bytes);
    const std::int64_t n_rows = raw.rows - group * kGroupRows;
    auto* lanes = reinterpret_cast<std::uint32_t*>(out);
    for (std::int64_t r = 0; r < kGroupRows; ++r) {
        Dwords x = {};
        if (r < n_rows) {
            std::memcpy(x, raw.payload + (group * kGroupRows + r) * row_bytes + begin, bytes);
            spread(kind, x);
        }
        for (std::int64_t j = 0; j < block_bytes / 4; ++j) {
            lanes[j * kGroupRows + r] = x[j];
        }
    }
}

void pack_scales(const RawMatrix& raw,
                 const PackedLayout& layout,
                 std::int64_t group,
                 std::int64_t unit,
                 std::byte* out) {
    const std::int64_t per_row = scales_per_row(raw.format, raw.cols);
    auto* lanes = reinterpret_cast<float*>(out);
    for (std::int64_t v = 0; v < layout.scales_per_block; ++v) {
        const std::int64_t g = unit * layout.scales_per_block + v;
        for (std::int64_t r = 0; r < kGroupRows; ++r) {
            const std::int64_t row = group * kGroupRows + r;
            const bool exists = row < raw.rows && g < per_row;
            float scale = 0.0f;
            if (exists) {  // by bytes: nothing says that the container's scales are aligned
                std::memcpy(&scale,
                            reinterpret_cast<const std::byte*>(raw.scales) +
                                (row * per_row + g) * static_cast<std::int64_t>(sizeof scale),
                            sizeof scale);
            }
            lanes[v * kGroupRows + r] = scale;
        }
    }
}

void pack_rows(const RawMatrix& raw, std::byte* out) {
    const PackedLayout layout = packed_layout(raw.format, raw.rows, raw.cols);
    for (std::int64_t group = 0; group < layout.n_groups; ++group) {
        std::byte* base = out + group * layout.group_bytes;
        for (std::int64_t block = 0; block < layout.n_blocks; ++block) {
            if (block % layout.unit_blocks == 0) {
                pack_scales(raw, layout, group, block / layout.unit_blocks,
                            base + scales_offset(layout, block));
            }
            pack_payload(raw, group, block, base + payload_offset(layout, block));
        }
    }
}

}  // namespace

std::int64_t packed_bytes(WeightFormat format,
                          WeightUse use,
                          std::int64_t rows,
                          std::int64_t cols) {
    if (use == WeightUse::ColumnSum) {
        return packed_column_bytes(format, rows, cols);
    }
    if (!format.quantised()) {
        return round_up(rows * cols * 4, kVectorBytes);
    }
    const PackedLayout layout = packed_layout(format, rows, cols);
    return layout.n_groups * layout.group_bytes;
}

void pack(const RawMatrix& raw, WeightUse use, std::byte* out) {
    if (use == WeightUse::ColumnSum) {
        pack_columns(raw, out);
    } else if (!raw.format.quantised()) {
        const std::int64_t bytes = raw.rows * raw.cols * 4;
        std::memcpy(out, raw.payload, static_cast<std::size_t>(bytes));
        std::memset(out + bytes, 0,
                    static_cast<std::size_t>(round_up(bytes, kVectorBytes) - bytes));
    } else {
        pack_rows(raw, out);
    }
}

}  // namespace terrace::cpu
