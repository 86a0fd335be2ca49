// Untrusted text inside messages: names from files may hold anything, terminals must not see it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace terrace {

/// `text` with control characters as \xNN, bytes that are not UTF-8 as U+FFFD, cut with "..."
/// after `max_bytes`.
[[nodiscard]] std::string printable(std::string_view text, std::size_t max_bytes = 200);

[[nodiscard]] std::string printable_path(const std::filesystem::path& path);

}  // namespace terrace
