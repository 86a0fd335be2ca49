#include "engine/model/quantise.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "engine/device/check.h"

namespace terrace {
namespace {

constexpr float kScaleFloor = 1e-8F;

/// What a kind of integer can hold; the known rule never produces `min` of int4 and int8.
struct IntegerKind {
    float q_max = 0.0F;
    float q_min = 0.0F;
};

IntegerKind integer_kind(WeightKind kind) {
    switch (kind) {
        case WeightKind::Int8:
            return {127.0F, -128.0F};
        case WeightKind::Int4:
            return {7.0F, -8.0F};
        case WeightKind::Int3:
            return {3.0F, -4.0F};
        case WeightKind::Int2:
            return {1.0F, -2.0F};
        case WeightKind::Float32:
            break;
    }
    CHECK(kind != WeightKind::Float32);
    return {};
}

/// Columns whose integers are made at a time; even groups of every legal size end on it.
constexpr std::size_t kChunk = 256;

/// Bits of the largest magnitude; 0x7F800000 and above means that something is not finite.
std::uint32_t largest_magnitude(std::span<const float> w) {
    std::uint32_t largest = 0;
    for (const float x : w) {
        largest = std::max(largest, std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFU);
    }
    return largest;
}

/// Column of the first weight with a magnitude of at least `bits`.
std::int64_t first_reaching(std::span<const float> w, std::uint32_t bits) {
    const auto it = std::find_if(w.begin(), w.end(), [&](float x) {
        return (std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFU) >= bits;
    });
    return it - w.begin();
}

/// Rounds to the nearest integer, ties to even, for |x| < 2^22: the sum has no room for fractions.
float round_even(float x) {
    constexpr float kShift = 12582912.0F;  // 1.5 * 2^23
    return (x + kShift) - kShift;
}

void quantise_chunk(std::span<const float> w, float scale, IntegerKind kind, std::int8_t* q) {
    for (std::size_t i = 0; i < w.size(); ++i) {
        const float rounded = round_even(w[i] / scale);
        q[i] = static_cast<std::int8_t>(std::clamp(rounded, kind.q_min, kind.q_max));
    }
}

std::uint8_t biased(std::int8_t q, int bias) {
    return static_cast<std::uint8_t>(q + bias);
}

void pack_int4(std::span<const std::int8_t> q, std::byte* out) {
    for (std::size_t i = 0; i < q.size(); i += 2) {
        // The unused nibble of an odd row is 0, not 8.
        const unsigned high = i + 1 < q.size() ? biased(q[i + 1], 8) : 0U;
        out[i / 2] = static_cast<std::byte>(biased(q[i], 8) | high << 4U);
    }
}

void pack_int2(std::span<const std::int8_t> q, std::byte* out) {
    std::memset(out, 0, (q.size() + 3) / 4);
    for (std::size_t i = 0; i < q.size(); ++i) {
        out[i / 4] |= static_cast<std::byte>(biased(q[i], 2) << (2 * (i % 4)));
    }
}

/// Groups of 64: 16 bytes of low pairs, then 8 bytes of high bits.
void pack_int3(std::span<const std::int8_t> q, std::byte* out) {
    const std::size_t n_groups = (q.size() + 63) / 64;
    std::memset(out, 0, n_groups * 24);
    for (std::size_t i = 0; i < q.size(); ++i) {
        std::byte* group = out + i / 64 * 24;
        const std::size_t k = i % 64;
        const unsigned u = biased(q[i], 4);
        group[k / 4] |= static_cast<std::byte>((u & 3U) << (2 * (k % 4)));
        group[16 + k / 8] |= static_cast<std::byte>((u >> 2U) << (k % 8));
    }
}

/// `first` is a multiple of kChunk, so a chunk always begins at a whole byte and a whole group.
void pack(std::span<const std::int8_t> q, WeightKind kind, std::size_t first, std::byte* row) {
    switch (kind) {
        case WeightKind::Int8:
            std::memcpy(row + first, q.data(), q.size());
            return;
        case WeightKind::Int4:
            return pack_int4(q, row + first / 2);
        case WeightKind::Int3:
            return pack_int3(q, row + first / 64 * 24);
        case WeightKind::Int2:
            return pack_int2(q, row + first / 4);
        case WeightKind::Float32:
            break;
    }
    CHECK(kind != WeightKind::Float32);
}

int unpack_one(const std::byte* row, WeightKind kind, std::size_t i) {
    const auto byte = [&](std::size_t k) { return std::to_integer<unsigned>(row[k]); };
    switch (kind) {
        case WeightKind::Int8:
            return static_cast<std::int8_t>(byte(i));
        case WeightKind::Int4:
            return static_cast<int>(byte(i / 2) >> (4 * (i % 2)) & 15U) - 8;
        case WeightKind::Int3: {
            const std::size_t group = i / 64 * 24;
            const std::size_t k = i % 64;
            const unsigned low = byte(group + k / 4) >> (2 * (k % 4)) & 3U;
            const unsigned high = byte(group + 16 + k / 8) >> (k % 8) & 1U;
            return static_cast<int>(low | high << 2U) - 4;
        }
        case WeightKind::Int2:
            return static_cast<int>(byte(i / 4) >> (2 * (i % 4)) & 3U) - 2;
        case WeightKind::Float32:
            break;
    }
    CHECK(kind != WeightKind::Float32);
    return 0;
}

/// The scale of one group, or what is wrong with it; columns count from the group's first.
std::optional<QuantiseFault> group_scale(std::span<const float> w, float q_max, float& scale) {
    const std::uint32_t largest = largest_magnitude(w);
    if (largest >= 0x7F800000U) {
        const std::int64_t column = first_reaching(w, 0x7F800000U);
        return QuantiseFault{QuantiseFault::Kind::NotFinite, column,
                             w[static_cast<std::size_t>(column)]};
    }
    scale = std::max(std::bit_cast<float>(largest) / q_max, kScaleFloor);
    if (scale > kMaxScale) {
        const std::int64_t column = first_reaching(w, largest);
        return QuantiseFault{QuantiseFault::Kind::ScaleTooLarge, column,
                             w[static_cast<std::size_t>(column)]};
    }
    return std::nullopt;
}

}  // namespace

std::optional<QuantiseFault> quantise_row(std::span<const float> w,
                                          WeightFormat format,
                                          std::byte* payload,
                                          float* scales) {
    const IntegerKind kind = integer_kind(format.kind);
    const std::size_t group = format.group == 0 ? w.size() : static_cast<std::size_t>(format.group);
    for (std::size_t g = 0, first = 0; first < w.size(); ++g, first += group) {
        const std::span part = w.subspan(first, std::min(group, w.size() - first));
        if (auto fault = group_scale(part, kind.q_max, scales[g])) {
            fault->column += static_cast<std::int64_t>(first);
            return fault;
        }
    }
    std::array<std::int8_t, kChunk> q{};
    for (std::size_t first = 0; first < w.size(); first += kChunk) {
        const std::size_t n = std::min(kChunk, w.size() - first);
        for (std::size_t at = 0; at < n;) {
            const std::size_t in_group = group - (first + at) % group;
            const std::size_t length = std::min(in_group, n - at);
            quantise_chunk(w.subspan(first + at, length), scales[(first + at) / group], kind,
                           q.data() + at);
            at += length;
        }
        pack(std::span(q).first(n), format.kind, first, payload);
    }
    return std::nullopt;
}

void dequantise_row(const std::byte* payload,
                    const float* scales,
                    WeightFormat format,
                    std::span<float> out) {
    const std::size_t group = format.group == 0 ? std::max<std::size_t>(out.size(), 1)
                                                : static_cast<std::size_t>(format.group);
    for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] = static_cast<float>(unpack_one(payload, format.kind, i)) * scales[i / group];
    }
}

Error quantise_error(const std::string& tensor, std::int64_t row, const QuantiseFault& fault) {
    const std::string place =
        "row " + std::to_string(row) + ", column " + std::to_string(fault.column) + ": ";
    const std::string what =
        fault.kind == QuantiseFault::Kind::NotFinite
            ? "a finite weight was expected, " + std::to_string(fault.value) + " was found"
            : "a weight was expected whose scale is at most 2^40, " + std::to_string(fault.value) +
                  " was found";
    return {ErrorCode::Corrupt, place + what, tensor,
            "Download the file again; if it stays so, the published weights are damaged."};
}

}  // namespace terrace
