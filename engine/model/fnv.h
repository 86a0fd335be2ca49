// FNV-1a in 64 bits: tells headers and folders apart; no protection against anybody's intent.
#pragma once

#include <cstdint>
#include <string_view>

namespace terrace {

inline constexpr std::uint64_t kFnvStart = 0xCBF29CE484222325ULL;

/// Continues `hash` over the bytes of `text`.
[[nodiscard]] constexpr std::uint64_t fnv1a(std::string_view text, std::uint64_t hash = kFnvStart) {
    for (const char c : text) {
        hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001B3ULL;
    }
    return hash;
}

}  // namespace terrace
