#include "engine/model/safetensors.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "engine/model/fnv.h"
#include "engine/model/printable.h"

namespace terrace {
namespace {

struct DtypeEntry {
    Dtype dtype;
    std::string_view name;
    std::int64_t bytes;
};

constexpr DtypeEntry kDtypes[] = {
    {Dtype::F64, "F64", 8},        {Dtype::F32, "F32", 4},        {Dtype::F16, "F16", 2},
    {Dtype::BF16, "BF16", 2},      {Dtype::F8E4M3, "F8_E4M3", 1}, {Dtype::F8E5M2, "F8_E5M2", 1},
    {Dtype::F8E8M0, "F8_E8M0", 1}, {Dtype::I64, "I64", 8},        {Dtype::I32, "I32", 4},
    {Dtype::I16, "I16", 2},        {Dtype::I8, "I8", 1},          {Dtype::U64, "U64", 8},
    {Dtype::U32, "U32", 4},        {Dtype::U16, "U16", 2},        {Dtype::U8, "U8", 1},
    {Dtype::Bool, "BOOL", 1},
};

constexpr const char* kDamaged = "Download the file again: it is damaged, or was never complete.";

const DtypeEntry& entry_of(Dtype dtype) {
    return *std::find_if(std::begin(kDtypes), std::end(kDtypes),
                         [&](const DtypeEntry& entry) { return entry.dtype == dtype; });
}

Error corrupt(const std::string& tensor, const std::string& message) {
    return {ErrorCode::Corrupt, message, printable(tensor), kDamaged};
}

/// Takes the events of the JSON parser and builds the list of tensors. Only the one shape that a
/// header may have is accepted, so depth and size are bounded by construction.
class HeaderBuilder {
public:
    explicit HeaderBuilder(SafetensorsHeader& out) : out_(out) {}

    bool null() { return misplaced("null"); }

    bool boolean(bool) { return misplaced("true or false"); }

    bool number_integer(std::int64_t value) { return misplaced(std::to_string(value)); }

    bool number_float(double, const std::string& text) { return misplaced(printable(text, 40)); }

    bool binary(nlohmann::json::binary_t&) { return misplaced("binary data"); }

    bool number_unsigned(std::uint64_t value) {
        if (where_ != Where::Shape && where_ != Where::Offsets) {
            return misplaced(std::to_string(value));
        }
        if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
            return misplaced(std::to_string(value));
        }
        if (where_ == Where::Offsets) {
            if (n_offsets_ == 2) {
                return fail("data_offsets: two numbers were expected, more were found");
            }
            offsets_[n_offsets_++] = static_cast<std::int64_t>(value);
            return true;
        }
        if (tensor_.rank == kMaxTensorRank) {
            return fail("shape: at most " + std::to_string(kMaxTensorRank) +
                        " dimensions were expected, more were found");
        }
        tensor_.shape[tensor_.rank++] = static_cast<std::int64_t>(value);
        return true;
    }

    bool string(std::string& text) {
        if (where_ == Where::Metadata) {
            if (out_.metadata.size() >= kMaxMetadataEntries) {
                return fail("__metadata__: at most " + std::to_string(kMaxMetadataEntries) +
                            " entries were expected, more were found");
            }
            return out_.metadata.emplace(key_, std::move(text)).second ||
                   fail("__metadata__: the key \"" + printable(key_) + "\" stands there twice");
        }
        if (where_ != Where::Entry || key_ != "dtype") {
            return misplaced("\"" + printable(text, 60) + "\"");
        }
        const auto* known =
            std::find_if(std::begin(kDtypes), std::end(kDtypes),
                         [&](const DtypeEntry& entry) { return entry.name == text; });
        if (known == std::end(kDtypes)) {
            return fail("dtype: a known type was expected, \"" + printable(text, 60) +
                        "\" was found");
        }
        if (std::exchange(has_dtype_, true)) {
            return fail("dtype stands there twice");
        }
        tensor_.dtype = known->dtype;
        return true;
    }

