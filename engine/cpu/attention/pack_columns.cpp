#include "engine/cpu/attention/pack_columns.h"

#include <cstring>

namespace terrace::cpu {

namespace {

/// Weight `col` of a row in the container's layout (container.md 2.3).
int raw_value(WeightKind kind, const std::uint8_t* row, std::int64_t col) {
    switch (kind) {
        case WeightKind::Int8:
            return static_cast<std::int8_t>(row[col]);
        case WeightKind::Int4:
            return ((row[col / 2] >> (col % 2 * 4)) & 15) - 8;
        case WeightKind::Int3: {
            const std::uint8_t* group = row + col / 64 * 24;
            const std::int64_t k = col % 64;
            const int low = (group[k / 4] >> (k % 4 * 2)) & 3;
            const int high = (group[16 + k / 8] >> (k % 8)) & 1;
            return low + 4 * high - 4;
        }
        case WeightKind::Int2:
            return ((row[col / 4] >> (col % 4 * 2)) & 3) - 2;
        case WeightKind::Float32:
            break;
    }
    return 0;
}

void pack_bytes(const RawMatrix& raw, const ColumnLayout& layout, std::uint8_t* out) {
    std::memset(out, 128, static_cast<std::size_t>(layout.n_chunks * layout.chunk_bytes));
    for (std::int64_t r = 0; r < raw.rows; ++r) {
        const auto* row = reinterpret_cast<const std::uint8_t*>(raw.payload) +
                          r * raw_row_bytes(raw.format.kind, raw.cols);
        for (std::int64_t c = 0; c < raw.cols; ++c) {
            const std::int64_t at =
                c / kColumnChunk * layout.chunk_bytes + r / 4 * 256 + c % kColumnChunk * 4 + r % 4;
            out[at] = static_cast<std::uint8_t>(raw_value(raw.format.kind, row, c) + 128);
        }
    }
}

void pack_nibbles(const RawMatrix& raw, const ColumnLayout& layout, std::uint8_t* out) {
    std::memset(out, 0x88, static_cast<std::size_t>(layout.n_chunks * layout.chunk_bytes));
    for (std::int64_t r = 0; r < raw.rows; ++r) {
        const auto* row = reinterpret_cast<const std::uint8_t*>(raw.payload) +
                          r * raw_row_bytes(raw.format.kind, raw.cols);
        const int shift = r % 8 < 4 ? 0 : 4;
        for (std::int64_t c = 0; c < raw.cols; ++c) {
            const std::int64_t at =
                c / kColumnChunk * layout.chunk_bytes + r / 8 * 256 + c % kColumnChunk * 4 + r % 4;
            const int value = raw_value(raw.format.kind, row, c) + 8;
            out[at] = static_cast<std::uint8_t>((out[at] & (0xf0 >> shift)) | (value << shift));
        }
    }
}

}  // namespace

ColumnLayout::ColumnLayout(WeightFormat format, std::int64_t n_rows, std::int64_t n_cols)
    : rows(n_rows),
      cols(n_cols),
      rows64(round_up(n_rows, kQuantGroup)),
      n_chunks(round_up(n_cols, kColumnChunk) / kColumnChunk) {
    if (format.kind == WeightKind::Float32) {
        row_stride = round_up(cols, 16);
        bytes = round_up(rows * row_stride * 4, 64);
        return;
    }
    chunk_bytes = rows64 * kColumnChunk / (format.kind == WeightKind::Int8 ? 1 : 2);
    n_groups = scales_per_row(format, cols);
    group_columns = format.group == 0 ? round_up(cols, kColumnChunk) : format.group;
    scales_offset = n_chunks * chunk_bytes;
    bytes = scales_offset + n_groups * rows64 * 4;
}

std::int64_t packed_column_bytes(WeightFormat format, std::int64_t rows, std::int64_t cols) {
    return ColumnLayout(format, rows, cols).bytes;
}

void pack_columns(const RawMatrix& raw, std::byte* out) {
    const ColumnLayout layout(raw.format, raw.rows, raw.cols);
    if (raw.format.kind == WeightKind::Float32) {
        std::memset(out, 0, static_cast<std::size_t>(layout.bytes));
        for (std::int64_t r = 0; r < raw.rows; ++r) {
            std::memcpy(out + r * layout.row_stride * 4, raw.payload + r * raw.cols * 4,
                        static_cast<std::size_t>(raw.cols * 4));
        }
        return;
    }
    auto* bytes = reinterpret_cast<std::uint8_t*>(out);
    if (raw.format.kind == WeightKind::Int8) {
        pack_bytes(raw, layout, bytes);
    } else {
        pack_nibbles(raw, layout, bytes);
    }
    auto* scales = reinterpret_cast<float*>(out + layout.scales_offset);
    std::memset(scales, 0, static_cast<std::size_t>(layout.n_groups * layout.rows64 * 4));
    for (std::int64_t r = 0; r < raw.rows; ++r) {
        for (std::int64_t g = 0; g < layout.n_groups; ++g) {
            scales[g * layout.rows64 + r] = raw.scales[r * layout.n_groups + g];
        }
    }
}

}  // namespace terrace::cpu
