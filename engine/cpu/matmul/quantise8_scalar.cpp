// quantise8 straight from arithmetic.md 1; the twin that the fast versions must equal in every bit.
#include <bit>
#include <cmath>

#include "engine/cpu/quantise8.h"

namespace terrace::cpu {

namespace {

constexpr std::int64_t kGroup = 64;
constexpr float kTiny = 0x1p-60f;

struct GroupMax {
    std::uint32_t finite = 0;  ///< largest finite |x|, as bits
    std::uint32_t all = 0;     ///< largest |x| with NaN and infinity, as bits
};

std::uint32_t magnitude_bits(float x) {
    return std::bit_cast<std::uint32_t>(x) & 0x7fffffffu;
}

GroupMax largest(const float* x, std::int64_t n) {
    GroupMax max;
    for (std::int64_t i = 0; i < n; ++i) {
        const std::uint32_t bits = magnitude_bits(x[i]);
        max.all = bits > max.all ? bits : max.all;
        if (bits < kNotFiniteBits && bits > max.finite) {
            max.finite = bits;
        }
    }
    return max;
}

std::int32_t quantise_group(const float* x, std::int64_t n, float a, std::int8_t* q) {
    const float r = 127.0f / a;
    std::int32_t sum = 0;
    for (std::int64_t i = 0; i < kGroup; ++i) {
        float v = 0.0f;
        if (i < n && magnitude_bits(x[i]) < kNotFiniteBits) {
            v = std::rint(x[i] * r);
            v = v > 127.0f ? 127.0f : v;
            v = v < -127.0f ? -127.0f : v;
        }
        q[i] = static_cast<std::int8_t>(v);
        sum += q[i];
    }
    return sum;
}

}  // namespace

std::uint32_t quantise_row_scalar(
    const float* x, std::int64_t n, std::int8_t* q, float* scales, std::int32_t* sums) {
    std::uint32_t row_max = 0;
    for (std::int64_t first = 0; first < n; first += kGroup, ++scales, q += kGroup) {
        const std::int64_t count = n - first < kGroup ? n - first : kGroup;
        const GroupMax max = largest(x + first, count);
        row_max = max.all > row_max ? max.all : row_max;
        const float a = std::bit_cast<float>(max.finite);
        std::int32_t sum = 0;
        if (a < kTiny) {
            for (std::int64_t i = 0; i < kGroup; ++i) {
                q[i] = 0;
            }
            *scales = 0.0f;
        } else {
            sum = quantise_group(x + first, count, a, q);
            *scales = a / 127.0f;
        }
        if (sums != nullptr) {
            sums[first / kGroup] = sum;
        }
    }
    return row_max;
}

}  // namespace terrace::cpu
