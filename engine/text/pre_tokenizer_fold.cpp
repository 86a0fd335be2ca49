// See pre_tokenizer_fold.h.
#include "engine/text/pre_tokenizer_fold.h"

#include <algorithm>
#include <array>
#include <utility>

namespace terrace {

namespace {

/// False if the set holds a letter or mark outside ASCII other than those two signs.
bool folding_is_known(const CodePointSet& set) {
    if (set.ranges().empty() || set.ranges().back().last < 0x80) {
        return true;
    }
    CodePointSet letters;
    CodePointSet marks;
    find_property("L", letters);
    find_property("M", marks);
    letters.add(marks);
    const CodePointSet beyond_ascii({{0x80, kLastCodePoint}});
    const CodePointSet doubtful = set.intersection(letters).intersection(beyond_ascii);
    for (const CodePointRange& range : doubtful.ranges()) {
        for (char32_t c = range.first; c <= range.last; ++c) {
            if (c != 0x17F && c != 0x212A) {  // long s and the Kelvin sign fold onto s and k
                return false;
            }
        }
    }
    return true;
}

}  // namespace

bool fold_ascii_case(CodePointSet& set) {
    if (!folding_is_known(set)) {
        return false;
    }
    const CodePointSet given = set;
    for (char32_t upper = 'A'; upper <= 'Z'; ++upper) {
        const char32_t lower = upper - 'A' + 'a';
        const char32_t other = upper == 'S' ? 0x17F : upper == 'K' ? 0x212A : upper;
        if (given.contains(upper) || given.contains(lower) || given.contains(other)) {
            set.add(upper, upper);
            set.add(lower, lower);
            set.add(other, other);
        }
    }
    return true;
}

bool folds_as_pair(char32_t first, char32_t second) {
    const auto lower = [](char32_t c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; };
    const std::pair<char32_t, char32_t> pair{lower(first), lower(second)};
    using Pair = std::pair<char32_t, char32_t>;
    constexpr std::array<Pair, 5> kPairs = {
        {{'s', 's'}, {'f', 'f'}, {'f', 'i'}, {'f', 'l'}, {'s', 't'}}};
    return std::find(kPairs.begin(), kPairs.end(), pair) != kPairs.end();
}

}  // namespace terrace
