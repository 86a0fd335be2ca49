#include "engine/model/printable.h"

#include <cstdint>

#include "engine/text/utf8.h"

namespace terrace {
namespace {

/// C1 controls (U+0080 to U+009F) steer terminals too; so do the marks that turn text around.
bool steers_terminal(std::string_view sequence) {
    if (sequence.size() == 2 && sequence[0] == '\xC2') {
        return static_cast<std::uint8_t>(sequence[1]) < 0xA0;
    }
    if (sequence.size() == 3 && sequence[0] == '\xE2') {
        const auto second = static_cast<std::uint8_t>(sequence[1]);
        const auto third = static_cast<std::uint8_t>(sequence[2]);
        return (second == 0x80 && third >= 0xA8 && third <= 0xAE) ||
               (second == 0x81 && third >= 0xA6 && third <= 0xA9);
    }
    return false;
}

void append_escaped(std::string& out, std::string_view bytes) {
    constexpr std::string_view kHex = "0123456789abcdef";
    for (const char c : bytes) {
        const auto byte = static_cast<std::uint8_t>(c);
        out += "\\x";
        out += kHex[byte >> 4U];
        out += kHex[byte & 15U];
    }
}

}  // namespace

std::string printable(std::string_view text, std::size_t max_bytes) {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
        if (out.size() >= max_bytes) {
            return out + "...";
        }
        const Utf8Part part = first_utf8_part(text.substr(at));
        const std::string_view sequence = text.substr(at, part.n_bytes);
        at += part.n_bytes;
        if (part.kind != Utf8Part::Kind::Character) {
            out += "\xEF\xBF\xBD";
            continue;
        }
        const auto byte = static_cast<std::uint8_t>(sequence[0]);
        if (byte < 0x20 || byte == 0x7F || steers_terminal(sequence)) {
            append_escaped(out, sequence);
        } else {
            out += sequence;
        }
    }
    return out;
}

std::string printable_path(const std::filesystem::path& path) {
    return printable(std::string_view(path.native()), 1000);
}

}  // namespace terrace
