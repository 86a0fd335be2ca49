// Philox4x32-10, the counter-based generator that every random choice of Terrace comes from
// (docs/arithmetic.md 5): a draw depends on its key and its place, never on earlier draws.
#pragma once

#include <array>
#include <cstdint>

namespace terrace {

/// The four words of one counter.
/// Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
[[nodiscard]] constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 2> key,
                                                                std::array<std::uint32_t, 4> c) {
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t p0 = std::uint64_t{0xD2511F53} * c[0];
        const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * c[2];
        c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ key[0], static_cast<std::uint32_t>(p1),
             static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ key[1], static_cast<std::uint32_t>(p0)};
        key[0] += 0x9E3779B9;
        key[1] += 0xBB67AE85;
    }
    return c;
}

}  // namespace terrace
