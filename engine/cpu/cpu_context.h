// What every CPU op is given, and the instruction sets it may be asked to use.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/device/result.h"
#include "engine/device/stream.h"

namespace terrace::cpu {

class ThreadPool;

/// Kernel families, slowest first. Every family gives the same bits.
enum class Isa : std::uint8_t { Scalar, Avx2, AvxVnni, Avx512 };

[[nodiscard]] const char* to_string(Isa isa);

/// The families that this processor runs, slowest first. Empty: below the floor (AVX2, FMA, F16C).
[[nodiscard]] std::vector<Isa> available_isas();

/// "auto" or a family by name ("scalar", "avx2", "avxvnni", "avx512"). An error names what this
/// processor offers.
[[nodiscard]] Result<Isa> choose_isa(std::string_view name);

/// Passed to every op by value; owns nothing.
struct Context {
    ThreadPool* pool = nullptr;
    Stream* stream = nullptr;
    Isa isa = Isa::Scalar;
};

}  // namespace terrace::cpu
