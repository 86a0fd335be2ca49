// See pre_tokenizer_cost.h.
#include "engine/text/pre_tokenizer_cost.h"

#include <algorithm>

namespace terrace {
namespace {

std::uint64_t multiply(std::uint64_t a, std::uint64_t b) {
    return a > RegexCost::kCeiling / std::max<std::uint64_t>(b, 1) ? RegexCost::kCeiling : a * b;
}

std::uint64_t add(std::uint64_t a, std::uint64_t b) {
    return std::min(RegexCost::kCeiling, a + b);
}

}  // namespace

RegexCost behind(const RegexCost& a, const RegexCost& b) {
    RegexCost out;
    out.size = a.size + b.size;
    out.repeats = std::max(a.repeats, b.repeats);
    out.ways = multiply(a.ways, b.ways);
    out.stuck = std::max(a.stuck, b.stuck);
    out.failing = a.failing;
    if (b.failing == RegexCost::Failing::Possible) {
        // All that stands before is tried again in every way.
        out.stuck = std::max(out.stuck, multiply(a.ways, b.stuck));
        out.failing = RegexCost::Failing::Possible;
    }
    return out;
}

RegexCost either(const RegexCost& a, const RegexCost& b) {
    RegexCost out;
    out.size = a.size + b.size;
    out.repeats = std::max(a.repeats, b.repeats);
    out.ways = add(a.ways, b.ways);
    out.stuck = add(a.stuck, b.stuck);
    const bool always =
        a.failing == RegexCost::Failing::Never || b.failing == RegexCost::Failing::Never;
    out.failing = always ? RegexCost::Failing::Never : RegexCost::Failing::Possible;
    return out;
}

RegexCost repeated_cost(RegexCost cost, const RegexRepeat& repeat) {
    const bool unbounded = repeat.most >= RegexCost::kUnbounded;
    const std::uint64_t n_copies = unbounded ? repeat.least + 1 : repeat.most;
    cost.size = multiply(cost.size, std::max<std::uint64_t>(n_copies, 1));
    // Each copy can be matched in every way, so the ways multiply.
    std::uint64_t ways = unbounded && cost.ways > 1 ? RegexCost::kCeiling : 1;
    for (std::uint64_t i = 0; i < n_copies && cost.ways > 1; ++i) {
        if (i < repeat.least) {
            cost.stuck = std::max(cost.stuck, multiply(ways, cost.stuck));
        }
        ways = multiply(ways, cost.ways);
    }
    cost.ways = ways;
    if (repeat.least != repeat.most) {
        cost.ways = multiply(cost.ways, repeat.most - repeat.least + 1);
        cost.repeats = std::min(RegexCost::kUnbounded, multiply(cost.repeats, repeat.most));
    }
    if (repeat.giving == RegexRepeat::Giving::Nothing) {
        cost.ways = 1;
    }
    if (repeat.least == 0) {
        cost.failing = RegexCost::Failing::Never;
    }
    return cost;
}

}  // namespace terrace
