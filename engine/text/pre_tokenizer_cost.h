// What a backtracking search for a pattern can cost at one place of a text, estimated from above
// before the pattern is accepted. A pattern comes from a downloaded file; one like "(a+)+b" or
// "a*a*a*b" would stop the program on the first long word.
#pragma once

#include <cstdint>

namespace terrace {

/// The cost of a part of a pattern. Value type.
struct RegexCost {
    /// Stands for "as long as the text".
    static constexpr std::uint64_t kUnbounded = 100'000;
    static constexpr std::uint64_t kCeiling = 1'000'000'000'000;

    enum class Failing { Never, Possible };

    std::uint64_t size = 1;     ///< parts after unrolling counted repeats
    std::uint64_t repeats = 1;  ///< most repetitions of something inside whose count is not fixed
    std::uint64_t ways = 1;     ///< ways to match here that are tried when what follows fails
    std::uint64_t stuck = 1;    ///< ways tried inside before this itself fails
    Failing failing = Failing::Possible;

    /// Of a part that is not there.
    static RegexCost nothing() { return {0, 1, 1, 1, Failing::Never}; }
};

/// Two parts, one behind the other.
RegexCost behind(const RegexCost& a, const RegexCost& b);

/// One part or another.
RegexCost either(const RegexCost& a, const RegexCost& b);

/// How often a part is repeated, and whether it gives back what it took when what follows fails.
struct RegexRepeat {
    enum class Giving { Back, Nothing };
    std::uint64_t least = 1;
    std::uint64_t most = 1;
    Giving giving = Giving::Back;
};

RegexCost repeated_cost(RegexCost cost, const RegexRepeat& repeat);

}  // namespace terrace
