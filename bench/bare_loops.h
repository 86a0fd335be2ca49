// The ceilings that kernels are measured against: a loop that only reads, and one that only
// multiplies.
#pragma once

#include <cstddef>
#include <cstdint>

namespace terrace::bench {

/// Reads `bytes` (a multiple of 256) from memory aligned to 64; the result only keeps the
/// compiler from dropping the loop.
using ReadLoop = std::uint64_t (*)(const std::byte* data, std::int64_t bytes);

std::uint64_t read_avx2(const std::byte* data, std::int64_t bytes);
std::uint64_t read_avx512(const std::byte* data, std::int64_t bytes);

/// Multiplies from registers only and returns the number of int8 multiplications it made.
using MultiplyLoop = std::int64_t (*)(std::int64_t rounds);

std::int64_t multiply_maddubs(std::int64_t rounds);       ///< vpmaddubsw + vpaddw
std::int64_t multiply_vpdpbusd_256(std::int64_t rounds);  ///< VEX form
std::int64_t multiply_vpdpbusd_512(std::int64_t rounds);

}  // namespace terrace::bench
