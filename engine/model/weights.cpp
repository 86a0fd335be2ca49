#include "engine/model/weights.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "engine/device/check.h"
#include "engine/device/float_formats.h"
#include "engine/model/quantise.h"

namespace terrace {
namespace {

constexpr std::int64_t kFp8Block = 128;

WeightKind kind_of(Storage storage) {
    switch (storage) {
        case Storage::Int8:
            return WeightKind::Int8;
        case Storage::Int4:
            return WeightKind::Int4;
        case Storage::Int3:
            return WeightKind::Int3;
        case Storage::Int2:
            return WeightKind::Int2;
        default:
            return WeightKind::Float32;
    }
}

std::int64_t float_bytes(Storage storage) {
    return storage == Storage::F32 ? 4 : storage == Storage::F8E4M3 ? 1 : 2;
}

bool aligned_to_float(const std::byte* bytes) {
    return reinterpret_cast<std::uintptr_t>(bytes) % alignof(float) == 0;
}

std::int64_t scale_bytes(ScaleStorage storage) {
    return storage == ScaleStorage::F32 ? 4 : storage == ScaleStorage::BF16 ? 2 : 1;
}

float load_scale(std::span<const std::byte> scales, ScaleStorage storage, std::int64_t i) {
    const std::byte* at = scales.data() + i * scale_bytes(storage);
    float value = 0.0F;
    switch (storage) {
        case ScaleStorage::F32:
            std::memcpy(&value, at, sizeof(value));
            break;
        case ScaleStorage::BF16:
            widen_bf16(at, 1, &value);
            break;
        case ScaleStorage::UE8M0:
            value = from_ue8m0(std::to_integer<std::uint8_t>(*at));
            break;
        case ScaleStorage::None:
            break;
    }
    return value;
}

bool usable_scale(float scale) {
    return scale == 0.0F || (scale >= kMinScale && scale <= kMaxScale);
}

/// usable_scale of all of them, without branches: millions are checked for every expert read.
bool all_usable(std::span<const std::byte> scales) {
    constexpr auto kSmallest = std::bit_cast<std::uint32_t>(kMinScale);
    constexpr auto kSpan = std::bit_cast<std::uint32_t>(kMaxScale) - kSmallest;
    std::uint32_t n_bad = 0;
    for (std::size_t at = 0; at + sizeof(float) <= scales.size(); at += sizeof(float)) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, scales.data() + at, sizeof(bits));
        const bool zero = bits << 1U == 0;
        n_bad += static_cast<std::uint32_t>(bits - kSmallest > kSpan && !zero);
    }
    return n_bad == 0;
}

/// Rows of float weights, widened one at a time.
class RowReader {
public:
    RowReader(const TensorSource& source,
              std::span<const std::byte> payload,
              std::span<const std::byte> scales)
        : source_(source), payload_(payload), scales_(scales) {}

    /// out [cols] f32
    void read(std::int64_t row, float* out) const {
        const std::byte* at = payload_.data() + row * source_.cols * float_bytes(source_.storage);
        switch (source_.storage) {
            case Storage::F32:
                std::memcpy(out, at, static_cast<std::size_t>(source_.cols) * sizeof(float));
                return;
            case Storage::BF16:
                return widen_bf16(at, source_.cols, out);
            case Storage::F16:
                return widen_f16(at, source_.cols, out);
            case Storage::F8E4M3:
                widen_e4m3fn(at, source_.cols, out);
                return scale_blocks(row, out);
            default:
                CHECK(!source_.quantised());
        }
    }

private:
    void scale_blocks(std::int64_t row, float* out) const {
        const std::int64_t n_blocks = (source_.cols + kFp8Block - 1) / kFp8Block;
        const std::int64_t first = (source_.first_row + row) / kFp8Block * n_blocks;
        for (std::int64_t block = 0; block < n_blocks; ++block) {
            const float scale = load_scale(scales_, source_.scale_storage, first + block);
            const std::int64_t end = std::min((block + 1) * kFp8Block, source_.cols);
            for (std::int64_t c = block * kFp8Block; c < end; ++c) {
                out[c] *= scale;
            }
        }
    }

    const TensorSource& source_;
    std::span<const std::byte> payload_;
    std::span<const std::byte> scales_;
};

/// The stored integers as they are: no copy, unless the scales are not aligned.
void adopt(const TensorSource& source,
           std::span<const std::byte> payload,
           std::span<const std::byte> scales,
           RawWeight& out) {
    out.matrix.format = {kind_of(source.storage), source.group};
    out.matrix.payload = payload.data();
    if (aligned_to_float(scales.data())) {
        out.matrix.scales = reinterpret_cast<const float*>(scales.data());
        return;
    }
    out.scales.resize(scales.size() / sizeof(float));
    std::memcpy(out.scales.data(), scales.data(), scales.size());
    out.matrix.scales = out.scales.data();
}

float* make_floats(const TensorSource& source, RawWeight& out) {
    out.payload.resize(static_cast<std::size_t>(source.rows * source.cols) * sizeof(float));
    out.matrix.format = {};
    out.matrix.payload = out.payload.data();
    return reinterpret_cast<float*>(out.payload.data());
}

