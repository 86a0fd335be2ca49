#include "engine/device/float_formats.h"

#include <array>
#include <cstring>

namespace terrace {

namespace {

constexpr std::uint32_t kQuietNan = 0x7fc00000;

constexpr float power_of_two(int n) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(n + 127) << 23);
}

constexpr float e4m3fn_value(std::uint32_t code) {
    const std::uint32_t exponent = (code >> 3) & 15;
    const std::uint32_t mantissa = code & 7;
    if (exponent == 15 && mantissa == 7) {
        return std::bit_cast<float>(kQuietNan | (code >> 7) << 31);
    }
    const float magnitude = exponent == 0 ? static_cast<float>(mantissa) * power_of_two(-9)
                                          : static_cast<float>(8 + mantissa) *
                                                power_of_two(static_cast<int>(exponent) - 10);
    return (code & 0x80) != 0 ? -magnitude : magnitude;
}

constexpr std::array<float, 256> make_e4m3fn() {
    std::array<float, 256> table{};
    for (std::uint32_t code = 0; code < 256; ++code) {
        table[code] = e4m3fn_value(code);
    }
    return table;
}

constexpr std::array<float, 256> kE4m3fn = make_e4m3fn();

constexpr std::array<float, 16> kE2m1 = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                         -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

}  // namespace

float from_f16(std::uint16_t code) {
    const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x8000) << 16;
    const std::uint32_t exponent = (code >> 10) & 31;
    const std::uint32_t mantissa = code & 0x3ff;
    if (exponent == 0) {
        const float magnitude = static_cast<float>(mantissa) * power_of_two(-24);
        return sign != 0 ? -magnitude : magnitude;
    }
    if (exponent == 31) {
        return std::bit_cast<float>(sign | 0x7f800000 | mantissa << 13);
    }
    return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

std::uint16_t to_f16(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t sign = (bits >> 16) & 0x8000;
    const std::uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) {
        return static_cast<std::uint16_t>(sign | 0x7e00);
    }
    if (magnitude >= 0x477ff000) {  // 65520: half way between the largest number and 2^16
        return static_cast<std::uint16_t>(sign | 0x7c00);
    }
    if (magnitude < 0x38800000) {
        // Below the smallest normal number: adding 0.5 leaves units of 2^-24 in the low bits and
        // rounds to nearest even in the addition itself.
        const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
        return static_cast<std::uint16_t>(sign |
                                          (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000));
    }
    const std::uint32_t odd = (magnitude >> 13) & 1;
    const std::uint32_t rounded = magnitude + 0xfff + odd;
    return static_cast<std::uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}

float from_e4m3fn(std::uint8_t code) {
    return kE4m3fn[code];
}

float from_ue8m0(std::uint8_t code) {
    if (code == 255) {
        return std::bit_cast<float>(kQuietNan);
    }
    const std::uint32_t bits = code == 0 ? 0x00400000 : static_cast<std::uint32_t>(code) << 23;
    return std::bit_cast<float>(bits);
}

float from_e2m1(std::uint8_t code) {
    return kE2m1[code & 15];
}

void widen_bf16(const std::byte* codes, std::int64_t n, float* out) {
    for (std::int64_t i = 0; i < n; ++i) {
        std::uint16_t code = 0;
        std::memcpy(&code, codes + 2 * i, 2);
        out[i] = from_bf16(code);
    }
}

void widen_f16(const std::byte* codes, std::int64_t n, float* out) {
    for (std::int64_t i = 0; i < n; ++i) {
        std::uint16_t code = 0;
        std::memcpy(&code, codes + 2 * i, 2);
        out[i] = from_f16(code);
    }
}

void widen_e4m3fn(const std::byte* codes, std::int64_t n, float* out) {
    for (std::int64_t i = 0; i < n; ++i) {
        out[i] = kE4m3fn[static_cast<std::uint8_t>(codes[i])];
    }
}

}  // namespace terrace
