// See tokenizer_added.h.
#include "engine/text/tokenizer_added.h"

#include <algorithm>

#include "engine/text/unicode_tables.h"
#include "engine/text/utf8.h"

namespace terrace {
namespace {

using Flag = AddedToken::Flag;

/// Start of the last character of a text that is not empty.
std::size_t last_character(std::string_view text) {
    std::size_t at = text.size() - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80) {
        --at;
    }
    return at;
}

bool starts_with_word(std::string_view text) {
    std::size_t at = 0;
    return !text.empty() && word_characters().contains(next_code_point(text, at));
}

bool ends_with_word(std::string_view text) {
    return !text.empty() && starts_with_word(text.substr(last_character(text)));
}

std::size_t white_space_at_start(std::string_view text) {
    std::size_t n = 0;
    for (std::size_t at = 0; at < text.size(); n = at) {
        if (!white_space().contains(next_code_point(text, at))) {
            break;
        }
    }
    return n;
}

std::size_t start_of_white_space_at_end(std::string_view text) {
    while (!text.empty()) {
        std::size_t at = last_character(text);
        const std::size_t begin = at;
        if (!white_space().contains(next_code_point(text, at))) {
            break;
        }
        text = text.substr(0, begin);
    }
    return text.size();
}

/// Whether [begin, end) touches a span, given the spans that start at or behind nothing before.
bool overlaps(std::span<const ByteSpan> spans, std::size_t begin, std::size_t end) {
    const auto at =
        std::upper_bound(spans.begin(), spans.end(), begin,
                         [](std::size_t value, const ByteSpan& span) { return value < span.end; });
    return at != spans.end() && at->begin < end;
}

}  // namespace

void AddedTokenMatcher::add(const AddedToken& token, std::string_view spelling) {
    if (spelling.empty()) {
        return;
    }
    std::uint32_t node = 0;
    for (const char byte : spelling) {
        std::uint32_t next = child(node, byte);
        if (next == kNone) {
            next = static_cast<std::uint32_t>(nodes_.size());
            nodes_.push_back({kNone, nodes_[node].first_child, kNone, byte});
            nodes_[node].first_child = next;
        }
        node = next;
    }
    if (nodes_[node].token == kNone) {
        nodes_[node].token = static_cast<std::uint32_t>(tokens_.size());
        tokens_.push_back(token);
    }
}

std::uint32_t AddedTokenMatcher::child(std::uint32_t node, char byte) const {
    std::uint32_t at = nodes_[node].first_child;
    while (at != kNone && nodes_[at].byte != byte) {
        at = nodes_[at].sibling;
    }
    return at;
}

AddedTokenMatcher::Match AddedTokenMatcher::longest_at(std::string_view text,
                                                       std::size_t at,
                                                       std::span<const ByteSpan> raw_spans) const {
    Match best;
    std::uint32_t node = 0;
    for (std::size_t end = at; end < text.size();) {
        node = child(node, text[end]);
        if (node == kNone) {
            break;
        }
        ++end;
        if (nodes_[node].token != kNone && !overlaps(raw_spans, at, end)) {
            best = {end, nodes_[node].token};
        }
    }
    return best;
}

bool AddedTokenMatcher::accepts(const AddedToken& token,
                                std::string_view text,
                                ByteSpan span,
                                AddedTokens mode) const {
    if (mode == AddedTokens::Plain && token.special == Flag::Yes) {
        return false;
    }
    return token.single_word == Flag::No || (!ends_with_word(text.substr(0, span.begin)) &&
                                             !starts_with_word(text.substr(span.end)));
}

std::vector<AddedPiece> AddedTokenMatcher::split(std::string_view text,
                                                 AddedTokens mode,
                                                 std::span<const ByteSpan> raw_spans) const {
    std::vector<AddedPiece> out;
    std::size_t done = 0;
    if (mode != AddedTokens::Raw && !tokens_.empty()) {
        for (std::size_t at = 0; at < text.size();) {
            const Match match = longest_at(text, at, raw_spans);
            if (match.token == kNone) {
                ++at;
                continue;
            }
            // A token that is found but not accepted still uses up its text: so does the library.
            const AddedToken& token = tokens_[match.token];
            ByteSpan span{at, match.end};
            at = match.end;
            if (!accepts(token, text, span, mode)) {
                continue;
            }
            if (token.lstrip == Flag::Yes) {
                span.begin =
                    std::max(done, start_of_white_space_at_end(text.substr(0, span.begin)));
            }
            if (token.rstrip == Flag::Yes) {
                span.end += white_space_at_start(text.substr(span.end));
            }
            if (done < span.begin) {
                out.push_back({{done, span.begin}, -1});
            }
            out.push_back({span, token.id});
            done = span.end;
        }
    }
    if (done < text.size()) {
        out.push_back({{done, text.size()}, -1});
    }
    return out;
}

}  // namespace terrace
