#include "engine/model/shard_index.h"

#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/model/printable.h"
#include "engine/model/safetensors.h"

namespace terrace {
namespace {

constexpr std::size_t kMaxFiles = 4096;
constexpr int kMaxDepth = 32;

Error corrupt(const std::string& context, const std::string& message) {
    return {ErrorCode::Corrupt, message, printable(context),
            "Download the index file again, or remove it: complete shards can do without."};
}

bool plain_name(std::string_view name) {
    if (name.empty() || name == "." || name == ".." || name.size() > 255) {
        return false;
    }
    for (const char c : name) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '/' || c == '\\' || c == ':' || byte < 0x20 || byte == 0x7F) {
            return false;
        }
    }
    return true;
}

/// Takes the events of the JSON parser; everything but weight_map and total_size is skipped.
class IndexBuilder {
public:
    explicit IndexBuilder(ShardIndex& out) : out_(out) {}

    bool null() { return other("null"); }

    bool boolean(bool) { return other("true or false"); }

    bool number_integer(std::int64_t value) { return other(std::to_string(value)); }

    bool number_float(double, const std::string& text) { return other(printable(text, 40)); }

    bool binary(nlohmann::json::binary_t&) { return other("binary data"); }

    bool number_unsigned(std::uint64_t value) {
        if (depth_ == 2 && section_ == "metadata" && key_ == "total_size" && value < 1ULL << 62U) {
            out_.total_bytes = static_cast<std::int64_t>(value);
        }
        return other(std::to_string(value));
    }

    bool string(std::string& text) {
        if (depth_ != 2 || section_ != kMap) {
            return other("\"" + printable(text, 60) + "\"");
        }
        if (!plain_name(text)) {
            return fail(key_, "the name of a file in this folder was expected, \"" +
                                  printable(text, 120) + "\" was found");
        }
        return add(text);
    }

    bool start_object(std::size_t) {
        if (depth_ == 1 && section_ == kMap) {
            has_map_ = true;
        } else if (depth_ >= 2 && section_ == kMap) {
            return other("an object");
        }
        return deeper();
    }

    bool start_array(std::size_t) {
        if (depth_ == 0 || section_ == kMap) {
            return other("a list");
        }
        return deeper();
    }

    bool end_object() { return shallower(); }

    bool end_array() { return shallower(); }

    bool key(std::string& text) {
        if (depth_ == 1) {
            section_ = std::move(text);
        } else {
            key_ = std::move(text);
        }
        return true;
    }

    bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) {
        error_ = corrupt(
            "", "valid JSON was expected, at byte " + std::to_string(position) + " it breaks off");
        return false;
    }

    [[nodiscard]] bool has_map() const { return has_map_; }

    [[nodiscard]] Error error() const {
        return error_.value_or(corrupt("", "the index cannot be read"));
    }

private:
    static constexpr const char* kMap = "weight_map";

    bool fail(const std::string& context, const std::string& message) {
        error_ = corrupt(context, message);
        return false;
    }

    /// A value that is none of ours: fine elsewhere, wrong in weight_map or as the whole text.
    bool other(const std::string& found) {
        if (depth_ == 0) {
            return fail("", "an object was expected, " + found + " was found");
        }
        if (section_ != kMap) {
            return true;
        }
        if (depth_ == 1) {
            return fail(kMap, "an object was expected, " + found + " was found");
        }
        return fail(key_, "the name of a file was expected, " + found + " was found");
    }

    bool deeper() {
        return ++depth_ <= kMaxDepth ||
               fail("", "at most " + std::to_string(kMaxDepth) +
                            " levels of brackets were expected, the text is nested deeper");
    }

    bool shallower() {
        --depth_;
        return true;
    }

    bool add(const std::string& file) {
        auto [it, is_new] =
            file_numbers_.emplace(file, static_cast<std::uint32_t>(out_.files.size()));
        if (is_new) {
            if (out_.files.size() >= kMaxFiles) {
                return fail("", "at most " + std::to_string(kMaxFiles) + " files were expected");
            }
            out_.files.push_back(file);
        }
        if (out_.tensors.size() >= kMaxTensorsInFile) {
            return fail("", "at most " + std::to_string(kMaxTensorsInFile) +
                                " tensors were expected, more were found");
        }
        return out_.tensors.emplace(std::move(key_), it->second).second ||
               fail(key_, "the tensor stands twice in weight_map");
    }

    ShardIndex& out_;
    int depth_ = 0;
    std::string section_;  ///< key of the outermost object
    std::string key_;      ///< key inside it
    bool has_map_ = false;
    std::unordered_map<std::string, std::uint32_t> file_numbers_;
    std::optional<Error> error_;
};

}  // namespace

Result<ShardIndex> parse_shard_index(std::string_view text) {
    ShardIndex index;
    try {
        IndexBuilder builder(index);
        if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) {
            return builder.error();
        }
        if (!builder.has_map()) {
            return corrupt("weight_map",
                           "it was expected to say which file holds which tensor; "
                           "there is none");
        }
    } catch (const std::exception& e) {
        return corrupt("", std::string("the index cannot be read: ") + printable(e.what()));
    }
    return index;
}

}  // namespace terrace
