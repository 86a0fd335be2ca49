// See unicode_tables.h. All look-ups are binary searches over the generated arrays.
#include "engine/text/unicode_tables.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <tuple>

namespace terrace {
namespace {

struct CombiningRange {
    char32_t first;
    char32_t last;
    std::uint8_t value;
};

struct Composition {
    char32_t first;
    char32_t second;
    char32_t whole;
};

#include "engine/text/unicode_tables.inc"

// The order in which make_unicode_tables.py numbers the categories.
constexpr std::array<std::string_view, 13> kCategories = {
    "other", "lu", "ll", "lt", "lm", "lo", "m", "nd", "nl", "no", "pc", "p", "s"};

constexpr unsigned mask_of(unsigned first, unsigned last) {
    return (1U << (last + 1)) - (1U << first);
}

/// Which categories a property name stands for, as a bit mask; 0 if unknown. Names of one letter
/// stand for all categories that start with it.
unsigned categories_of(std::string_view lower_name) {
    if (lower_name == "l") {
        return mask_of(1, 5);
    }
    if (lower_name == "n") {
        return mask_of(7, 9);
    }
    if (lower_name == "p") {
        return mask_of(10, 11);
    }
    for (unsigned i = 1; i < kCategories.size(); ++i) {
        if (kCategories[i] == lower_name) {
            return 1U << i;
        }
    }
    return 0;
}

CodePointSet set_of(unsigned categories) {
    std::vector<CodePointRange> ranges;
    for (std::size_t i = 0; i < std::size(kCategoryRuns); ++i) {
        if ((categories >> (kCategoryRuns[i] & 15U) & 1U) == 0) {
            continue;
        }
        const bool last = i + 1 == std::size(kCategoryRuns);
        ranges.push_back(
            {kCategoryRuns[i] >> 4, last ? kLastCodePoint : (kCategoryRuns[i + 1] >> 4) - 1});
    }
    return CodePointSet(std::move(ranges));
}

bool starts_before(const CodePointRange& a, const CodePointRange& b) {
    return a.first < b.first;
}

CodePointSet make_word_characters() {
    CodePointSet set = set_of(mask_of(1, 8) | 1U << 10);
    set.add(0x24B6, 0x24E9);
    set.add(0x1F130, 0x1F149);
    set.add(0x1F150, 0x1F169);
    set.add(0x1F170, 0x1F189);
    set.add(0x200C, 0x200D);
    return set;
}

}  // namespace

CodePointSet::CodePointSet(std::vector<CodePointRange> ranges) : ranges_(std::move(ranges)) {
    std::sort(ranges_.begin(), ranges_.end(), starts_before);
    join_neighbours();
}

void CodePointSet::add(char32_t first, char32_t last) {
    // A pattern adds characters one by one to sets of hundreds of ranges: no sorting here.
    const auto begin = std::lower_bound(
        ranges_.begin(), ranges_.end(), first,
        [](const CodePointRange& range, char32_t value) { return range.last + 1 < value; });
    auto end = begin;
    for (; end != ranges_.end() && end->first <= last + 1; ++end) {
        first = std::min(first, end->first);
        last = std::max(last, end->last);
    }
    if (begin == end) {
        ranges_.insert(begin, {first, last});
    } else {
        *begin = {first, last};
        ranges_.erase(std::next(begin), end);
    }
}

void CodePointSet::add(const CodePointSet& other) {
    const auto n_before = static_cast<std::ptrdiff_t>(ranges_.size());
    ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
    std::inplace_merge(ranges_.begin(), ranges_.begin() + n_before, ranges_.end(), starts_before);
    join_neighbours();
}

void CodePointSet::join_neighbours() {
    std::size_t n_kept = 0;
    for (const CodePointRange& range : ranges_) {
        if (n_kept > 0 && range.first <= ranges_[n_kept - 1].last + 1) {
            ranges_[n_kept - 1].last = std::max(ranges_[n_kept - 1].last, range.last);
        } else {
            ranges_[n_kept++] = range;
        }
    }
    ranges_.resize(n_kept);
}

CodePointSet CodePointSet::complement() const {
    CodePointSet out;
    char32_t next = 0;
    for (const CodePointRange& range : ranges_) {
        if (range.first > next) {
            out.ranges_.push_back({next, range.first - 1});
        }
        next = range.last + 1;
    }
    if (next <= kLastCodePoint) {
        out.ranges_.push_back({next, kLastCodePoint});
    }
    return out;
}

CodePointSet CodePointSet::intersection(const CodePointSet& other) const {
    CodePointSet out;
    auto a = ranges_.begin();
    auto b = other.ranges_.begin();
    while (a != ranges_.end() && b != other.ranges_.end()) {
        const char32_t first = std::max(a->first, b->first);
        const char32_t last = std::min(a->last, b->last);
        if (first <= last) {
            out.ranges_.push_back({first, last});
        }
        if (a->last < b->last) {
            ++a;
        } else {
            ++b;
        }
    }
    return out;
}

bool CodePointSet::contains(char32_t code_point) const {
    const auto after = std::upper_bound(
        ranges_.begin(), ranges_.end(), code_point,
        [](char32_t value, const CodePointRange& range) { return value < range.first; });
    return after != ranges_.begin() && code_point <= std::prev(after)->last;
}

bool find_property(std::string_view name, CodePointSet& out) {
    std::string lower;
    for (const char c : name) {
        if (c != ' ' && c != '_' && c != '-') {
            lower.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c));
        }
    }
    if (lower == "han") {
        out = CodePointSet({std::begin(kHanRanges), std::end(kHanRanges)});
        return true;
    }
    const unsigned categories = categories_of(lower);
    out = set_of(categories);
    return categories != 0;
}

