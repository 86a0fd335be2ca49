#include "engine/text/template/text_operations.h"

#include <algorithm>

#include "engine/text/template/character_tables.h"
#include "engine/text/template/characters.h"
#include "engine/text/template/text_search.h"

namespace terrace::jinja {

namespace {

constexpr char32_t kCapitalSigma = 0x3A3;
constexpr char32_t kFinalSigma = 0x3C2;

bool is_cased(char32_t c) {
    return (character_flags(c) & (tables::kLower | tables::kUpper | tables::kTitle)) != 0;
}

bool is_case_ignorable(char32_t c) {
    return (character_flags(c) & tables::kCaseIgnorable) != 0;
}

/// Whether the sigma of `n_bytes` at `at` ends its word, which changes its small form.
bool is_final_sigma(std::string_view text, std::size_t at, std::size_t n_bytes) {
    std::size_t before = at;
    bool cased_before = false;
    while (before > 0) {
        const CodePoint point = decode_before(text, before);
        before -= point.n_bytes;
        if (!is_case_ignorable(point.value)) {
            cased_before = is_cased(point.value);
            break;
        }
    }
    if (!cased_before) {
        return false;
    }
    for (std::size_t after = at + n_bytes; after < text.size();) {
        const CodePoint point = decode(text, after);
        after += point.n_bytes;
        if (!is_case_ignorable(point.value)) {
            return !is_cased(point.value);
        }
    }
    return true;
}

Case case_for(CaseChange how, char32_t c, std::size_t at, bool after_cased) {
    switch (how) {
        case CaseChange::Lower:
            return Case::Lower;
        case CaseChange::Upper:
            return Case::Upper;
        case CaseChange::Title:
            return after_cased ? Case::Lower : Case::Title;
        case CaseChange::Capitalize:
            return at == 0 ? Case::Title : Case::Lower;
        case CaseChange::Swap:
            break;
    }
    return (character_flags(c) & tables::kUpper) != 0 ? Case::Lower : Case::Upper;
}

/// The end of the line that starts at `at`: before its break, and after it.
struct LineEnd {
    std::size_t text_end;
    std::size_t next;
};

LineEnd find_line_end(std::string_view text, std::size_t at) {
    while (at < text.size()) {
        const CodePoint point = decode(text, at);
        const char32_t c = point.value;
        const bool breaks = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
                            c == 0x2028 || c == 0x2029;
        if (breaks) {
            std::size_t next = at + point.n_bytes;
            if (c == '\r' && next < text.size() && text[next] == '\n') {
                ++next;
            }
            return {at, next};
        }
        at += point.n_bytes;
    }
    return {at, at};
}

bool in_set(char32_t c, const Text* chars) {
    if (chars == nullptr) {
        return is_space(c);
    }
    for (std::size_t at = 0; at < chars->bytes.size();) {
        const CodePoint point = decode(chars->bytes, at);
        if (point.value == c) {
            return true;
        }
        at += point.n_bytes;
    }
    return false;
}

std::vector<Value> split_at_space(Runtime& rt, const Text& text, BigInt limit) {
    std::vector<Value> parts;
    const std::string& bytes = text.bytes;
    std::size_t at = 0;
    const auto skip = [&](bool spaces) {
        while (at < bytes.size()) {
            const CodePoint point = decode(bytes, at);
            if (is_space(point.value) != spaces) {
                return;
            }
            at += point.n_bytes;
        }
    };
    rt.spend(bytes.size() / 16);
    for (skip(true); at < bytes.size() && rt.spend(1); skip(true)) {
        const std::size_t begin = at;
        if (limit >= 0 && static_cast<BigInt>(parts.size()) == limit) {
            const Value rest = slice_bytes(rt, text, begin, bytes.size());
            parts.push_back(strip(rt, rest.text(), Sides::Right, nullptr));
            return parts;
        }
        skip(false);
        parts.push_back(slice_bytes(rt, text, begin, at));
    }
    return parts;
}

std::vector<Value> split_at_space_backwards(Runtime& rt, const Text& text, BigInt limit) {
    std::vector<Value> parts;
    const std::string& bytes = text.bytes;
    std::size_t end = bytes.size();
    const auto skip = [&](bool spaces) {
        while (end > 0) {
            const CodePoint point = decode_before(bytes, end);
            if (is_space(point.value) != spaces) {
                return;
            }
            end -= point.n_bytes;
        }
    };
    rt.spend(bytes.size() / 16);
    for (skip(true); end > 0 && rt.spend(1); skip(true)) {
        const std::size_t stop = end;
        if (limit >= 0 && static_cast<BigInt>(parts.size()) == limit) {
            const Value rest = slice_bytes(rt, text, 0, stop);
            parts.push_back(strip(rt, rest.text(), Sides::Left, nullptr));
            break;
        }
        skip(false);
        parts.push_back(slice_bytes(rt, text, end, stop));
    }
    std::reverse(parts.begin(), parts.end());
    return parts;
}

}  // namespace

Value take_like(TextBuilder& builder, const Text& like) {
    return like.markup ? builder.take_markup() : builder.take();
}

Value change_case(Runtime& rt, const Text& text, CaseChange how) {
    TextBuilder builder(rt);
    bool after_cased = false;
    std::string mapped;
    rt.spend(text.bytes.size() / 4);
    for (std::size_t at = 0; at < text.bytes.size() && !rt.failed();) {
        const CodePoint point = decode(text.bytes, at);
        const Case to = case_for(how, point.value, at, after_cased);
        mapped.clear();
        if (point.value == kCapitalSigma && to == Case::Lower &&
            is_final_sigma(text.bytes, at, point.n_bytes)) {
            append_utf8(mapped, kFinalSigma);
        } else {
            append_mapped(mapped, point.value, to);
        }
        builder.add(mapped, origin_at(text, at));
        after_cased = is_cased(point.value);
        at += point.n_bytes;
    }
    return take_like(builder, text);
}

Value strip(Runtime& rt, const Text& text, Sides sides, const Text* chars) {
    std::size_t begin = 0;
    std::size_t end = text.bytes.size();
    rt.spend(1 + (chars == nullptr ? 0 : chars->bytes.size() * end / 256));
    while (sides != Sides::Right && begin < end) {
        const CodePoint point = decode(text.bytes, begin);
        if (!in_set(point.value, chars)) {
            break;
        }
        begin += point.n_bytes;
    }
    while (sides != Sides::Left && end > begin) {
        const CodePoint point = decode_before(text.bytes, end);
        if (!in_set(point.value, chars)) {
            break;
        }
        end -= point.n_bytes;
    }
    return slice_bytes(rt, text, begin, end);
}

std::vector<Value> split(
    Runtime& rt, const Text& text, const Text* separator, BigInt limit, From from) {
    if (separator == nullptr) {
        return from == From::Left ? split_at_space(rt, text, limit)
                                  : split_at_space_backwards(rt, text, limit);
    }
    std::vector<Value> parts;
    const std::string& mark = separator->bytes;
    if (mark.empty()) {
        rt.fail(kValueError, "empty separator");
        return parts;
    }
    if (from == From::Left) {
        std::size_t at = 0;
        while (rt.spend(1) && (limit < 0 || static_cast<BigInt>(parts.size()) < limit)) {
            const std::size_t found = find_text(rt, text.bytes, mark, at);
            if (found == kNoMatch) {
                break;
            }
            parts.push_back(slice_bytes(rt, text, at, found));
            at = found + mark.size();
        }
        parts.push_back(slice_bytes(rt, text, at, text.bytes.size()));
        return parts;
    }
    // A limited number of parts from the right: each search costs what it passes over.
    std::size_t end = text.bytes.size();
    while (rt.spend(1) && (limit < 0 || static_cast<BigInt>(parts.size()) < limit)) {
        const std::size_t found = find_text_backwards(rt, text.bytes, mark, end);
        if (found == kNoMatch) {
            break;
        }
        parts.push_back(slice_bytes(rt, text, found + mark.size(), end));
        end = found;
    }
    parts.push_back(slice_bytes(rt, text, 0, end));
    std::reverse(parts.begin(), parts.end());
    return parts;
}

std::vector<Value> split_lines(Runtime& rt, const Text& text, LineEnds ends) {
    std::vector<Value> lines;
    rt.spend(text.bytes.size() / 16);
    for (std::size_t at = 0; at < text.bytes.size() && rt.spend(1);) {
        const LineEnd end = find_line_end(text.bytes, at);
        lines.push_back(
            slice_bytes(rt, text, at, ends == LineEnds::Keep ? end.next : end.text_end));
        at = end.next;
    }
    return lines;
}

Value replace(Runtime& rt, const Text& text, const Text& old, const Text& with, BigInt count) {
    TextBuilder builder(rt);
    std::size_t at = 0;
    for (BigInt done = 0; count < 0 || done < count; ++done) {
        if (!rt.spend(1)) {
            return {};
        }
        if (old.bytes.empty()) {
            builder.add(with);
            if (at >= text.bytes.size()) {
                return take_like(builder, text);
            }
            const std::size_t n_bytes = decode(text.bytes, at).n_bytes;
            builder.add_slice(text, at, at + n_bytes);
            at += n_bytes;
            continue;
        }
        const std::size_t found = find_text(rt, text.bytes, old.bytes, at);
        if (found == kNoMatch) {
            break;
        }
        builder.add_slice(text, at, found);
        builder.add(with);
        at = found + old.bytes.size();
    }
    builder.add_slice(text, at, text.bytes.size());
    return take_like(builder, text);
}

Value pad(Runtime& rt, const Text& text, BigInt width, std::string_view fill, Sides text_side) {
    const BigInt n_chars = static_cast<BigInt>(count_code_points(text.bytes));
    const BigInt missing = width > n_chars ? width - n_chars : 0;
    if (missing > static_cast<BigInt>(rt.limits().max_memory_bytes)) {
        return rt.fail_limit("a padded text larger than the memory allowed");
    }
    // Python's center puts the odd character left when the width is odd too.
    BigInt left = missing / 2 + (missing & width & 1);
    if (text_side != Sides::Both) {
        left = text_side == Sides::Left ? 0 : missing;
    }
    TextBuilder builder(rt);
    for (BigInt i = 0; i < left && !rt.failed(); ++i) {
        builder.add(fill, Origin::Trusted);
    }
    builder.add(text);
    for (BigInt i = left; i < missing && !rt.failed(); ++i) {
        builder.add(fill, Origin::Trusted);
    }
    return take_like(builder, text);
}

Value join(Runtime& rt, const Text& separator, const std::vector<Value>& items) {
    TextBuilder builder(rt);
    for (std::size_t i = 0; i < items.size() && !rt.failed(); ++i) {
        if (i != 0) {
            builder.add(separator);
        }
        print(rt, items[i], builder);
    }
    return builder.take();
}

std::size_t byte_offset(Runtime& rt, const Text& text, BigInt index) {
    if (index < 0) {
        index +=
            static_cast<BigInt>(text.ascii ? text.bytes.size() : count_code_points(text.bytes));
    }
    if (index <= 0) {
        return 0;
    }
    if (text.ascii || index >= static_cast<BigInt>(text.bytes.size())) {
        return std::min(static_cast<std::size_t>(std::min(index, BigInt{1} << 62U)),
                        text.bytes.size());
    }
    rt.spend(text.bytes.size() / 16);
    std::size_t at = 0;
    for (BigInt i = 0; i < index && at < text.bytes.size(); ++i) {
        at += decode(text.bytes, at).n_bytes;
    }
    return at;
}

}  // namespace terrace::jinja
