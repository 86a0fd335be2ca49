// Packing of weights and the row dot (arithmetic.md 1) on the CPU.
#pragma once

#include <span>

#include "engine/cpu/cpu_context.h"
#include "engine/device/ops.h"

namespace terrace::cpu {

[[nodiscard]] std::int64_t packed_bytes(WeightFormat format,
                                        WeightUse use,
                                        std::int64_t rows,
                                        std::int64_t cols);
void pack(const RawMatrix& raw, WeightUse use, std::byte* out);

/// As Ops::matmul.
void matmul(Context context, std::span<const MatmulJob> jobs);

/// As Ops::quantise.
void quantise(Context context, const ActivationRows& x, RowScope scope);

}  // namespace terrace::cpu
