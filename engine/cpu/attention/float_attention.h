// Attention of a float session by a fast family: dot32 scores over a binary32 cache.
#pragma once

#include <cstdint>

#include "engine/cpu/attention/kernels.h"
#include "engine/cpu/attention/row_faults.h"
#include "engine/device/ops.h"

namespace terrace::cpu {

/// z [latent] of one head of one row. scratch: twin::attend_scratch + latent + rope numbers,
/// aligned to 64.
void attend_float(const AttentionKernels& kernels,
                  const MlaAttention& job,
                  std::int64_t row,
                  std::int64_t head,
                  RowFaults faults,
                  float* scratch);

}  // namespace terrace::cpu
