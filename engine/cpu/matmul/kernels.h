// The choice of kernels, and the matmul op with a given choice: what tests and benchmarks use to
// run kernels that the processor would not choose.
#pragma once

#include <span>

#include "engine/cpu/cpu_context.h"
#include "engine/cpu/matmul/float_tile.h"
#include "engine/cpu/matmul/tile_work.h"
#include "engine/device/ops.h"

namespace terrace::cpu {

struct IsaKernels {
    MatmulKernels integer;
    FloatTile floating = nullptr;
};

[[nodiscard]] IsaKernels kernels_of(Isa isa);

/// As matmul(), with these kernels whatever context.isa says.
void matmul_with(const IsaKernels& kernels, Context context, std::span<const MatmulJob> jobs);

}  // namespace terrace::cpu
