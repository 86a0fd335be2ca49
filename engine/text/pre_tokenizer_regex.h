// Reads the regular expression of a tokenizer file (Oniguruma, Ruby syntax) into parts that mean
// the same in every engine: sets of code points, and bare syntax between them. Whatever could mean
// something else in PCRE2 is refused by name instead of being passed on.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "engine/device/result.h"
#include "engine/text/unicode_tables.h"

namespace terrace {

/// One part of a translated pattern: one character out of a set, or syntax to copy.
struct RegexPart {
    static constexpr std::size_t kNoSet = static_cast<std::size_t>(-1);
    std::size_t set = kNoSet;  ///< index into ParsedRegex::sets
    std::string syntax;        ///< if set is kNoSet
};

/// A pattern as a list of parts; the sets are distinct. Value type.
struct ParsedRegex {
    std::vector<RegexPart> parts;
    std::vector<CodePointSet> sets;
};

/// Parses a pattern (UTF-8). Errors: Corrupt if it is no regular expression, Unsupported if it uses
/// something whose meaning or cost Terrace cannot vouch for; both start with "Regex".
Result<ParsedRegex> parse_regex(std::string_view pattern);

/// The pattern that matches exactly this text.
Result<ParsedRegex> literal_regex(std::string_view text);

}  // namespace terrace