    bool start_object(std::size_t) {
        if (where_ == Where::Start) {
            where_ = Where::Root;
            return true;
        }
        if (where_ != Where::Root) {
            return misplaced("an object");
        }
        if (tensor_.name == "__metadata__") {
            where_ = Where::Metadata;
            return true;
        }
        if (out_.tensors.size() >= kMaxTensorsInFile) {
            return fail("at most " + std::to_string(kMaxTensorsInFile) +
                        " tensors in one file were expected, more were found");
        }
        where_ = Where::Entry;
        return true;
    }

    bool key(std::string& text) {
        if (where_ != Where::Root) {
            key_ = std::move(text);
            return true;
        }
        tensor_ = StoredTensor{};
        tensor_.name = std::move(text);
        has_dtype_ = has_shape_ = has_offsets_ = false;
        n_offsets_ = 0;
        return true;
    }

    bool end_object() {
        if (where_ == Where::Entry) {
            where_ = Where::Root;
            return finish_tensor();
        }
        where_ = where_ == Where::Metadata ? Where::Root : Where::Done;
        tensor_.name.clear();
        return true;
    }

    bool start_array(std::size_t) {
        if (where_ != Where::Entry || (key_ != "shape" && key_ != "data_offsets")) {
            return misplaced("a list");
        }
        bool& seen = key_ == "shape" ? has_shape_ : has_offsets_;
        if (std::exchange(seen, true)) {
            return fail(key_ + " stands there twice");
        }
        where_ = key_ == "shape" ? Where::Shape : Where::Offsets;
        return true;
    }

    bool end_array() {
        where_ = Where::Entry;
        return true;
    }

    bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) {
        error_ = corrupt("", "the header was expected to be JSON in UTF-8, at byte " +
                                 std::to_string(position) + " it breaks off");
        return false;
    }

    [[nodiscard]] Error error() const {
        return error_.value_or(corrupt("", "the header cannot be read"));
    }

private:
    enum class Where { Start, Root, Entry, Metadata, Shape, Offsets, Done };

    bool fail(const std::string& message) {
        error_ = corrupt(tensor_.name, message);
        return false;
    }

    bool misplaced(const std::string& found) {
        switch (where_) {
            case Where::Shape:
                return fail("shape: whole numbers from 0 were expected, " + found + " was found");
            case Where::Offsets:
                return fail("data_offsets: whole numbers from 0 were expected, " + found +
                            " was found");
            case Where::Metadata:
                return fail("__metadata__: texts were expected, " + found + " was found");
            case Where::Entry:
                return fail("dtype, shape and data_offsets were expected, " + printable(key_, 60) +
                            ": " + found + " was found");
            default:
                return fail("an object was expected, " + found + " was found");
        }
    }

    bool finish_tensor() {
        if (!has_dtype_ || !has_shape_ || !has_offsets_) {
            return fail(std::string(!has_dtype_   ? "dtype"
                                    : !has_shape_ ? "shape"
                                                  : "data_offsets") +
                        " is missing");
        }
        if (n_offsets_ != 2) {
            return fail("data_offsets: two numbers were expected, " + std::to_string(n_offsets_) +
                        " were found");
        }
        if (offsets_[0] > offsets_[1]) {
            return fail("data_offsets: the begin " + std::to_string(offsets_[0]) +
                        " lies behind the end " + std::to_string(offsets_[1]));
        }
        std::int64_t bytes = dtype_bytes(tensor_.dtype);
        for (std::size_t i = 0; i < tensor_.rank; ++i) {
            if (__builtin_mul_overflow(bytes, tensor_.shape[i], &bytes)) {
                return fail("shape " + tensor_.shape_text() + " is larger than any file");
            }
        }
        tensor_.begin = offsets_[0];
        tensor_.end = offsets_[1];
        if (bytes != tensor_.bytes()) {
            return fail("shape " + tensor_.shape_text() + " of " +
                        std::string(dtype_name(tensor_.dtype)) + " needs " + std::to_string(bytes) +
                        " bytes, data_offsets give " + std::to_string(tensor_.bytes()));
        }
        out_.tensors.push_back(std::move(tensor_));
        tensor_ = StoredTensor{};
        return true;
    }