void dequantise(const TensorSource& source,
                std::span<const std::byte> payload,
                std::span<const std::byte> scales,
                RawWeight& out) {
    const WeightFormat format{kind_of(source.storage), source.group};
    RawWeight stored;
    adopt(source, payload, scales, stored);
    float* floats = make_floats(source, out);
    const std::int64_t row_bytes = raw_row_bytes(format.kind, source.cols);
    const std::int64_t row_scales = scales_per_row(format, source.cols);
    for (std::int64_t row = 0; row < source.rows; ++row) {
        dequantise_row(payload.data() + row * row_bytes, stored.matrix.scales + row * row_scales,
                       format, {floats + row * source.cols, static_cast<std::size_t>(source.cols)});
    }
}

Status quantise(const TensorSource& source,
                const RowReader& rows,
                WeightFormat target,
                RawWeight& out) {
    const std::int64_t row_bytes = raw_row_bytes(target.kind, source.cols);
    const std::int64_t row_scales = scales_per_row(target, source.cols);
    out.payload.resize(static_cast<std::size_t>(source.rows * row_bytes));
    out.scales.resize(static_cast<std::size_t>(source.rows * row_scales));
    std::vector<float> w(static_cast<std::size_t>(source.cols));
    for (std::int64_t row = 0; row < source.rows; ++row) {
        rows.read(row, w.data());
        if (const auto fault = quantise_row(w, target, out.payload.data() + row * row_bytes,
                                            out.scales.data() + row * row_scales)) {
            return quantise_error(source.name, row, *fault);
        }
    }
    out.matrix.format = target;
    out.matrix.payload = out.payload.data();
    out.matrix.scales = out.scales.data();
    return {};
}

std::int64_t row_of_scale(const TensorSource& source, std::int64_t i) {
    if (!source.quantised()) {
        return i / ((source.cols + kFp8Block - 1) / kFp8Block) * kFp8Block;
    }
    return i / scales_per_row({kind_of(source.storage), source.group}, source.cols);
}

}  // namespace

const char* to_string(Storage storage) {
    switch (storage) {
        case Storage::F32:
            return "f32";
        case Storage::F16:
            return "f16";
        case Storage::BF16:
            return "bf16";
        case Storage::F8E4M3:
            return "fp8";
        case Storage::Int8:
            return "int8";
        case Storage::Int4:
            return "int4";
        case Storage::Int3:
            return "int3";
        case Storage::Int2:
            return "int2";
    }
    return "unknown";
}

WeightFormat target_format(const TensorSource& source, FolderKind folder, SessionKind session) {
    if (session == SessionKind::Float) {
        return {};
    }
    if (source.quantised()) {
        return {kind_of(source.storage), source.group};
    }
    const bool float_role = source.role == TensorRole::Vector || source.role == TensorRole::Router;
    if (folder == FolderKind::Container || float_role) {
        return {};
    }
    const bool int8_role = source.in_mtp_layer || source.role == TensorRole::Embedding ||
                           source.role == TensorRole::Head || source.role == TensorRole::Indexer;
    return int8_role ? WeightFormat{WeightKind::Int8, 0} : WeightFormat{WeightKind::Int4, 64};
}

Status check_scales(const TensorSource& source, std::span<const std::byte> scales) {
    if (source.scale_storage == ScaleStorage::None) {
        return {};
    }
    if (source.scale_storage == ScaleStorage::F32 && all_usable(scales)) {
        return {};
    }
    const std::int64_t n =
        static_cast<std::int64_t>(scales.size()) / scale_bytes(source.scale_storage);
    for (std::int64_t i = 0; i < n; ++i) {
        const float scale = load_scale(scales, source.scale_storage, i);
        if (!usable_scale(scale)) {
            char value[32];
            std::snprintf(value, sizeof(value), "%g", static_cast<double>(scale));
            return Error{ErrorCode::Corrupt,
                         "row " + std::to_string(row_of_scale(source, i)) +
                             ": a scale of 0 or between 2^-40 and 2^40 was expected, " + value +
                             " was found (scale number " + std::to_string(i) + ")",
                         source.name,
                         "Download the file again; if it stays so, the published weights are "
                         "damaged."};
        }
    }
    return {};
}

Result<RawWeight> materialise(const TensorSource& source,
                              std::span<const std::byte> payload,
                              std::span<const std::byte> scales,
                              WeightFormat target) {
    CHECK(static_cast<std::int64_t>(payload.size()) == source.payload.bytes);
    CHECK(static_cast<std::int64_t>(scales.size()) == source.scales.bytes);
    if (Status usable = check_scales(source, scales); !usable) {
        return std::move(usable).error();
    }
    RawWeight out;
    out.matrix.rows = source.rows;
    out.matrix.cols = source.cols;
    if (source.quantised()) {
        if (target == WeightFormat{kind_of(source.storage), source.group}) {
            adopt(source, payload, scales, out);
        } else if (!target.quantised()) {
            dequantise(source, payload, scales, out);
        } else {
            return Error{ErrorCode::Unsupported,
                         std::string("the stored format was expected to be used as it is; ") +
                             to_string(source.storage) + " cannot become another integer format",
                         source.name, "Convert the model's original files instead."};
        }
        return out;
    }
    const RowReader rows(source, payload, scales);
    if (target.quantised()) {
        if (Status done = quantise(source, rows, target, out); !done) {
            return std::move(done).error();
        }
    } else if (source.storage == Storage::F32 && aligned_to_float(payload.data())) {
        out.matrix.payload = payload.data();
    } else {
        float* floats = make_floats(source, out);
        for (std::int64_t row = 0; row < source.rows; ++row) {
            rows.read(row, floats + row * source.cols);
        }
    }
    return out;
}

}  // namespace terrace
