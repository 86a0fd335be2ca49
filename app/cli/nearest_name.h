// The name a user probably meant.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace terrace::cli {

/// The candidate with the smallest edit distance to `word`; empty when none is close.
[[nodiscard]] std::string nearestName(std::string_view word,
                                      std::span<const std::string> candidates);

}  // namespace terrace::cli
