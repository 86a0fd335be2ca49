// The pseudo-random values that synthetic models are made of.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace terrace::app {

/// A linear congruential sequence seeded by a name: x <- 1664525 x + 1013904223 mod 2^32, each
/// value (x >> 8) / 2^24 - 0.5. Any program can repeat it. Value type.
class SyntheticValues {
public:
    explicit SyntheticValues(std::string_view name) {
        for (const char c : name) {
            state_ = (state_ ^ static_cast<unsigned char>(c)) * 16777619U;
        }
    }

    /// In [-0.5, 0.5).
    [[nodiscard]] double next() {
        state_ = state_ * 1664525U + 1013904223U;
        return static_cast<double>(state_ >> 8) * 0x1p-24 - 0.5;
    }

private:
    std::uint32_t state_ = 2166136261U;
};

/// The nearest bf16 value, ties to even: synthetic weights are what a bf16 checkpoint would hold.
[[nodiscard]] inline float roundToBf16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return std::bit_cast<float>((bits + 0x7FFFU + ((bits >> 16) & 1U)) & 0xFFFF0000U);
}

}  // namespace terrace::app
