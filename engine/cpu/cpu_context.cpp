// Looks at the processor. Compiled without any instruction-set flag: it runs before we know what
// the processor can do.
#include "engine/cpu/cpu_context.h"

#include <cpuid.h>

#include <string>

namespace terrace::cpu {

namespace {

bool bit(std::uint32_t word, int index) {
    return ((word >> index) & 1) != 0;
}

// Which register states the operating system saves (XCR0); 0 when it saves none of the new ones.
std::uint64_t saved_states(std::uint32_t leaf1_ecx) {
    constexpr int kOsXsave = 27;
    if (!bit(leaf1_ecx, kOsXsave)) {
        return 0;
    }
    std::uint32_t low = 0;
    std::uint32_t high = 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (static_cast<std::uint64_t>(high) << 32) | low;
}

std::string list_of(const std::vector<Isa>& isas) {
    std::string list;
    for (const Isa isa : isas) {
        list += list.empty() ? "" : ", ";
        list += to_string(isa);
    }
    return list;
}

}  // namespace

const char* to_string(Isa isa) {
    switch (isa) {
        case Isa::Scalar:
            return "scalar";
        case Isa::Avx2:
            return "avx2";
        case Isa::AvxVnni:
            return "avxvnni";
        case Isa::Avx512:
            return "avx512";
    }
    return "unknown";
}

CpuFeatures read_cpu_features() {
    CpuFeatures features;
    std::uint32_t a = 0;
    std::uint32_t b = 0;
    std::uint32_t c = 0;
    std::uint32_t d = 0;
    if (__get_cpuid_count(1, 0, &a, &b, &c, &d) != 0) {
        features.leaf1_ecx = c;
        features.saved_states = saved_states(c);
    }
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
        features.leaf7_ebx = b;
        features.leaf7_ecx = c;
        const std::uint32_t last_subleaf = a;
        if (last_subleaf >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) {
            features.leaf7_1_eax = a;
        }
    }
    return features;
}

std::vector<Isa> isas_of(const CpuFeatures& f) {
    constexpr std::uint64_t kYmmStates = 0x06;
    constexpr std::uint64_t kZmmStates = 0xe6;
    const bool os_ymm = (f.saved_states & kYmmStates) == kYmmStates;
    const bool os_zmm = (f.saved_states & kZmmStates) == kZmmStates;
    const bool avx2 = os_ymm && bit(f.leaf7_ebx, 5) && bit(f.leaf1_ecx, 12) && bit(f.leaf1_ecx, 29);
    if (!avx2) {
        return {};
    }
    std::vector<Isa> isas = {Isa::Scalar, Isa::Avx2};
    if (bit(f.leaf7_1_eax, 4)) {
        isas.push_back(Isa::AvxVnni);
    }
    // F, DQ, BW, VL and VNNI.
    if (os_zmm && bit(f.leaf7_ebx, 16) && bit(f.leaf7_ebx, 17) && bit(f.leaf7_ebx, 30) &&
        bit(f.leaf7_ebx, 31) && bit(f.leaf7_ecx, 11)) {
        isas.push_back(Isa::Avx512);
    }
    return isas;
}

std::vector<Isa> available_isas() {
    return isas_of(read_cpu_features());
}

Result<Isa> choose_isa(std::string_view name) {
    return choose_isa(name, available_isas());
}

Result<Isa> choose_isa(std::string_view name, const std::vector<Isa>& available) {
    if (available.empty()) {
        return Error{ErrorCode::Unsupported,
                     "Terrace needs a processor with AVX2, FMA and F16C (2013 and later), and an "
                     "operating system that saves their registers; this one lacks at least one",
                     "", "Run Terrace on a newer processor."};
    }
    if (name == "auto") {
        return available.back();
    }
    for (const Isa isa : {Isa::Scalar, Isa::Avx2, Isa::AvxVnni, Isa::Avx512}) {
        if (name != to_string(isa)) {
            continue;
        }
        for (const Isa offered : available) {
            if (offered == isa) {
                return isa;
            }
        }
        return Error{ErrorCode::Unsupported,
                     "this processor cannot run the instruction set \"" + std::string(name) +
                         "\"; it offers " + list_of(available),
                     "", "Choose one of them, or auto."};
    }
    return Error{ErrorCode::WrongUse,
                 "there is no instruction set named \"" + std::string(name) +
                     "\"; expected auto, scalar, avx2, avxvnni or avx512",
                 "", "This processor offers " + list_of(available) + "."};
}

}  // namespace terrace::cpu
