#include "engine/model/format_inference.h"

#include <array>
#include <utility>

#include "engine/device/tensor.h"
#include "engine/model/printable.h"

namespace terrace {
namespace {

constexpr std::array<std::int64_t, 8> kGroupSizes = {16, 32, 48, 64, 96, 128, 192, 256};
constexpr const char* kDamaged =
    "Download the file again; if it stays so, convert the model's original files.";

std::int64_t blocks(std::int64_t n, std::int64_t size) {
    return (n + size - 1) / size;
}

std::string bytes_text(const PayloadFacts& f) {
    return "int8 " + std::to_string(f.rows * f.cols) + ", int4 " +
           std::to_string(f.rows * blocks(f.cols, 2)) + ", int3 " +
           std::to_string(f.rows * blocks(f.cols, 64) * 24) + ", int2 " +
           std::to_string(f.rows * blocks(f.cols, 4));
}

Error wrong_scales(const PayloadFacts& f, const std::string& expected) {
    return {ErrorCode::Corrupt,
            expected + " scales were expected for " + std::to_string(f.payload_bytes) +
                " payload bytes, " + std::to_string(f.n_scales) + " were found",
            "", kDamaged};
}

Error unsupported(const std::string& what) {
    return {ErrorCode::Unsupported, what, "",
            "Convert the model's original files with \"terrace-cli convert\"."};
}

Result<InferredFormat> grouped_int4(const PayloadFacts& f) {
    if (f.n_scales == f.rows) {
        return InferredFormat{Storage::Int4, 0};
    }
    std::int64_t group = 0;
    if (f.stated_group) {
        group = *f.stated_group;
        if (group <= 0 || f.rows * blocks(f.cols, group) != f.n_scales) {
            return wrong_scales(f,
                                "__metadata__ says groups of " + std::to_string(group) + ": " +
                                    std::to_string(group > 0 ? f.rows * blocks(f.cols, group) : 0));
        }
    }
    for (std::size_t i = 0; group == 0 && i < kGroupSizes.size(); ++i) {
        if (f.n_scales > f.rows && f.rows * blocks(f.cols, kGroupSizes[i]) == f.n_scales) {
            group = kGroupSizes[i];
        }
    }
    if (group == 0) {
        return wrong_scales(f, std::to_string(f.rows) + " (int4 with one a row) or " +
                                   std::to_string(f.rows * blocks(f.cols, 64)) +
                                   " (int4 in groups of 64)");
    }
    if (group != 16 && group != 32 && group != 64 && group != 128 && group != 256) {
        return unsupported(
            "int4 scales in groups of 16, 32, 64, 128 or 256 were expected, groups "
            "of " +
            std::to_string(group) + " were found");
    }
    return InferredFormat{Storage::Int4, static_cast<std::int32_t>(group)};
}

Result<InferredFormat> by_bytes(const PayloadFacts& f) {
    const std::int64_t fp8_scales = blocks(f.rows, 128) * blocks(f.cols, 128);
    if (f.n_scales == 1 && f.payload_bytes == f.rows * blocks(f.cols, 256) * 98) {
        return unsupported(
            "int8, int4, int3 or int2 was expected, the E8 lattice format was found");
    }
    if (f.payload_bytes == f.rows * f.cols) {
        if (f.n_scales == f.rows && f.stated_format != "fp8-e4m3-b128") {
            return InferredFormat{Storage::Int8, 0};
        }
        if (f.n_scales == fp8_scales) {
            return InferredFormat{Storage::F8E4M3, 0};
        }
        return wrong_scales(
            f, std::to_string(f.rows) + " (int8) or " + std::to_string(fp8_scales) + " (fp8)");
    }
    if (f.payload_bytes == f.rows * blocks(f.cols, 2)) {
        return grouped_int4(f);
    }
    if (f.payload_bytes == f.rows * blocks(f.cols, 4)) {
        if (f.n_scales == f.rows) {
            return InferredFormat{Storage::Int2, 0};
        }
        return wrong_scales(f, std::to_string(f.rows) + " (int2)");
    }
    if (f.payload_bytes == f.rows * blocks(f.cols, 64) * 24) {
        if (f.n_scales == f.rows * blocks(f.cols, 64)) {
            return InferredFormat{Storage::Int3, 64};
        }
        return wrong_scales(f, std::to_string(f.rows * blocks(f.cols, 64)) + " (int3)");
    }
    return Error{ErrorCode::Corrupt,
                 "payload bytes for " + std::to_string(f.rows) + " x " + std::to_string(f.cols) +
                     " weights were expected (" + bytes_text(f) + "), " +
                     std::to_string(f.payload_bytes) + " were found",
                 "", kDamaged};
}

/// The names a stamp may use, and what they mean; the short ones are what people write by hand.
bool stamp_agrees(std::string_view stamp, InferredFormat found) {
    const std::array<std::pair<std::string_view, bool>, 9> names = {{
        {"int8-row", found.storage == Storage::Int8},
        {"int8", found.storage == Storage::Int8},
        {"int4-row", found.storage == Storage::Int4 && found.group == 0},
        {"int4-grouped", found.storage == Storage::Int4 && found.group != 0},
        {"int4", found.storage == Storage::Int4},
        {"int3-g64", found.storage == Storage::Int3},
        {"int2-row", found.storage == Storage::Int2},
        {"int2", found.storage == Storage::Int2},
        {"fp8-e4m3-b128", found.storage == Storage::F8E4M3},
    }};
    for (const auto& [name, agrees] : names) {
        if (name == stamp) {
            return agrees;
        }
    }
    return false;
}

}  // namespace

Result<InferredFormat> infer_format(const PayloadFacts& facts) {
    Result<InferredFormat> found = by_bytes(facts);
    if (found && !facts.stated_format.empty() && !stamp_agrees(facts.stated_format, *found)) {
        return Error{ErrorCode::Corrupt,
                     "the file's own label (colibri.fmt) says \"" +
                         printable(facts.stated_format, 60) + "\", its bytes say " +
                         to_string(found->storage) +
                         (found->group == 0 ? std::string()
                                            : " in groups of " + std::to_string(found->group)),
                     "", kDamaged};
    }
    return found;
}

}  // namespace terrace
