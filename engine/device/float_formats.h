// The small number formats of model files, widened to binary32: what a checkpoint's reader meets
// before anything is computed (docs/arithmetic.md 0). All conversions to binary32 are exact.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace terrace {

/// bfloat16: the upper half of a binary32.
[[nodiscard]] constexpr float from_bf16(std::uint16_t code) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(code) << 16);
}

/// IEEE binary16; subnormals, infinities and NaN included.
[[nodiscard]] float from_f16(std::uint16_t code);

/// Nearest binary16, ties to even; 65520 and above becomes infinity.
[[nodiscard]] std::uint16_t to_f16(float x);

/// OCP e4m3fn: codes 0x7F and 0xFF are NaN, there is no infinity; the largest value is 448.
[[nodiscard]] float from_e4m3fn(std::uint8_t code);

/// A power of two, 2^(code - 127): the scale of MXFP4 and of some FP8 folders. 0 is the subnormal
/// 2^-127, 255 is NaN.
[[nodiscard]] float from_ue8m0(std::uint8_t code);

/// Four-bit float of MXFP4 and NVFP4; the low four bits of the code are read.
[[nodiscard]] float from_e2m1(std::uint8_t code);

/// Arrays as they lie in a file: little endian, aligned or not.
///   codes [n], out [n] f32; they must not overlap
void widen_bf16(const std::byte* codes, std::int64_t n, float* out);
void widen_f16(const std::byte* codes, std::int64_t n, float* out);
void widen_e4m3fn(const std::byte* codes, std::int64_t n, float* out);

}  // namespace terrace
