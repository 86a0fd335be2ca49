// A split pattern of a tokenizer file, ready to search. The code points of a text are first mapped
// to one byte each, equal for characters that the pattern cannot tell apart; PCRE2's compiler to
// machine code then runs on those bytes. So the character classes are exactly ours, whatever
// version of Unicode the installed PCRE2 knows, and classes of thousands of ranges cost nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/device/result.h"
#include "engine/text/pre_tokenizer_regex.h"

namespace terrace {

/// A stretch of bytes of a text.
struct PieceSpan {
    std::size_t begin = 0;
    std::size_t end = 0;
};

/// The buffers that searching needs. One thread at a time; made once for a text, since it maps
/// memory. If they cannot be had, nothing matches.
class PatternSearch {
public:
    PatternSearch();
    PatternSearch(PatternSearch&&) = delete;
    PatternSearch& operator=(PatternSearch&&) = delete;
    ~PatternSearch();

private:
    friend class SplitPattern;
    struct Buffers;
    std::unique_ptr<Buffers> buffers_;
};

/// One compiled pattern. Owned by its pre-tokenizer; immutable after construction, so searching it
/// is thread-safe; compile() reports what is wrong with a pattern.
class SplitPattern {
public:
    static Result<SplitPattern> compile(const ParsedRegex& regex);

    SplitPattern(SplitPattern&&) noexcept;
    SplitPattern& operator=(SplitPattern&&) noexcept;
    ~SplitPattern();

    /// All matches in `valid` (well-formed UTF-8), in order. An empty match right behind another
    /// match is passed over. If a search exceeds its bound of steps, which no published pattern
    /// does, the rest of the text counts as not matching.
    [[nodiscard]] std::vector<PieceSpan> find_all(std::string_view valid,
                                                  PatternSearch& search) const;

private:
    struct Compiled;

    SplitPattern();

    [[nodiscard]] std::string symbols_of(std::string_view valid) const;

    std::unique_ptr<Compiled> compiled_;
};

}  // namespace terrace
