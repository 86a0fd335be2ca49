// quantise8 of the arithmetic contract (arithmetic.md 1): 64 floats become 64 int8 and one scale.
// One function for every op family that quantises: matmul inputs, cache rows, attention.
#pragma once

#include <cstdint>

#include "engine/cpu/cpu_context.h"

namespace terrace::cpu {

/// Bits of a float without sign from here on are an infinity or a NaN.
inline constexpr std::uint32_t kNotFiniteBits = 0x7f800000;

/// Quantises one row.
///   x       [n] f32
///   q       [round_up(n, 64)] int8 out, padding 0
///   scales  [ceil(n / 64)] f32 out, one for every 64 numbers
///   sums    [ceil(n / 64)] int32 out, sum of the 64 q; may be null
/// Returns the largest `bits & 0x7fffffff` of the row: >= kNotFiniteBits means that a NaN or an
/// infinity was met (a numeric fault); it counts as +0, and the scale is taken over the others.
/// No alignment is asked for. x, q, scales and sums do not overlap.
using QuantiseRow = std::uint32_t (*)(
    const float* x, std::int64_t n, std::int8_t* q, float* scales, std::int32_t* sums);

/// The version of one kernel family; all give the same bits.
[[nodiscard]] QuantiseRow quantise_row(Isa isa);

/// The plain reading of the page.
std::uint32_t quantise_row_scalar(
    const float* x, std::int64_t n, std::int8_t* q, float* scales, std::int32_t* sums);
std::uint32_t quantise_row_avx2(
    const float* x, std::int64_t n, std::int8_t* q, float* scales, std::int32_t* sums);
std::uint32_t quantise_row_avx512(
    const float* x, std::int64_t n, std::int8_t* q, float* scales, std::int32_t* sums);

}  // namespace terrace::cpu
