#include "engine/cpu/attention/float_attention.h"

#include <cstring>

#include "engine/cpu/float_math.h"

namespace terrace::cpu {

void attend_float(const AttentionKernels& kernels,
                  const MlaAttention& job,
                  std::int64_t row,
                  std::int64_t head,
                  RowFaults faults,
                  float* scratch) {
    const MlaCache& cache = *job.cache;
    const Selection& selection = job.selections[static_cast<std::size_t>(row)];
    const std::int64_t width = cache.latent + cache.rope;
    const std::int64_t n_blocks = round_up(selection.count, kAttentionBlock) / kAttentionBlock;
    float* query = scratch;
    float* maxima = query + width;
    float* sums = maxima + n_blocks;
    float* values = sums + n_blocks;
    std::memcpy(query, job.absorbed + (row * job.n_heads + head) * cache.latent,
                static_cast<std::size_t>(cache.latent * 4));
    std::memcpy(query + cache.latent,
                job.q_rope + row * job.q_row_stride + head * job.q_head_stride,
                static_cast<std::size_t>(cache.rope * 4));
    const auto row_of = [&](std::int64_t rank) {
        const std::int64_t position =
            selection.positions == nullptr ? rank : selection.positions[rank];
        return cache.values + position * width;
    };
    float maximum = -__builtin_inff();
    for (std::int64_t b = 0; b < n_blocks; ++b) {
        const std::int64_t first = b * kAttentionBlock;
        const std::int64_t left = selection.count - first;
        const std::int64_t n = left < kAttentionBlock ? left : kAttentionBlock;
        alignas(64) float scores[kAttentionBlock];
        alignas(64) float p[kAttentionBlock];
        for (std::int64_t t = 0; t < n; ++t) {
            scores[t] = kernels.dot32(query, row_of(first + t), width) * job.scale;
        }
        const BlockSum sum = kernels.softmax(scores, n, round_up(n, kQuantGroup), p);
        if (sum.fault) {
            faults.report(FaultSite::Score);
        }
        maxima[b] = sum.maximum;
        sums[b] = sum.sum;
        maximum = sum.maximum > maximum ? sum.maximum : maximum;
        float* z = values + b * cache.latent;
        std::memset(z, 0, static_cast<std::size_t>(cache.latent * 4));
        for (std::int64_t t = 0; t < n; ++t) {
            kernels.multiply_add(z, row_of(first + t), p[t], cache.latent);
        }
    }
    float total = 0.0f;
    float* z = job.out + (row * job.n_heads + head) * cache.latent;
    std::memset(z, 0, static_cast<std::size_t>(cache.latent * 4));
    for (std::int64_t b = 0; b < n_blocks; ++b) {
        const float factor = exp32(maxima[b] - maximum);
        total = __builtin_fmaf(sums[b], factor, total);
        kernels.multiply_add(z, values + b * cache.latent, factor, cache.latent);
    }
    for (std::int64_t d = 0; d < cache.latent; ++d) {
        z[d] = z[d] / total;
    }
}

}  // namespace terrace::cpu
