#include "engine/text/template/characters.h"

#include <algorithm>

#include "engine/text/template/character_tables.h"

namespace terrace::jinja {

namespace {

constexpr char32_t kReplacement = 0xFFFD;

std::uint32_t byte_at(std::string_view text, std::size_t at) {
    return static_cast<unsigned char>(text[at]);
}

/// How many bytes a sequence with this first byte has; 0 when no sequence starts so.
std::size_t sequence_length(std::uint32_t lead) {
    if (lead < 0x80) {
        return 1;
    }
    if (lead >= 0xC2 && lead <= 0xDF) {
        return 2;
    }
    if (lead >= 0xE0 && lead <= 0xEF) {
        return 3;
    }
    return lead >= 0xF0 && lead <= 0xF4 ? 4 : 0;
}

/// Over-long forms, surrogates and values past U+10FFFF are not UTF-8.
bool in_range(char32_t value, std::size_t n_bytes) {
    if (n_bytes == 3) {
        return value >= 0x800 && (value < 0xD800 || value > 0xDFFF);
    }
    return n_bytes != 4 || (value >= 0x10000 && value <= 0x10FFFF);
}

tables::CaseTable table_for(Case to) {
    switch (to) {
        case Case::Lower:
            return tables::lower_table();
        case Case::Upper:
            return tables::upper_table();
        case Case::Title:
            break;
    }
    return tables::title_table();
}

}  // namespace

CodePoint decode(std::string_view text, std::size_t at) {
    const std::uint32_t lead = byte_at(text, at);
    const std::size_t n_bytes = sequence_length(lead);
    if (n_bytes == 1) {
        return {lead, 1};
    }
    if (n_bytes == 0 || at + n_bytes > text.size()) {
        return {kReplacement, 1};
    }
    char32_t value = lead & (0xFFU >> (n_bytes + 1));
    for (std::size_t i = 1; i < n_bytes; ++i) {
        const std::uint32_t next = byte_at(text, at + i);
        if ((next & 0xC0U) != 0x80U) {
            return {kReplacement, 1};
        }
        value = (value << 6U) | (next & 0x3FU);
    }
    if (!in_range(value, n_bytes)) {
        return {kReplacement, 1};
    }
    return {value, n_bytes};
}

CodePoint decode_before(std::string_view text, std::size_t end) {
    std::size_t begin = end - 1;
    while (begin > 0 && end - begin < 4 && (byte_at(text, begin) & 0xC0U) == 0x80U) {
        --begin;
    }
    const CodePoint point = decode(text.substr(0, end), begin);
    return begin + point.n_bytes == end ? point : CodePoint{kReplacement, 1};
}

void append_utf8(std::string& out, char32_t value) {
    const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
    if (value < 0x80) {
        put(value);
    } else if (value < 0x800) {
        put(0xC0U | (value >> 6U));
        put(0x80U | (value & 0x3FU));
    } else if (value < 0x10000) {
        put(0xE0U | (value >> 12U));
        put(0x80U | ((value >> 6U) & 0x3FU));
        put(0x80U | (value & 0x3FU));
    } else {
        put(0xF0U | (value >> 18U));
        put(0x80U | ((value >> 12U) & 0x3FU));
        put(0x80U | ((value >> 6U) & 0x3FU));
        put(0x80U | (value & 0x3FU));
    }
}

std::size_t count_code_points(std::string_view text) {
    std::size_t count = 0;
    for (std::size_t at = 0; at < text.size(); ++count) {
        at += decode(text, at).n_bytes;
    }
    return count;
}

bool is_valid_utf8(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
        const CodePoint point = decode(text, at);
        if (point.value == kReplacement && point.n_bytes == 1) {
            return false;
        }
        at += point.n_bytes;
    }
    return true;
}

bool is_space(char32_t c) {
    if (c <= 0x20) {
        return c == 0x20 || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
    }
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
           c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::uint16_t character_flags(char32_t c) {
    const auto runs = tables::flag_runs();
    const auto after = std::upper_bound(
        runs.begin(), runs.end(), c,
        [](char32_t value, const tables::FlagRun& run) { return value < run.first; });
    return after == runs.begin() ? std::uint16_t{0} : std::prev(after)->flags;
}

bool is_identifier_start(char32_t c) {
    if (c < 0x80) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    }
    return (character_flags(c) & tables::kAlpha) != 0;
}

bool is_identifier_part(char32_t c) {
    if (c >= '0' && c <= '9') {
        return true;
    }
    return is_identifier_start(c) ||
           (c >= 0x80 && (character_flags(c) & (tables::kDecimal | tables::kNumeric)) != 0);
}

void append_mapped(std::string& out, char32_t c, Case to) {
    const tables::CaseTable table = table_for(to);
    const auto range =
        std::lower_bound(table.ranges.begin(), table.ranges.end(), c,
                         [](const tables::CaseRange& r, char32_t v) { return r.last < v; });
    if (range != table.ranges.end() && range->first <= c &&
        (c - range->first) % range->stride == 0) {
        append_utf8(out, static_cast<char32_t>(static_cast<std::int32_t>(c) + range->delta));
        return;
    }
    const auto several =
        std::lower_bound(table.several.begin(), table.several.end(), c,
                         [](const tables::CaseSeveral& s, char32_t v) { return s.from < v; });
    if (several == table.several.end() || several->from != c) {
        append_utf8(out, c);
        return;
    }
    for (const std::uint32_t part : several->to) {
        if (part != 0) {
            append_utf8(out, part);
        }
    }
}

}  // namespace terrace::jinja
