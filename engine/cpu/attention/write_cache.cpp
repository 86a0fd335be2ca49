// Writes the rows of the cache: latent and rope key of MLA, index keys.
#include <cstring>

#include "engine/cpu/attention.h"
#include "engine/cpu/attention/row_faults.h"
#include "engine/cpu/attention/twin.h"
#include "engine/cpu/quantise8.h"
#include "engine/cpu/thread_pool.h"
#include "engine/device/check.h"

namespace terrace::cpu {

namespace {

constexpr std::int64_t kRowsPerTask = 16;

/// body(row) for every row, spread over the threads when there are many.
template <typename Body>
void for_rows(Context context, std::int64_t n_rows, Body body) {
    context.pool->run((n_rows + kRowsPerTask - 1) / kRowsPerTask, [&](std::int64_t task, int) {
        if (context.stream->stop_requested()) {
            return;
        }
        const std::int64_t end = (task + 1) * kRowsPerTask;
        for (std::int64_t row = task * kRowsPerTask; row < n_rows && row < end; ++row) {
            body(row);
        }
    });
}

std::uint32_t write_mla_row(QuantiseRow quantise,
                            const MlaCache& cache,
                            std::int64_t position,
                            const float* latent,
                            const float* key) {
    std::int8_t* row = cache.rows + position * cache.row_bytes();
    float* scales = cache.scales + position * cache.n_groups();
    const std::int64_t latent64 = round_up(cache.latent, kQuantGroup);
    const std::uint32_t a = quantise(latent, cache.latent, row, scales, nullptr);
    const std::uint32_t b =
        quantise(key, cache.rope, row + latent64, scales + latent64 / kQuantGroup, nullptr);
    return a > b ? a : b;
}

std::uint32_t write_index_row(QuantiseRow quantise,
                              const IndexCache& cache,
                              std::int64_t position,
                              const float* key) {
    std::int8_t q[kMostCachedGroups * kQuantGroup];
    float scales[kMostCachedGroups];
    const std::int64_t width = round_up(cache.dim, kQuantGroup);
    const std::int64_t n_groups = width / kQuantGroup;
    const std::uint32_t worst = quantise(key, cache.dim, q, scales, nullptr);
    std::int8_t* keys = cache.keys + position / 16 * width * 16 + position % 16 * 4;
    for (std::int64_t i = 0; i < width; i += 4) {
        std::memcpy(keys + i * 16, q + i, 4);
    }
    for (std::int64_t k = 0; k < n_groups; ++k) {
        cache.scales[(position / 16 * n_groups + k) * 16 + position % 16] = scales[k];
    }
    return worst;
}

}  // namespace

void write_mla_cache(
    Context context, const MlaCache& cache, FloatRows latent, FloatRows key, RowScope scope) {
    CHECK(latent.width == cache.latent && key.width == cache.rope);
    CHECK(cache.n_groups() <= kMostCachedGroups);
    const QuantiseRow quantise = quantise_row(context.isa);
    for_rows(context, latent.n_rows, [&](std::int64_t row) {
        const RowFaults faults = row_faults(*context.stream, scope, row);
        if (context.isa == Isa::Scalar || cache.values != nullptr) {
            twin::write_mla_row(cache, scope.positions[row], latent.row(row), key.row(row), faults);
        } else if (write_mla_row(quantise, cache, scope.positions[row], latent.row(row),
                                 key.row(row)) >= kNotFiniteBits) {
            faults.report(FaultSite::Quantise);
        }
    });
}

void write_index_cache(Context context, const IndexCache& cache, FloatRows keys, RowScope scope) {
    CHECK(keys.width == cache.dim && cache.dim <= kMostCachedGroups * kQuantGroup);
    const QuantiseRow quantise = quantise_row(context.isa);
    for_rows(context, keys.n_rows, [&](std::int64_t row) {
        const RowFaults faults = row_faults(*context.stream, scope, row);
        if (context.isa == Isa::Scalar || cache.values != nullptr) {
            twin::write_index_row(cache, scope.positions[row], keys.row(row), faults);
        } else if (write_index_row(quantise, cache, scope.positions[row], keys.row(row)) >=
                   kNotFiniteBits) {
            faults.report(FaultSite::Quantise);
        }
    });
}

}  // namespace terrace::cpu