    SafetensorsHeader& out_;
    Where where_ = Where::Start;
    StoredTensor tensor_;
    std::string key_;
    bool has_dtype_ = false;
    bool has_shape_ = false;
    bool has_offsets_ = false;
    std::array<std::int64_t, 2> offsets_{};
    std::size_t n_offsets_ = 0;
    std::optional<Error> error_;
};

Status check_names(const std::vector<StoredTensor>& tensors) {
    std::vector<std::string_view> names;
    names.reserve(tensors.size());
    for (const StoredTensor& tensor : tensors) {
        names.push_back(tensor.name);
    }
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end()) {
        return corrupt(std::string(*twice), "the tensor stands twice in the header");
    }
    return {};
}

/// Every byte of the data belongs to exactly one tensor. Offsets count from the data's start here.
Status check_ranges(const std::vector<StoredTensor>& sorted, std::int64_t data_bytes) {
    std::int64_t total = 0;
    for (const StoredTensor& tensor : sorted) {
        if (__builtin_add_overflow(total, tensor.bytes(), &total)) {
            return corrupt(tensor.name, "the sizes of the tensors add up to more than any file");
        }
    }
    std::int64_t end = 0;
    const StoredTensor* before = nullptr;
    for (const StoredTensor& tensor : sorted) {
        if (tensor.end > std::max(total, data_bytes)) {
            return corrupt(tensor.name, "data_offsets: an end of at most " +
                                            std::to_string(std::max(total, data_bytes)) +
                                            " was expected, " + std::to_string(tensor.end) +
                                            " was found");
        }
    }
    for (const StoredTensor& tensor : sorted) {
        const std::string neighbour =
            before == nullptr ? "the start of the data" : printable(before->name);
        if (tensor.begin < end) {
            return corrupt(tensor.name, "begins at " + std::to_string(tensor.begin) + ", inside " +
                                            neighbour + ", which ends at " + std::to_string(end));
        }
        if (tensor.begin > end) {
            return corrupt(tensor.name, std::to_string(tensor.begin - end) +
                                            " bytes between it and " + neighbour +
                                            " belong to no tensor");
        }
        end = tensor.end;
        before = &tensor;
    }
    return {};
}

Status check_size(std::int64_t data_begin, std::int64_t data_end, std::int64_t file_bytes) {
    if (file_bytes < data_end) {
        return Error{ErrorCode::Incomplete,
                     "the header accounts for " + std::to_string(data_end) +
                         " bytes, the file has " + std::to_string(file_bytes) + " (" +
                         std::to_string(data_end - file_bytes) + " bytes are missing)",
                     "", "The download is incomplete: resume it, or download this file again."};
    }
    if (file_bytes > data_end) {
        return Error{ErrorCode::Corrupt,
                     "the header accounts for " + std::to_string(data_end) +
                         " bytes, the file has " + std::to_string(file_bytes) + " (" +
                         std::to_string(file_bytes - data_end) + " more" +
                         (data_end == data_begin ? ", no tensor at all" : "") + ")",
                     "", kDamaged};
    }
    return {};
}

/// What was saved in place of weights, judging by the first bytes of the file.
std::optional<Error> impostor(std::string_view start) {
    if (start.substr(0, 30).find("git-lfs") != std::string_view::npos) {
        return Error{ErrorCode::Incomplete,
                     "a safetensors file was expected, a git-lfs pointer was found", "",
                     "Run \"git lfs pull\" in the folder, or download the weights themselves."};
    }
    const std::size_t text = start.find_first_not_of(" \r\n\t");
    if (text != std::string_view::npos && start[text] == '<') {
        return Error{ErrorCode::Corrupt,
                     "a safetensors file was expected, an HTML page was found (an error page of "
                     "the server, most likely)",
                     "", "Download this file again."};
    }
    return std::nullopt;
}

}  // namespace

