// The scores behind index_select, for tests and benchmarks: the op itself gives only their order.
#pragma once

#include "engine/cpu/cpu_context.h"
#include "engine/device/ops.h"

namespace terrace::cpu {

/// Scores of keys 0 .. scope.positions[row] of one row, on the calling thread.
///   scores  [positions[row] + 1, rounded up to 16] f32, aligned to 64
void index_scores_of_row(
    Context context, const IndexSelect& job, std::int64_t row, RowScope scope, float* scores);

}  // namespace terrace::cpu
