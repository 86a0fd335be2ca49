// UTF-8 as the Unicode standard defines it (Table 3-7): decoding, repairing and cutting text at
// whole characters. Everything that enters or leaves the tokenizer passes here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace terrace {

/// What stands at the front of a byte string.
struct Utf8Part {
    enum class Kind {
        Character,   ///< one well-formed character
        IllFormed,   ///< a maximal ill-formed part: stands for one U+FFFD
        Unfinished,  ///< the text ends inside a so far well-formed character
    };
    Kind kind = Kind::Character;
    std::size_t n_bytes = 0;
    char32_t code_point = 0;  ///< of a Character
};

/// Looks at the front of `bytes`, which must not be empty.
Utf8Part first_utf8_part(std::string_view bytes);

/// Appends the UTF-8 form of a code point below U+110000.
void append_utf8(char32_t code_point, std::string& out);

/// The code point at `at` of well-formed UTF-8; moves `at` behind it.
char32_t next_code_point(std::string_view valid, std::size_t& at);

/// One replacement made by to_valid_utf8: which input bytes became the U+FFFD at `out_begin`.
struct Utf8Repair {
    std::size_t in_begin = 0;
    std::size_t in_end = 0;
    std::size_t out_begin = 0;
};

/// Each maximal ill-formed part becomes U+FFFD, as Python and WHATWG do it. `n_replaced`, if given,
/// receives how many there were, so that a caller can tell the user once.
std::string to_valid_utf8(std::string_view bytes, std::size_t* n_replaced = nullptr);

/// The same, with the list of replacements in order.
std::string repair_utf8(std::string_view bytes, std::vector<Utf8Repair>& repairs);

/// Whether `bytes` is well-formed throughout.
bool is_valid_utf8(std::string_view bytes);

/// How many bytes at the end (0 to 3) belong to a character that later bytes could still complete.
std::size_t unfinished_utf8_tail(std::string_view bytes);

/// The start of a well-formed text in double quotes, cut at a whole character: for messages.
std::string quoted_excerpt(std::string_view valid);

}  // namespace terrace
