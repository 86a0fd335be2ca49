// The quantise op, and the choice of quantise8 by instruction set.
#include "engine/cpu/quantise8.h"

#include "engine/cpu/matmul.h"
#include "engine/cpu/thread_pool.h"

namespace terrace::cpu {

QuantiseRow quantise_row(Isa isa) {
    switch (isa) {
        case Isa::Scalar:
            break;
        case Isa::Avx2:
        case Isa::AvxVnni:
            return quantise_row_avx2;
        case Isa::Avx512:
            return quantise_row_avx512;
    }
    return quantise_row_scalar;
}

void quantise(Context context, const ActivationRows& x, RowScope scope) {
    // About 16,000 numbers a tile: a decode step then is one tile and wakes nobody.
    constexpr std::int64_t kNumbersPerTile = 16 * 1024;
    const QuantiseRow quantise_one = quantise_row(context.isa);
    const std::int64_t rows_per_tile = x.width >= kNumbersPerTile ? 1 : kNumbersPerTile / x.width;
    const std::int64_t n_tiles = (x.n_rows + rows_per_tile - 1) / rows_per_tile;
    context.pool->run(n_tiles, [&](std::int64_t tile, int) {
        if (context.stream->stop_requested()) {
            return;
        }
        const std::int64_t begin = tile * rows_per_tile;
        const std::int64_t end =
            begin + rows_per_tile < x.n_rows ? begin + rows_per_tile : x.n_rows;
        for (std::int64_t row = begin; row < end; ++row) {
            const std::uint32_t largest =
                quantise_one(x.values + row * x.stride, x.width, x.q + row * x.q_stride(),
                             x.scales + row * x.n_groups(),
                             x.sums == nullptr ? nullptr : x.sums + row * x.n_groups());
            if (largest >= kNotFiniteBits) {
                context.stream->faults().report(
                    {scope.positions[row], scope.layer, FaultSite::Quantise});
            }
        }
    });
}

}  // namespace terrace::cpu
