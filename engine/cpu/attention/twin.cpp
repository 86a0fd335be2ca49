#include "engine/cpu/attention/twin.h"

#include "engine/cpu/attention/pack_columns.h"
#include "engine/cpu/float_math.h"
#include "engine/cpu/quantise8.h"

namespace terrace::cpu::twin {

namespace {

/// Blocks of a segment of 512 inputs.
constexpr std::int64_t kSegmentBlocks = 8;

bool finite(float x) {
    return (__builtin_bit_cast(std::uint32_t, x) & 0x7fffffffu) < kNotFiniteBits;
}

/// One group of quantise8: x [n], n <= 64, extended with +0.
struct Group {
    std::int8_t q[kQuantGroup];
    float scale;
};

void quantise_group(const float* x, std::int64_t n, RowFaults faults, Group* out) {
    if (quantise_row_scalar(x, n, out->q, &out->scale, nullptr) >= kNotFiniteBits) {
        faults.report(FaultSite::Quantise);
    }
}

/// quantise8 of a whole part: x [n] -> ceil(n / 64) groups.
std::int64_t quantise_part(const float* x, std::int64_t n, RowFaults faults, Group* out) {
    const std::int64_t n_groups = round_up(n, kQuantGroup) / kQuantGroup;
    for (std::int64_t g = 0; g < n_groups; ++g) {
        const std::int64_t left = n - g * kQuantGroup;
        quantise_group(x + g * kQuantGroup, left < kQuantGroup ? left : kQuantGroup, faults,
                       out + g);
    }
    return n_groups;
}

/// Row dot of a cached row (q and scale of its group k by the two functions) with a quantised
/// query.
template <typename KeyAt, typename ScaleOf>
float row_dot(const Group* query, std::int64_t n_groups, KeyAt key_at, ScaleOf scale_of) {
    float tot = 0.0f;
    for (std::int64_t first = 0; first < n_groups; first += kSegmentBlocks) {
        float acc = 0.0f;
        for (std::int64_t k = first; k < n_groups && k < first + kSegmentBlocks; ++k) {
            std::int32_t isum = 0;
            for (std::int64_t i = 0; i < kQuantGroup; ++i) {
                isum += key_at(k, i) * query[k].q[i];
            }
            acc = __builtin_fmaf(static_cast<float>(isum), scale_of(k) * query[k].scale, acc);
        }
        tot = tot + acc;
    }
    return tot;
}

/// Column sum of at most 64 columns that share their scales:
/// y[c] = sum over t < n of p[t] * scale_of(t) * weight_at(t, c).
template <typename WeightAt, typename ScaleOf>
void column_sum(const float* p,
                std::int64_t n,
                std::int64_t n_columns,
                WeightAt weight_at,
                ScaleOf scale_of,
                RowFaults faults,
                float* y) {
    float acc[kColumnChunk] = {};
    float tot[kColumnChunk] = {};
    for (std::int64_t first = 0; first < n; first += kQuantGroup) {
        const std::int64_t left = n - first < kQuantGroup ? n - first : kQuantGroup;
        float a[kQuantGroup] = {};
        for (std::int64_t t = 0; t < left; ++t) {
            a[t] = p[first + t] * scale_of(first + t);
        }
        Group group;
        quantise_group(a, left, faults, &group);
        const bool segment_ends =
            (first / kQuantGroup + 1) % kSegmentBlocks == 0 || first + kQuantGroup >= n;
        for (std::int64_t c = 0; c < n_columns; ++c) {
            std::int32_t isum = 0;
            for (std::int64_t t = 0; t < left; ++t) {
                isum += group.q[t] * weight_at(first + t, c);
            }
            acc[c] = __builtin_fmaf(static_cast<float>(isum), group.scale, acc[c]);
            if (segment_ends) {
                tot[c] = tot[c] + acc[c];
                acc[c] = 0.0f;
            }
        }
    }
    for (std::int64_t c = 0; c < n_columns; ++c) {
        y[c] = tot[c];
    }
}

std::int64_t position_of(const Selection& selection, std::int64_t rank) {
    return selection.positions == nullptr ? rank : selection.positions[rank];
}

/// The query of one head in the form of its session.
struct Query {
    Group groups[kMostCachedGroups];
    const float* absorbed = nullptr;
    const float* rope = nullptr;
};

float score(const MlaCache& cache, const Query& query, std::int64_t position, float scale) {
    if (cache.values != nullptr) {
        // One vector [qa | q_rope] against one cached row: the accumulator of an element follows
        // its place in the whole vector.
        const float* row = cache.values + position * (cache.latent + cache.rope);
        float acc[32] = {};
        const std::int64_t n = cache.latent + cache.rope;
        for (std::int64_t i = 0; i < round_up(n, 32); ++i) {
            const float x = i >= n             ? 0.0f
                            : i < cache.latent ? query.absorbed[i]
                                               : query.rope[i - cache.latent];
            acc[i % 32] = __builtin_fmaf(x, i < n ? row[i] : 0.0f, acc[i % 32]);
        }
        return reduce32(acc) * scale;
    }
    const std::int8_t* row = cache.rows + position * cache.row_bytes();
    const float* scales = cache.scales + position * cache.n_groups();
    const auto key_at = [&](std::int64_t k, std::int64_t i) -> std::int32_t {
        return row[k * kQuantGroup + i];
    };
    const auto scale_of = [&](std::int64_t k) { return scales[k]; };
    return row_dot(query.groups, cache.n_groups(), key_at, scale_of) * scale;
}

/// z_b [latent]: the values of one block under the factors p [n].
void block_values(const MlaCache& cache,
                  const Selection& selection,
                  std::int64_t first,
                  std::int64_t n,
                  const float* p,
                  RowFaults faults,
                  float* z) {
    if (cache.values != nullptr) {
        for (std::int64_t d = 0; d < cache.latent; ++d) {
            z[d] = 0.0f;
        }
        for (std::int64_t t = 0; t < n; ++t) {
            const float* row =
                cache.values + position_of(selection, first + t) * (cache.latent + cache.rope);
            for (std::int64_t d = 0; d < cache.latent; ++d) {
                z[d] = __builtin_fmaf(p[t], row[d], z[d]);
            }
        }
        return;
    }
    for (std::int64_t column = 0; column < cache.latent; column += kQuantGroup) {
        const auto weight_at = [&](std::int64_t t, std::int64_t c) -> std::int32_t {
            return cache.rows[position_of(selection, first + t) * cache.row_bytes() + column + c];
        };
        const auto scale_of = [&](std::int64_t t) {
            return cache.scales[position_of(selection, first + t) * cache.n_groups() +
                                column / kQuantGroup];
        };
        const std::int64_t left = cache.latent - column;
        column_sum(p, n, left < kQuantGroup ? left : kQuantGroup, weight_at, scale_of, faults,
                   z + column);
    }
}

}  // namespace

std::int64_t attend_scratch(const MlaCache& cache, std::int64_t count) {
    return round_up(count, kAttentionBlock) / kAttentionBlock * (cache.latent + 2);
}

void attend(const MlaAttention& job,
            std::int64_t row,
            std::int64_t head,
            RowFaults faults,
            float* scratch) {
    const MlaCache& cache = *job.cache;
    const Selection& selection = job.selections[static_cast<std::size_t>(row)];
    Query query;
    query.absorbed = job.absorbed + (row * job.n_heads + head) * cache.latent;
    query.rope = job.q_rope + row * job.q_row_stride + head * job.q_head_stride;
    if (cache.values == nullptr) {
        const std::int64_t n = quantise_part(query.absorbed, cache.latent, faults, query.groups);
        quantise_part(query.rope, cache.rope, faults, query.groups + n);
    }
    const std::int64_t n_blocks = round_up(selection.count, kAttentionBlock) / kAttentionBlock;
    float* maxima = scratch;
    float* sums = maxima + n_blocks;
    float* values = sums + n_blocks;
    for (std::int64_t b = 0; b < n_blocks; ++b) {
        const std::int64_t first = b * kAttentionBlock;
        const std::int64_t left = selection.count - first;
        const std::int64_t n = left < kAttentionBlock ? left : kAttentionBlock;
        float p[kAttentionBlock];
        for (std::int64_t t = 0; t < n; ++t) {
            p[t] = score(cache, query, position_of(selection, first + t), job.scale);
            if (!finite(p[t])) {
                faults.report(FaultSite::Score);
                p[t] = 0.0f;
            }
            maxima[b] = t == 0 || p[t] > maxima[b] ? p[t] : maxima[b];
        }
        for (std::int64_t t = 0; t < n; ++t) {
            p[t] = exp32(p[t] - maxima[b]);
        }
        sums[b] = sum32(p, n);
        block_values(cache, selection, first, n, p, faults, values + b * cache.latent);
    }
    float maximum = n_blocks == 0 ? 0.0f : maxima[0];
    for (std::int64_t b = 1; b < n_blocks; ++b) {
        maximum = maxima[b] > maximum ? maxima[b] : maximum;
    }
    float sum = 0.0f;
    float* z = job.out + (row * job.n_heads + head) * cache.latent;
    for (std::int64_t d = 0; d < cache.latent; ++d) {
        z[d] = 0.0f;
    }
    for (std::int64_t b = 0; b < n_blocks; ++b) {
        const float factor = exp32(maxima[b] - maximum);
        sum = __builtin_fmaf(sums[b], factor, sum);
        for (std::int64_t d = 0; d < cache.latent; ++d) {
            z[d] = __builtin_fmaf(values[b * cache.latent + d], factor, z[d]);
        }
    }
    for (std::int64_t d = 0; d < cache.latent; ++d) {
        z[d] = z[d] / sum;
    }
}

void absorb(const WeightMatrix& k, const float* q, RowFaults faults, float* out) {
    const ColumnLayout layout(k.format, k.rows, k.cols);
    if (k.format.kind == WeightKind::Float32) {
        const auto* weights = reinterpret_cast<const float*>(k.data);
        for (std::int64_t c = 0; c < k.cols; ++c) {
            out[c] = 0.0f;
        }
        for (std::int64_t t = 0; t < k.rows; ++t) {
            for (std::int64_t c = 0; c < k.cols; ++c) {
                out[c] = __builtin_fmaf(weights[t * layout.row_stride + c], q[t], out[c]);
            }
        }
        return;
    }
    const auto* scales = reinterpret_cast<const float*>(k.data + layout.scales_offset);
    const std::int64_t step =
        layout.group_columns < kColumnChunk ? layout.group_columns : kColumnChunk;
    for (std::int64_t first = 0; first < k.cols; first += step) {
        const auto weight_at = [&](std::int64_t t, std::int64_t c) -> std::int32_t {
            return packed_weight(k.format.kind, k.data, layout, t, first + c);
        };
        const float* group = scales + first / layout.group_columns * layout.rows64;
        const auto scale_of = [&](std::int64_t t) { return group[t]; };
        const std::int64_t left = k.cols - first;
        column_sum(q, k.rows, left < step ? left : step, weight_at, scale_of, faults, out + first);
    }
}

void index_scores(const IndexSelect& job,
                  std::int64_t row,
                  std::int64_t first,
                  std::int64_t n,
                  RowFaults faults,
                  float* scores) {
    const IndexCache& cache = *job.cache;
    const std::int64_t n_groups = round_up(cache.dim, kQuantGroup) / kQuantGroup;
    for (std::int64_t t = 0; t < n; ++t) {
        scores[t] = 0.0f;
    }
    for (std::int64_t head = 0; head < job.n_heads; ++head) {
        const float* q = job.q + (row * job.n_heads + head) * cache.dim;
        const float weight = job.head_weights[row * job.weights_stride + head] * job.head_scale;
        Group query[kMostCachedGroups];
        if (cache.values == nullptr) {
            quantise_part(q, cache.dim, faults, query);
        }
        for (std::int64_t t = 0; t < n; ++t) {
            const std::int64_t position = first + t;
            float x = 0.0f;
            if (cache.values != nullptr) {
                x = dot32(q, cache.values + position * cache.dim, cache.dim);
            } else {
                const std::int8_t* keys =
                    cache.keys + position / 16 * (n_groups * kQuantGroup * 16) + position % 16 * 4;
                const float* scales = cache.scales + position / 16 * n_groups * 16 + position % 16;
                const auto key_at = [&](std::int64_t k, std::int64_t i) -> std::int32_t {
                    return keys[(k * kQuantGroup + i) / 4 * 64 + i % 4];
                };
                const auto scale_of = [&](std::int64_t k) { return scales[k * 16]; };
                x = row_dot(query, n_groups, key_at, scale_of);
            }
            x = x * job.key_scale;
            scores[t] = __builtin_fmaf(weight, x > 0.0f ? x : 0.0f, scores[t]);
        }
    }
    for (std::int64_t t = 0; t < n; ++t) {
        if (!finite(scores[t])) {
            faults.report(FaultSite::Indexer);
            scores[t] = 0.0f;
        }
    }
}

void write_mla_row(const MlaCache& cache,
                   std::int64_t position,
                   const float* latent,
                   const float* key,
                   RowFaults faults) {
    if (cache.values != nullptr) {
        float* out = cache.values + position * (cache.latent + cache.rope);
        for (std::int64_t i = 0; i < cache.latent + cache.rope; ++i) {
            out[i] = i < cache.latent ? latent[i] : key[i - cache.latent];
            if (!finite(out[i])) {
                faults.report(FaultSite::Quantise);
                out[i] = 0.0f;
            }
        }
        return;
    }
    Group groups[kMostCachedGroups];
    const std::int64_t n = quantise_part(latent, cache.latent, faults, groups);
    quantise_part(key, cache.rope, faults, groups + n);
    for (std::int64_t k = 0; k < cache.n_groups(); ++k) {
        for (std::int64_t i = 0; i < kQuantGroup; ++i) {
            cache.rows[position * cache.row_bytes() + k * kQuantGroup + i] = groups[k].q[i];
        }
        cache.scales[position * cache.n_groups() + k] = groups[k].scale;
    }
}

void write_index_row(const IndexCache& cache,
                     std::int64_t position,
                     const float* key,
                     RowFaults faults) {
    if (cache.values != nullptr) {
        for (std::int64_t i = 0; i < cache.dim; ++i) {
            const bool good = finite(key[i]);
            if (!good) {
                faults.report(FaultSite::Quantise);
            }
            cache.values[position * cache.dim + i] = good ? key[i] : 0.0f;
        }
        return;
    }
    Group groups[kMostCachedGroups];
    const std::int64_t n_groups = quantise_part(key, cache.dim, faults, groups);
    std::int8_t* keys =
        cache.keys + position / 16 * (n_groups * kQuantGroup * 16) + position % 16 * 4;
    float* scales = cache.scales + position / 16 * n_groups * 16 + position % 16;
    for (std::int64_t k = 0; k < n_groups; ++k) {
        for (std::int64_t i = 0; i < kQuantGroup; ++i) {
            keys[(k * kQuantGroup + i) / 4 * 64 + i % 4] = groups[k].q[i];
        }
        scales[k * 16] = groups[k].scale;
    }
}

}  // namespace terrace::cpu::twin
