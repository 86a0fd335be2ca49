// FIPS 180-4, written plainly: the constants are the fractional parts of roots of the first primes
// and are computed, not listed.
#include "tests/engine/model/sha256.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace terrace {
namespace {

/// First 32 bits of the fractional part of the square or cube root of n, in exact integers.
std::uint32_t root_fraction(std::uint64_t n, int power) {
    __extension__ using Wide = unsigned __int128;
    Wide low = 0;
    Wide high = Wide{1} << 40U;
    // Largest x with x^power <= n * 2^(32 * power): the root times 2^32.
    const Wide target = Wide{n} << (32U * static_cast<unsigned>(power));
    while (high - low > 1) {
        const Wide middle = (low + high) / 2;
        const Wide product = power == 2 ? middle * middle : middle * middle * middle;
        (product <= target ? low : high) = middle;
    }
    return static_cast<std::uint32_t>(low);
}

std::vector<std::uint64_t> primes(std::size_t count) {
    std::vector<std::uint64_t> out;
    for (std::uint64_t n = 2; out.size() < count; ++n) {
        bool prime = true;
        for (const std::uint64_t p : out) {
            prime = prime && n % p != 0;
        }
        if (prime) {
            out.push_back(n);
        }
    }
    return out;
}

struct Constants {
    std::array<std::uint32_t, 64> round{};
    std::array<std::uint32_t, 8> start{};

    Constants() {
        const std::vector<std::uint64_t> p = primes(64);
        for (std::size_t i = 0; i < 64; ++i) {
            round[i] = root_fraction(p[i], 3);
        }
        for (std::size_t i = 0; i < 8; ++i) {
            start[i] = root_fraction(p[i], 2);
        }
    }
};

void add_block(const std::uint8_t* block, const Constants& k, std::array<std::uint32_t, 8>& h) {
    std::array<std::uint32_t, 64> w{};
    for (std::size_t i = 0; i < 16; ++i) {
        w[i] = std::uint32_t{block[4 * i]} << 24U | std::uint32_t{block[4 * i + 1]} << 16U |
               std::uint32_t{block[4 * i + 2]} << 8U | block[4 * i + 3];
    }
    for (std::size_t i = 16; i < 64; ++i) {
        const std::uint32_t a = w[i - 15];
        const std::uint32_t b = w[i - 2];
        w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3U) + w[i - 7] +
               (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10U);
    }
    std::array<std::uint32_t, 8> v = h;
    for (std::size_t i = 0; i < 64; ++i) {
        const std::uint32_t e = v[4];
        const std::uint32_t a = v[0];
        const std::uint32_t t1 = v[7] + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                                 ((e & v[5]) ^ (~e & v[6])) + k.round[i] + w[i];
        const std::uint32_t t2 = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) +
                                 ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        v = {t1 + t2, v[0], v[1], v[2], v[3] + t1, v[4], v[5], v[6]};
    }
    for (std::size_t i = 0; i < 8; ++i) {
        h[i] += v[i];
    }
}

}  // namespace

std::string sha256_hex(std::span<const std::byte> bytes) {
    static const Constants k;
    std::array<std::uint32_t, 8> h = k.start;
    const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
    std::size_t at = 0;
    for (; at + 64 <= bytes.size(); at += 64) {
        add_block(data + at, k, h);
    }
    std::vector<std::uint8_t> tail(data + at, data + bytes.size());
    tail.push_back(0x80);
    while (tail.size() % 64 != 56) {
        tail.push_back(0);
    }
    const std::uint64_t bits = std::uint64_t{bytes.size()} * 8;
    for (int shift = 56; shift >= 0; shift -= 8) {
        tail.push_back(static_cast<std::uint8_t>(bits >> static_cast<unsigned>(shift)));
    }
    for (at = 0; at < tail.size(); at += 64) {
        add_block(tail.data() + at, k, h);
    }
    std::string hex;
    constexpr const char* kHex = "0123456789abcdef";
    for (const std::uint32_t word : h) {
        for (int shift = 28; shift >= 0; shift -= 4) {
            hex += kHex[word >> static_cast<unsigned>(shift) & 15U];
        }
    }
    return hex;
}

}  // namespace terrace
