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

/// What cpuid and xgetbv say, as far as the choice of kernels needs it.
struct CpuFeatures {
    std::uint32_t leaf1_ecx = 0;
    std::uint32_t leaf7_ebx = 0;
    std::uint32_t leaf7_ecx = 0;
    std::uint32_t leaf7_1_eax = 0;
    std::uint64_t saved_states = 0;  ///< register states that the operating system saves (XCR0)
};

[[nodiscard]] CpuFeatures read_cpu_features();

/// The families that such a processor runs, slowest first. Empty: below the floor (AVX2, FMA,
/// F16C).
[[nodiscard]] std::vector<Isa> isas_of(const CpuFeatures& features);

/// The families that this processor runs.
[[nodiscard]] std::vector<Isa> available_isas();

/// "auto" (the fastest) or a family by name ("scalar", "avx2", "avxvnni", "avx512"). An error
/// names what this processor offers.
[[nodiscard]] Result<Isa> choose_isa(std::string_view name);
[[nodiscard]] Result<Isa> choose_isa(std::string_view name, const std::vector<Isa>& available);

/// Passed to every op by value; owns nothing.
struct Context {
    ThreadPool* pool = nullptr;
    Stream* stream = nullptr;
    Isa isa = Isa::Scalar;
};

}  // namespace terrace::cpu
