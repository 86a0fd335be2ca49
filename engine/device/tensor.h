// Views of memory that somebody else owns, and the formats in which weights are held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace terrace {

/// Rounds n up to a whole number of units.
[[nodiscard]] constexpr std::int64_t round_up(std::int64_t n, std::int64_t unit) {
    return (n + unit - 1) / unit * unit;
}

/// Inputs are quantised in groups of this many (arithmetic.md 1).
inline constexpr std::int64_t kQuantGroup = 64;

/// Attention is computed in blocks of this many consecutive ranks (arithmetic.md 3).
inline constexpr std::int64_t kAttentionBlock = 256;

/// What one stored weight is.
enum class WeightKind : std::uint8_t { Float32, Int8, Int4, Int3, Int2 };

/// Kind and scale group of a weight matrix. Legal groups: 0 (one scale a row), 16, 32, 64, 128,
/// 256. int3 is always group 64, int2 and int8 are stored per row by the known writers.
struct WeightFormat {
    WeightKind kind = WeightKind::Float32;
    std::int32_t group = 0;

    bool operator==(const WeightFormat&) const = default;

    [[nodiscard]] bool quantised() const { return kind != WeightKind::Float32; }
};

/// A weight matrix as the reference container stores it (container.md 2.3); does not own.
///   payload  rows one after another, each row a whole number of bytes (`raw_row_bytes`);
///            float32 rows for Float32
///   scales   [rows, groups a row] f32, null for Float32
struct RawMatrix {
    WeightFormat format;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    const std::byte* payload = nullptr;
    const float* scales = nullptr;
};

/// Bytes of one row of `cols` weights in the container's layout.
[[nodiscard]] constexpr std::int64_t raw_row_bytes(WeightKind kind, std::int64_t cols) {
    switch (kind) {
        case WeightKind::Float32:
            return cols * 4;
        case WeightKind::Int8:
            return cols;
        case WeightKind::Int4:
            return (cols + 1) / 2;
        case WeightKind::Int3:
            return (cols + 63) / 64 * 24;
        case WeightKind::Int2:
            return (cols + 3) / 4;
    }
    return 0;
}

/// Scales of one row: one for the whole row, or one for every group of columns.
[[nodiscard]] constexpr std::int64_t scales_per_row(WeightFormat format, std::int64_t cols) {
    if (format.kind == WeightKind::Float32) {
        return 0;
    }
    return format.group == 0 ? 1 : (cols + format.group - 1) / format.group;
}

/// The rows that `first` .. `first + n` of a raw matrix are; no copy.
[[nodiscard]] inline RawMatrix raw_rows(const RawMatrix& m, std::int64_t first, std::int64_t n) {
    RawMatrix part = m;
    part.rows = n;
    part.payload = m.payload + first * raw_row_bytes(m.format.kind, m.cols);
    part.scales =
        m.scales == nullptr ? nullptr : m.scales + first * scales_per_row(m.format, m.cols);
    return part;
}

/// What a packed matrix is for: the two integer products of arithmetic.md want other layouts.
enum class WeightUse : std::uint8_t { RowDot, ColumnSum };

/// A weight matrix in the layout that the device's kernels read; written by Ops::pack, opaque to
/// everybody else; does not own.
struct WeightMatrix {
    WeightFormat format;
    WeightUse use = WeightUse::RowDot;
    std::int64_t rows = 0;            ///< outputs
    std::int64_t cols = 0;            ///< inputs
    const std::byte* data = nullptr;  ///< Ops::packed_bytes long, aligned to 64
};

/// One packed matrix for each attention head, all of one shape.
struct HeadMatrices {
    WeightMatrix first;  ///< head 0
    std::int64_t n_heads = 0;
    std::int64_t stride_bytes = 0;  ///< from one head's data to the next; a multiple of 64

    [[nodiscard]] WeightMatrix head(std::int64_t h) const {
        WeightMatrix m = first;
        m.data += h * stride_bytes;
        return m;
    }
};

/// Rows of activations in both forms that a weight may ask for; does not own.
///   values  [n_rows, width]             f32, row stride `stride` numbers
///   q       [n_rows, round_up(width,64)] int8 from quantise8, padding is 0; null in a float
///   session scales  [n_rows, q_stride / 64]     f32, one for every 64 inputs sums    [n_rows,
///   q_stride / 64]     int32, sum of the 64 q of the group (saves kernels the
///           offset of unsigned weights)
/// q is aligned to 64 bytes.
struct ActivationRows {
    float* values = nullptr;
    std::int64_t stride = 0;
    std::int8_t* q = nullptr;
    float* scales = nullptr;
    std::int32_t* sums = nullptr;
    std::int64_t n_rows = 0;
    std::int64_t width = 0;

    [[nodiscard]] std::int64_t q_stride() const { return round_up(width, kQuantGroup); }

    [[nodiscard]] std::int64_t n_groups() const { return q_stride() / kQuantGroup; }

    /// The rows `first` .. `first + n`; no copy.
    [[nodiscard]] ActivationRows rows(std::int64_t begin, std::int64_t n) const {
        ActivationRows part = *this;
        part.n_rows = n;
        part.values = values == nullptr ? nullptr : values + begin * stride;
        part.q = q == nullptr ? nullptr : q + begin * q_stride();
        part.scales = scales == nullptr ? nullptr : scales + begin * n_groups();
        part.sums = sums == nullptr ? nullptr : sums + begin * n_groups();
        return part;
    }
};

/// Float rows; does not own.
struct FloatRows {
    float* data = nullptr;
    std::int64_t n_rows = 0;
    std::int64_t width = 0;
    std::int64_t stride = 0;

    [[nodiscard]] float* row(std::int64_t r) const { return data + r * stride; }
};

/// Which position each row of an op is, and in which layer: how a numeric fault is named.
struct RowScope {
    const std::int32_t* positions = nullptr;  ///< [n_rows]
    std::int32_t layer = 0;
};

}  // namespace terrace
