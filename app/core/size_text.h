// Sizes as people write and read them: "6G", "6GiB", "6GB", "auto".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace terrace::app {

/// Bytes of a size text: a number and K, M, G, T (binary, also with "iB"), KB, MB, GB, TB
/// (decimal), or no unit (bytes). Empty for anything else, or below 0.
[[nodiscard]] std::optional<std::int64_t> parseSize(std::string_view text);

/// "6.0 GiB", "812 MiB", "17 B".
[[nodiscard]] std::string formatSize(std::int64_t bytes);

}  // namespace terrace::app
