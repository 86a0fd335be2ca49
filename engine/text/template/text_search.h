// Finding a text in a text in linear time, whatever the texts are.
#pragma once

#include <cstddef>
#include <string_view>

#include "engine/text/template/runtime.h"

namespace terrace::jinja {

inline constexpr std::size_t kNoMatch = std::string_view::npos;

/// Byte offset of the first `needle` at or after `from`, or kNoMatch. An empty needle is found
/// at `from`.
std::size_t find_text(Runtime& rt,
                      std::string_view haystack,
                      std::string_view needle,
                      std::size_t from);
/// Byte offset of the last `needle` that ends at or before `end`, or kNoMatch.
std::size_t find_text_backwards(Runtime& rt,
                                std::string_view haystack,
                                std::string_view needle,
                                std::size_t end);

}  // namespace terrace::jinja
