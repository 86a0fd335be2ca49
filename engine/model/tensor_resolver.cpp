#include "engine/model/tensor_resolver.h"

#include <charconv>
#include <utility>

#include "engine/model/format_inference.h"
#include "engine/model/json_text.h"
#include "engine/model/printable.h"

namespace terrace {
namespace {

constexpr std::size_t kMaxStamps = 4096;
constexpr const char* kMismatch =
    "config.json and the weights belong to different models, or one of them is damaged: download "
    "both again.";

std::string size_text(const ExpectedSize& size) {
    return std::to_string(size.value) +
           (*size.key == '\0' ? "" : " (" + std::string(size.key) + ")");
}

std::string shape_text(const ExpectedTensor& expected) {
    return expected.is_vector()
               ? "[" + size_text(expected.cols) + "]"
               : "[" + size_text(expected.rows) + ", " + size_text(expected.cols) + "]";
}

bool has_shape(const StoredTensor& tensor, const ExpectedTensor& expected) {
    if (expected.is_vector()) {
        return tensor.rank == 1 && tensor.shape[0] == expected.cols.value;
    }
    return tensor.rank == 2 && tensor.shape[0] == expected.rows.value &&
           tensor.shape[1] == expected.cols.value;
}

std::optional<Storage> float_storage(Dtype dtype) {
    switch (dtype) {
        case Dtype::F32:
            return Storage::F32;
        case Dtype::F16:
            return Storage::F16;
        case Dtype::BF16:
            return Storage::BF16;
        case Dtype::F8E4M3:
            return Storage::F8E4M3;
        default:
            return std::nullopt;
    }
}

std::optional<ScaleStorage> scale_storage(Dtype dtype) {
    switch (dtype) {
        case Dtype::F32:
            return ScaleStorage::F32;
        case Dtype::BF16:
            return ScaleStorage::BF16;
        case Dtype::F8E8M0:
            return ScaleStorage::UE8M0;
        default:
            return std::nullopt;
    }
}

FileRange range_of(const ShardSet::Entry& entry) {
    return {entry.file, entry.tensor.begin, entry.tensor.bytes()};
}

TensorSource start(const ExpectedTensor& expected) {
    TensorSource out;
    out.name = expected.name;
    out.role = expected.role;
    out.layer = expected.layer;
    out.in_mtp_layer = expected.in_mtp_layer;
    out.rows = expected.rows.value;
    out.cols = expected.cols.value;
    return out;
}

std::int64_t blocks(std::int64_t n) {
    return (n + 127) / 128;
}

Error wrong_dtype(const StoredTensor& tensor, const ExpectedTensor& expected) {
    const bool must_be_float = expected.is_vector() || expected.role == TensorRole::Router;
    return {ErrorCode::Unsupported,
            std::string(must_be_float ? "F32, F16 or BF16"
                                      : "F32, F16, BF16, F8_E4M3 or U8 with scales") +
                " was expected, " + std::string(dtype_name(tensor.dtype)) + " was found",
            "", "Use the bf16 or fp8 files of this model, or a container made from them."};
}

}  // namespace

Result<TensorResolver> TensorResolver::create(ShardSet& shards) {
    TensorResolver resolver(shards);
    if (Status read = resolver.read_metadata(); !read) {
        return std::move(read).error();
    }
    return resolver;
}

Status TensorResolver::read_metadata() {
    facts_.resize(shards_->files.size());
    for (std::size_t i = 0; i < facts_.size(); ++i) {
        const std::map<std::string, std::string>& metadata = shards_->metadata[i];
        const std::string file = printable(shards_->files[i].name);
        if (const auto group = metadata.find(kMetadataGroup); group != metadata.end()) {
            const std::string& text = group->second;
            std::int64_t number = 0;
            const auto [end, error] =
                std::from_chars(text.data(), text.data() + text.size(), number);
            if (error != std::errc() || end != text.data() + text.size() || number < 0) {
                return Error{ErrorCode::Corrupt,
                             std::string(kMetadataGroup) + ": a number was expected, \"" +
                                 printable(text, 40) + "\" was found",
                             file, "Download the file again."};
            }
            facts_[i].group = number;
        }
        const auto stamps = metadata.find("colibri.fmt");
        if (stamps == metadata.end()) {
            continue;
        }
        const Result<nlohmann::json> map = parse_json(stamps->second);
        if (!map || !map->is_object() || map->size() > kMaxStamps) {
            return Error{ErrorCode::Corrupt,
                         "colibri.fmt in __metadata__: an object of at most " +
                             std::to_string(kMaxStamps) + " names was expected",
                         file, "Download the file again."};
        }
        for (const auto& [name, format] : map->items()) {
            facts_[i].stamps[name] =
                format.is_string() ? format.get<std::string>() : quoted(format);
        }
    }
    return {};
}

Error TensorResolver::at(const ShardSet::Entry& entry, Error error) const {
    const std::string where = printable(shards_->files[static_cast<std::size_t>(entry.file)].name) +
                              ": " + printable(entry.tensor.name);
    return std::move(error).in(where);
}

Status TensorResolver::resolve_float(const ShardSet::Entry& entry,
                                     const ExpectedTensor& expected,
                                     TensorSource& out) const {
    if (!has_shape(entry.tensor, expected)) {
        return at(entry, {ErrorCode::Corrupt,
                          "by config.json the shape " + shape_text(expected) + " was expected, " +
                              entry.tensor.shape_text() + " was found",
                          "", kMismatch});
    }
    if (const ShardSet::Entry* scales = shards_->find(expected.name + ".qs")) {
        return at(*scales, {ErrorCode::Corrupt,
                            "scales were expected beside integers, " + printable(expected.name) +
                                " is " + std::string(dtype_name(entry.tensor.dtype)),
                            "", "Download the files again."});
    }
    out.payload = range_of(entry);
    return {};
}

Status TensorResolver::resolve_fp8(const ShardSet::Entry& entry, TensorSource& out) {
    const std::string name = entry.tensor.name + "_scale_inv";
    ShardSet::Entry* scales = shards_->find(name);
    if (scales == nullptr) {
        return at(entry, {ErrorCode::Incomplete,
                          "the block scales " + printable(name) +
                              " were expected beside the fp8 weights, there are none",
                          "", "Download the model again, with all its files."});
    }
    scales->used = true;
    const StoredTensor& tensor = scales->tensor;
    const std::size_t rank = entry.tensor.rank;
    const std::int64_t rows = entry.tensor.shape[rank - 2];
    const std::int64_t cols = entry.tensor.shape[rank - 1];
    const std::optional<ScaleStorage> storage = scale_storage(tensor.dtype);
    const bool fits = tensor.rank == rank && tensor.shape[rank - 2] == blocks(rows) &&
                      tensor.shape[rank - 1] == blocks(cols) &&
                      (rank == 2 || tensor.shape[0] == entry.tensor.shape[0]);
    if (!storage || !fits) {
        return at(*scales, {ErrorCode::Corrupt,
                            "one F32, BF16 or F8_E8M0 scale for each 128 x 128 weights was "
                            "expected ([" +
                                std::to_string(blocks(rows)) + ", " + std::to_string(blocks(cols)) +
                                "]), " + tensor.shape_text() + " of " +
                                std::string(dtype_name(tensor.dtype)) + " was found",
                            "", kMismatch});
    }
    out.scale_storage = *storage;
    out.scales = range_of(*scales);
    return {};
}

Status TensorResolver::resolve_integers(const ShardSet::Entry& entry,
                                        const ExpectedTensor& expected,
                                        TensorSource& out) {
    const std::string name = expected.name + ".qs";
    ShardSet::Entry* scales = shards_->find(name);
    if (scales == nullptr) {
        return at(entry, {ErrorCode::Incomplete,
                          "the scales " + printable(name) +
                              " were expected beside the integers, there are none",
                          "", "Download the model again, with all its files."});
    }
    scales->used = true;
    if (scales->tensor.dtype != Dtype::F32) {
        return at(*scales, {ErrorCode::Unsupported,
                            "scales of F32 were expected, " +
                                std::string(dtype_name(scales->tensor.dtype)) + " was found",
                            "", "Convert the model's original files again."});
    }
    const FileFacts& file = facts_[static_cast<std::size_t>(entry.file)];
    const auto stamp = file.stamps.find(expected.name);
    const Result<InferredFormat> format =
        infer_format({expected.rows.value, expected.cols.value, entry.tensor.bytes(),
                      scales->tensor.n_elements(), file.group,
                      stamp == file.stamps.end() ? std::string() : stamp->second});
    if (!format) {
        Error error = format.error();
        error.message += "; config.json gives the shape " + shape_text(expected);
        return at(entry, std::move(error));
    }
    out.storage = format->storage;
    out.group = format->group;
    out.payload = range_of(entry);
    out.scale_storage = ScaleStorage::F32;
    out.scales = range_of(*scales);
    return {};
}

Result<std::optional<TensorSource>> TensorResolver::resolve(const ExpectedTensor& expected) {
    ShardSet::Entry* entry = shards_->find(expected.name);
    if (entry == nullptr) {
        return std::optional<TensorSource>();
    }
    entry->used = true;
    TensorSource out = start(expected);
    const bool must_be_float = expected.is_vector() || expected.role == TensorRole::Router;
    const Dtype dtype = entry->tensor.dtype;
    const std::optional<Storage> storage = float_storage(dtype);
    Status done;
    if (storage && !(must_be_float && *storage == Storage::F8E4M3)) {
        out.storage = *storage;
        done = resolve_float(*entry, expected, out);
        if (done && *storage == Storage::F8E4M3) {
            done = resolve_fp8(*entry, out);
        }
    } else if ((dtype == Dtype::U8 || dtype == Dtype::I8) && !must_be_float) {
        done = resolve_integers(*entry, expected, out);
    } else {
        done = at(*entry, wrong_dtype(entry->tensor, expected));
    }
    if (!done) {
        return std::move(done).error();
    }
    return std::optional(std::move(out));
}

Result<std::optional<TensorSource>> TensorResolver::resolve_slice(const ExpectedTensor& expected,
                                                                  const Slice& slice) {
    ShardSet::Entry* entry = shards_->find(slice.merged_name);
    if (entry == nullptr) {
        return std::optional<TensorSource>();
    }
    entry->used = true;
    const StoredTensor& tensor = entry->tensor;
    const std::optional<Storage> storage = float_storage(tensor.dtype);
    if (!storage || shards_->find(slice.merged_name + ".qs") != nullptr) {
        return at(*entry, {ErrorCode::Unsupported,
                           "F32, F16, BF16 or F8_E4M3 was expected of merged experts, " +
                               std::string(dtype_name(tensor.dtype)) + " was found",
                           "", "Use the bf16 or fp8 files of this model."});
    }
    if (tensor.rank != 3 || tensor.shape[0] != slice.n_experts ||
        tensor.shape[1] != slice.total_rows || tensor.shape[2] != expected.cols.value) {
        return at(*entry, {ErrorCode::Corrupt,
                           "by config.json the shape [" + std::to_string(slice.n_experts) +
                               " (n_routed_experts), " + std::to_string(slice.total_rows) + ", " +
                               size_text(expected.cols) + "] was expected, " + tensor.shape_text() +
                               " was found",
                           "", kMismatch});
    }
    TensorSource out = start(expected);
    out.storage = *storage;
    const std::int64_t row_bytes = expected.cols.value * dtype_bytes(tensor.dtype);
    out.payload = {entry->file,
                   tensor.begin + (slice.expert * slice.total_rows + slice.first_row) * row_bytes,
                   expected.rows.value * row_bytes};
    if (*storage == Storage::F8E4M3) {
        if (Status scaled = resolve_fp8(*entry, out); !scaled) {
            return std::move(scaled).error();
        }
        const std::int64_t bytes = out.scales.bytes / slice.n_experts;
        out.scales.offset += slice.expert * bytes;
        out.scales.bytes = bytes;
        out.first_row = slice.first_row;
    }
    return std::optional(std::move(out));
}

}  // namespace terrace
