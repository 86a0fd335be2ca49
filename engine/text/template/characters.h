// Code points of UTF-8 text as Python sees them: white space, case, properties. Leaf of the
// template engine; knows nothing of values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace terrace::jinja {

/// One decoded code point and the bytes it took. A byte that is not UTF-8 decodes as U+FFFD of
/// length 1, so decoding always moves on.
struct CodePoint {
    char32_t value;
    std::size_t n_bytes;
};

enum class Case { Lower, Upper, Title };

/// The code point at byte `at`; `at` must be inside the text.
CodePoint decode(std::string_view text, std::size_t at);
/// The code point that ends before byte `end`; `end` must be above 0.
CodePoint decode_before(std::string_view text, std::size_t end);
void append_utf8(std::string& out, char32_t value);
std::size_t count_code_points(std::string_view text);
bool is_valid_utf8(std::string_view text);

/// str.isspace of Python, which is also what its regex \s matches.
bool is_space(char32_t c);
/// Flags of character_tables.h for one code point.
std::uint16_t character_flags(char32_t c);
bool is_identifier_start(char32_t c);
bool is_identifier_part(char32_t c);

/// Appends the full case mapping of one code point (one to three code points).
void append_mapped(std::string& out, char32_t c, Case to);

}  // namespace terrace::jinja
