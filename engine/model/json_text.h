// Small JSON files of a model folder: read with a size limit, refused when they are no regular
// file, parsed with a depth limit. Internal to engine/model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "engine/device/result.h"

namespace terrace {

inline constexpr int kMaxJsonDepth = 64;

/// Success when `path` is a regular file (or a link to one) that may be opened without waiting;
/// pipes, devices and folders are refused by kind.
[[nodiscard]] Status check_regular_file(const std::filesystem::path& path);

/// The text of a small file; the error's context is its base name.
[[nodiscard]] Result<std::string> read_folder_text(const std::filesystem::path& path,
                                                   std::int64_t max_bytes);

/// Parses a whole JSON text. Errors quote the place; they do not name the file.
[[nodiscard]] Result<nlohmann::json> parse_json(std::string_view text);

/// The same, keys in the order of the text.
[[nodiscard]] Result<nlohmann::ordered_json> parse_ordered_json(std::string_view text);

/// Deepest nesting of brackets outside strings.
[[nodiscard]] int json_depth(std::string_view text, int limit);

/// A value as it may be quoted in a message: short and printable.
[[nodiscard]] std::string quoted(const nlohmann::json& value);

}  // namespace terrace