const CodePointSet& white_space() {
    static const CodePointSet set({std::begin(kWhiteSpaceRanges), std::end(kWhiteSpaceRanges)});
    return set;
}

const CodePointSet& word_characters() {
    static const CodePointSet set = make_word_characters();
    return set;
}

std::uint8_t combining_class(char32_t code_point) {
    const auto* after = std::upper_bound(
        std::begin(kCombiningClasses), std::end(kCombiningClasses), code_point,
        [](char32_t value, const CombiningRange& range) { return value < range.first; });
    if (after == std::begin(kCombiningClasses)) {
        return 0;
    }
    const CombiningRange& range = *std::prev(after);
    return code_point <= range.last ? range.value : std::uint8_t{0};
}

const Decomposition* find_decomposition(char32_t code_point) {
    const auto* at = std::lower_bound(
        std::begin(kDecompositions), std::end(kDecompositions), code_point,
        [](const Decomposition& entry, char32_t value) { return entry.code_point < value; });
    return at != std::end(kDecompositions) && at->code_point == code_point ? at : nullptr;
}

char32_t compose_pair(char32_t first, char32_t second) {
    const auto key = std::make_tuple(first, second);
    const auto* at =
        std::lower_bound(std::begin(kCompositions), std::end(kCompositions), key,
                         [](const Composition& entry, const std::tuple<char32_t, char32_t>& value) {
                             return std::make_tuple(entry.first, entry.second) < value;
                         });
    const bool found = at != std::end(kCompositions) && at->first == first && at->second == second;
    return found ? at->whole : 0;
}

bool composes_backwards(char32_t code_point) {
    static const std::vector<char32_t> seconds = [] {
        std::vector<char32_t> list;
        for (const Composition& entry : kCompositions) {
            list.push_back(entry.second);
        }
        std::sort(list.begin(), list.end());
        list.erase(std::unique(list.begin(), list.end()), list.end());
        return list;
    }();
    return std::binary_search(seconds.begin(), seconds.end(), code_point);
}

}  // namespace terrace
