// The generated tables behind characters.h: case mappings and properties of every code point.
#pragma once

#include <cstdint>
#include <span>

namespace terrace::jinja::tables {

// Bits of FlagRun::flags, in the order of make_character_tables.py.
inline constexpr std::uint16_t kAlpha = 1;
inline constexpr std::uint16_t kDecimal = 2;
inline constexpr std::uint16_t kDigit = 4;
inline constexpr std::uint16_t kNumeric = 8;
inline constexpr std::uint16_t kLower = 16;
inline constexpr std::uint16_t kUpper = 32;
inline constexpr std::uint16_t kTitle = 64;
inline constexpr std::uint16_t kPrintable = 128;
inline constexpr std::uint16_t kCaseIgnorable = 256;

/// From `first` up to the next run's first, every code point has these flags.
struct FlagRun {
    std::uint32_t first;
    std::uint16_t flags;
};

/// Code points first, first + stride ... last map to themselves plus delta.
struct CaseRange {
    std::uint32_t first;
    std::uint32_t last;
    std::uint32_t stride;
    std::int32_t delta;
};

/// One code point that maps to two or three (a zero ends the list).
struct CaseSeveral {
    std::uint32_t from;
    std::uint32_t to[3];
};

struct CaseTable {
    std::span<const CaseRange> ranges;
    std::span<const CaseSeveral> several;
};

std::span<const FlagRun> flag_runs();
CaseTable lower_table();
CaseTable upper_table();
CaseTable title_table();

}  // namespace terrace::jinja::tables
