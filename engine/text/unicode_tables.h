// What the tokenizer knows about code points: the classes of Unicode 16, as the regex engine of the
// published tokenizers has them, and the normalisation data of Unicode 9, as their normaliser has
// it. The data itself is generated (make_unicode_tables.py).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace terrace {

constexpr char32_t kLastCodePoint = 0x10FFFF;

/// An inclusive range of code points.
struct CodePointRange {
    char32_t first = 0;
    char32_t last = 0;

    bool operator==(const CodePointRange&) const = default;
};

/// A set of code points as sorted ranges with gaps between them. Value type.
class CodePointSet {
public:
    CodePointSet() = default;
    /// Any order, overlaps allowed.
    explicit CodePointSet(std::vector<CodePointRange> ranges);

    void add(char32_t first, char32_t last);
    void add(const CodePointSet& other);
    [[nodiscard]] CodePointSet complement() const;
    [[nodiscard]] CodePointSet intersection(const CodePointSet& other) const;
    [[nodiscard]] bool contains(char32_t code_point) const;

    [[nodiscard]] const std::vector<CodePointRange>& ranges() const { return ranges_; }

    bool operator==(const CodePointSet&) const = default;

private:
    void join_neighbours();

    std::vector<CodePointRange> ranges_;
};

/// The set of a property by its short name: L, Lu, Ll, Lt, Lm, Lo, M, N, Nd, Nl, No, P, Pc, S, Han.
/// Letter case, spaces and low lines in the name are ignored. False if the name is not known.
bool find_property(std::string_view name, CodePointSet& out);

/// White_Space, which is what \s matches: without U+001C to U+001F, U+180E, U+200B and U+FEFF.
const CodePointSet& white_space();

/// \w of the matcher of added tokens: letters, marks, decimal digits, letter numbers, connectors,
/// the circled letters and the two joiners.
const CodePointSet& word_characters();

/// Canonical combining class, 0 for most.
std::uint8_t combining_class(char32_t code_point);

/// One step of canonical decomposition, Hangul syllables excepted.
struct Decomposition {
    char32_t code_point = 0;
    char32_t first = 0;
    char32_t second = 0;  ///< 0 if it decomposes into one
};

/// Null if the code point does not decompose.
const Decomposition* find_decomposition(char32_t code_point);

/// The code point that the two compose into, Hangul excepted; 0 if they stay apart.
char32_t compose_pair(char32_t first, char32_t second);

/// Whether it can be the second half of a composition, Hangul excepted.
bool composes_backwards(char32_t code_point);

}  // namespace terrace
