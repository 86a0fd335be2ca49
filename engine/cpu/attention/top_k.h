// The first k of the total order "value descending, then index ascending" (arithmetic.md 0).
#pragma once

#include <cstdint>

namespace terrace::cpu {

/// Writes the indices of the first k of n scores to `out` [k], ascending. k <= n; the scores are
/// finite; -0 equals +0. Time: a few passes over the scores, no allocation.
void select_top_k(const float* scores, std::int64_t n, std::int64_t k, std::int32_t* out);

}  // namespace terrace::cpu
