// What the row ops share: the kernels of an instruction set, the sharing of rows among threads, and
// the naming of a numeric fault.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/cpu/cpu_context.h"
#include "engine/cpu/quantise8.h"
#include "engine/cpu/row_ops/row_kernels.h"
#include "engine/cpu/thread_pool.h"
#include "engine/device/tensor.h"

namespace terrace::cpu {

[[nodiscard]] inline const RowKernels& row_kernels(Isa isa) {
    switch (isa) {
        case Isa::Scalar:
            return kRowKernelsScalar;
        case Isa::Avx2:
        case Isa::AvxVnni:
            return kRowKernelsAvx2;
        case Isa::Avx512:
            return kRowKernelsAvx512;
    }
    return kRowKernelsScalar;
}

/// Work of one tile, in numbers streamed through an addition; about 4 us. Waking the other threads
/// costs about half of that, so less work than two tiles stays on the calling thread.
inline constexpr std::int64_t kTileWork = 32 * 1024;

/// Calls body(item) for every item, in tiles of about kTileWork; `work` is that of one item. After
/// a stop was requested the remaining tiles are skipped.
template <typename Body>
void for_items(Context context, std::int64_t n_items, std::int64_t work, Body body) {
    std::int64_t per_tile = std::max<std::int64_t>(1, kTileWork / std::max<std::int64_t>(1, work));
    if (n_items * work < 2 * kTileWork) {
        per_tile = std::max<std::int64_t>(1, n_items);
    }
    const std::int64_t n_tiles = (n_items + per_tile - 1) / per_tile;
    // Also a single tile goes through the pool: it sets the rounding mode of the contract.
    context.pool->run(n_tiles, [&](std::int64_t tile, int) {
        if (context.stream->stop_requested()) {
            return;
        }
        const std::int64_t end = std::min(n_items, (tile + 1) * per_tile);
        for (std::int64_t item = tile * per_tile; item < end; ++item) {
            body(item);
        }
    });
}

inline void report_fault(Context context, RowScope scope, std::int64_t row, FaultSite site) {
    const std::int32_t position =
        scope.positions == nullptr ? static_cast<std::int32_t>(row) : scope.positions[row];
    context.stream->faults().report({position, scope.layer, site});
}

/// Makes NaN and infinity +0, as they count at a fault site; only called when there is one.
inline void clear_not_finite(const RowKernels& kernels, float* x, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
        if (kernels.largest_bits(x + i, 1) >= kNotFiniteBits) {
            x[i] = 0.0f;
        }
    }
}

}  // namespace terrace::cpu
