// See utf8.h.
#include "engine/text/utf8.h"

namespace terrace {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

std::uint8_t byte_at(std::string_view bytes, std::size_t at) {
    return static_cast<std::uint8_t>(bytes[at]);
}

/// Length of the sequence a lead byte announces and the range of its second byte (Table 3-7 of the
/// Unicode standard); length 0 for a byte that starts nothing.
struct Lead {
    std::size_t length;
    std::uint8_t second_first;
    std::uint8_t second_last;
};

Lead lead_of(std::uint8_t byte) {
    if (byte < 0x80) {
        return {1, 0, 0};
    }
    if (byte < 0xC2 || byte > 0xF4) {
        return {0, 0, 0};
    }
    if (byte < 0xE0) {
        return {2, 0x80, 0xBF};
    }
    if (byte < 0xF0) {
        const std::uint8_t first = byte == 0xE0 ? 0xA0 : 0x80;
        const std::uint8_t last = byte == 0xED ? 0x9F : 0xBF;
        return {3, first, last};
    }
    const std::uint8_t first = byte == 0xF0 ? 0x90 : 0x80;
    const std::uint8_t last = byte == 0xF4 ? 0x8F : 0xBF;
    return {4, first, last};
}

}  // namespace

Utf8Part first_utf8_part(std::string_view bytes) {
    const std::uint8_t first = byte_at(bytes, 0);
    const Lead lead = lead_of(first);
    if (lead.length <= 1) {
        return {lead.length == 1 ? Utf8Part::Kind::Character : Utf8Part::Kind::IllFormed, 1, first};
    }
    char32_t code_point = first & (0x7FU >> lead.length);
    for (std::size_t i = 1; i < lead.length; ++i) {
        if (i == bytes.size()) {
            return {Utf8Part::Kind::Unfinished, i, 0};
        }
        const std::uint8_t next = byte_at(bytes, i);
        const std::uint8_t low = i == 1 ? lead.second_first : std::uint8_t{0x80};
        const std::uint8_t high = i == 1 ? lead.second_last : std::uint8_t{0xBF};
        if (next < low || next > high) {
            return {Utf8Part::Kind::IllFormed, i, 0};
        }
        code_point = code_point << 6 | (next & 0x3FU);
    }
    return {Utf8Part::Kind::Character, lead.length, code_point};
}

void append_utf8(char32_t code_point, std::string& out) {
    const auto add = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
    if (code_point < 0x80) {
        add(code_point);
    } else if (code_point < 0x800) {
        add(0xC0 | code_point >> 6);
        add(0x80 | (code_point & 0x3F));
    } else if (code_point < 0x10000) {
        add(0xE0 | code_point >> 12);
        add(0x80 | (code_point >> 6 & 0x3F));
        add(0x80 | (code_point & 0x3F));
    } else {
        add(0xF0 | code_point >> 18);
        add(0x80 | (code_point >> 12 & 0x3F));
        add(0x80 | (code_point >> 6 & 0x3F));
        add(0x80 | (code_point & 0x3F));
    }
}

char32_t next_code_point(std::string_view valid, std::size_t& at) {
    const std::uint8_t first = byte_at(valid, at);
    if (first < 0x80) {
        ++at;
        return first;
    }
    const std::size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    char32_t code_point = first & (0x7FU >> length);
    for (std::size_t i = 1; i < length; ++i) {
        code_point = code_point << 6 | (byte_at(valid, at + i) & 0x3FU);
    }
    at += length;
    return code_point;
}

std::string repair_utf8(std::string_view bytes, std::vector<Utf8Repair>& repairs) {
    std::string out;
    out.reserve(bytes.size());
    std::size_t copied = 0;
    for (std::size_t at = 0; at < bytes.size();) {
        const Utf8Part part = first_utf8_part(bytes.substr(at));
        if (part.kind != Utf8Part::Kind::Character) {
            out.append(bytes.substr(copied, at - copied));
            copied = at + part.n_bytes;
            repairs.push_back({at, copied, out.size()});
            append_utf8(kReplacement, out);
        }
        at += part.n_bytes;
    }
    out.append(bytes.substr(copied));
    return out;
}

std::string to_valid_utf8(std::string_view bytes, std::size_t* n_replaced) {
    std::vector<Utf8Repair> repairs;
    std::string out = repair_utf8(bytes, repairs);
    if (n_replaced != nullptr) {
        *n_replaced = repairs.size();
    }
    return out;
}

bool is_valid_utf8(std::string_view bytes) {
    for (std::size_t at = 0; at < bytes.size();) {
        const Utf8Part part = first_utf8_part(bytes.substr(at));
        if (part.kind != Utf8Part::Kind::Character) {
            return false;
        }
        at += part.n_bytes;
    }
    return true;
}

std::size_t unfinished_utf8_tail(std::string_view bytes) {
    for (std::size_t back = 1; back <= 3 && back <= bytes.size(); ++back) {
        const std::uint8_t byte = byte_at(bytes, bytes.size() - back);
        if ((byte & 0xC0U) == 0x80) {
            continue;
        }
        const Utf8Part part = first_utf8_part(bytes.substr(bytes.size() - back));
        return part.kind == Utf8Part::Kind::Unfinished && part.n_bytes == back ? back : 0;
    }
    return 0;
}

std::string quoted_excerpt(std::string_view valid) {
    constexpr std::size_t kShownBytes = 60;
    if (valid.size() <= kShownBytes) {
        return "\"" + std::string(valid) + "\"";
    }
    const std::string_view start = valid.substr(0, kShownBytes);
    return "\"" + std::string(start.substr(0, start.size() - unfinished_utf8_tail(start))) +
           "...\"";
}

}  // namespace terrace
