// One formatted field, as both `%5.2f` and `{:>5.2f}` describe it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/text/template/operations.h"

namespace terrace::jinja {

/// Parts of a format specification. Zero characters stand for "not given".
struct FormatSpec {
    std::string fill = " ";
    char align = 0;  ///< < > ^ =
    char sign = 0;   ///< + - or space
    char grouping = 0;
    char type = 0;
    bool alternate = false;
    bool zero = false;
    std::size_t width = 0;
    std::optional<std::size_t> precision;
};

/// No field is wider than this: a width is a way to ask for memory.
inline constexpr std::size_t kMaxFieldWidth = 100'000;

/// Python's format(value, spec), appended; numbers and strings only.
void format_field(Runtime& rt, const Value& value, const FormatSpec& spec, TextBuilder& out);
/// Parses what stands behind the colon of a replacement field; nothing when it is not valid.
std::optional<FormatSpec> parse_format_spec(std::string_view text);
/// Digits at `at`, moved past; nothing when there are none; capped above kMaxFieldWidth.
std::optional<std::size_t> read_number(std::string_view text, std::size_t& at);

}  // namespace terrace::jinja
