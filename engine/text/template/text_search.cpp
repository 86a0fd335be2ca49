#include "engine/text/template/text_search.h"

#include <algorithm>
#include <vector>

namespace terrace::jinja {

namespace {

/// Up to this needle length the plain search costs at most so many times the haystack.
constexpr std::size_t kShortNeedle = 16;

/// Knuth, Morris, Pratt: how far each prefix of the needle repeats its own start.
std::vector<std::size_t> failure_links(std::string_view needle) {
    std::vector<std::size_t> links(needle.size(), 0);
    for (std::size_t i = 1, matched = 0; i < needle.size(); ++i) {
        while (matched > 0 && needle[i] != needle[matched]) {
            matched = links[matched - 1];
        }
        matched += needle[i] == needle[matched] ? 1 : 0;
        links[i] = matched;
    }
    return links;
}

}  // namespace

std::size_t find_text(Runtime& rt,
                      std::string_view haystack,
                      std::string_view needle,
                      std::size_t from) {
    if (from > haystack.size()) {
        return kNoMatch;
    }
    if (needle.size() <= kShortNeedle) {
        const std::size_t found = haystack.find(needle, from);
        rt.spend(1 + (std::min(found, haystack.size()) - from) / 64);
        return found;
    }
    const auto links = failure_links(needle);
    rt.spend(1 + needle.size() / 16);
    for (std::size_t i = from, matched = 0; i < haystack.size(); ++i) {
        while (matched > 0 && haystack[i] != needle[matched]) {
            matched = links[matched - 1];
        }
        matched += haystack[i] == needle[matched] ? 1 : 0;
        if (matched == needle.size()) {
            rt.spend((i - from) / 16);
            return i + 1 - needle.size();
        }
    }
    rt.spend((haystack.size() - from) / 16);
    return kNoMatch;
}

std::size_t find_text_backwards(Runtime& rt,
                                std::string_view haystack,
                                std::string_view needle,
                                std::size_t end) {
    if (needle.size() > end) {
        return kNoMatch;
    }
    const std::string_view searched = haystack.substr(0, end);
    if (needle.size() <= kShortNeedle) {
        const std::size_t found = searched.rfind(needle);
        rt.spend(1 + (end - (found == kNoMatch ? 0 : found)) / 64);
        return found;
    }
    const std::string turned_haystack(searched.rbegin(), searched.rend());
    const std::string turned_needle(needle.rbegin(), needle.rend());
    const std::size_t found = find_text(rt, turned_haystack, turned_needle, 0);
    return found == kNoMatch ? kNoMatch : end - found - needle.size();
}

}  // namespace terrace::jinja