std::string_view dtype_name(Dtype dtype) {
    return entry_of(dtype).name;
}

std::int64_t dtype_bytes(Dtype dtype) {
    return entry_of(dtype).bytes;
}

std::string StoredTensor::shape_text() const {
    std::string text = "[";
    for (std::size_t i = 0; i < rank; ++i) {
        text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
    }
    return text + "]";
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view text, std::int64_t file_bytes) {
    SafetensorsHeader header;
    header.data_begin = static_cast<std::int64_t>(text.size()) + 8;
    header.file_bytes = file_bytes;
    header.text_hash = fnv1a(text);
    if (text.empty() || text[0] != '{') {
        return corrupt("",
                       "the header was expected to begin with \"{\"" +
                           (text.empty() ? std::string(", it is empty")
                                         : ", \"" + printable(text.substr(0, 8)) + "\" was found"));
    }
    try {
        HeaderBuilder builder(header);
        if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) {
            return builder.error();
        }
    } catch (const std::exception& e) {
        return corrupt("", std::string("the header cannot be read: ") + printable(e.what()));
    }
    if (Status names = check_names(header.tensors); !names) {
        return std::move(names).error();
    }
    std::stable_sort(header.tensors.begin(), header.tensors.end(),
                     [](const StoredTensor& a, const StoredTensor& b) {
                         return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                     });
    if (Status ranges = check_ranges(header.tensors, file_bytes - header.data_begin); !ranges) {
        return std::move(ranges).error();
    }
    for (StoredTensor& tensor : header.tensors) {
        tensor.begin += header.data_begin;
        tensor.end += header.data_begin;
    }
    const std::int64_t end = header.tensors.empty() ? header.data_begin : header.tensors.back().end;
    if (Status size = check_size(header.data_begin, end, file_bytes); !size) {
        return std::move(size).error();
    }
    return header;
}

Result<SafetensorsHeader> read_safetensors_header(const File& file) {
    const Result<std::int64_t> size = file.size();
    if (!size) {
        return size.error();
    }
    if (*size < 8) {
        return Error{ErrorCode::Incomplete,
                     "at least the 8 bytes of a header's length were expected, the file has " +
                         std::to_string(*size),
                     "", "The download is incomplete: resume it, or download this file again."};
    }
    std::array<std::byte, 64> start{};
    const auto n_start = static_cast<std::size_t>(std::min<std::int64_t>(*size, 64));
    if (Status read = file.read_exact(0, std::span(start).first(n_start)); !read) {
        return std::move(read).error();
    }
    std::uint64_t length = 0;
    for (std::size_t i = 8; i-- > 0;) {
        length = length << 8U | std::to_integer<std::uint64_t>(start[i]);
    }
    if (auto found = impostor({reinterpret_cast<const char*>(start.data()), n_start})) {
        return *found;
    }
    if (length > kMaxHeaderBytes) {
        return corrupt("", "a header of at most 100 MB was expected, the file announces " +
                               std::to_string(length) + " bytes");
    }
    if (length > static_cast<std::uint64_t>(*size - 8)) {
        return Error{ErrorCode::Incomplete,
                     "the file announces a header of " + std::to_string(length) +
                         " bytes and has only " + std::to_string(*size) + " bytes itself",
                     "", "The download is incomplete: resume it, or download this file again."};
    }
    std::string text(length, '\0');
    if (Status read = file.read_exact(8, std::as_writable_bytes(std::span(text))); !read) {
        return std::move(read).error();
    }
    return parse_safetensors_header(text, *size);
}

}  // namespace terrace
