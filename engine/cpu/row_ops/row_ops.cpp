// The row ops but for the router: which rows and columns a tile is, and what a fault is called.
#include "engine/cpu/row_ops.h"

#include <bit>
#include <cstring>

#include "engine/cpu/quantise8.h"
#include "engine/cpu/row_ops/row_work.h"
#include "engine/device/check.h"

namespace terrace::cpu {

namespace {

/// Columns of one item where a row may be cut: whole quantisation groups.
constexpr std::int64_t kChunk = 2048;
static_assert(kChunk % kQuantGroup == 0);

/// Columns [begin, begin + n) of a row.
struct Chunk {
    std::int64_t row;
    std::int64_t begin;
    std::int64_t n;
};

/// Calls body(chunk) for all chunks of all rows; `work` is that of one number.
template <typename Body>
void for_chunks(
    Context context, std::int64_t n_rows, std::int64_t width, std::int64_t work, Body body) {
    const std::int64_t n_chunks = (width + kChunk - 1) / kChunk;
    for_items(context, n_rows * n_chunks, std::min(width, kChunk) * work, [&](std::int64_t item) {
        const std::int64_t begin = item % n_chunks * kChunk;
        body(Chunk{item / n_chunks, begin, std::min(kChunk, width - begin)});
    });
}

/// quantise8 of one chunk of a row, unless the session is a float one.
void quantise_chunk(Context context, const ActivationRows& out, Chunk chunk, RowScope scope) {
    if (out.q == nullptr) {
        return;
    }
    const std::int64_t group = chunk.row * out.n_groups() + chunk.begin / kQuantGroup;
    const std::uint32_t largest = quantise_row(context.isa)(
        out.values + chunk.row * out.stride + chunk.begin, chunk.n,
        out.q + chunk.row * out.q_stride() + chunk.begin, out.scales + group,
        out.sums == nullptr ? nullptr : out.sums + group);
    if (largest >= kNotFiniteBits) {
        report_fault(context, scope, chunk.row, FaultSite::Quantise);
    }
}

int bits_at(const std::byte* bytes, std::int64_t index, int shift, int mask) {
    return (std::to_integer<int>(bytes[index]) >> shift) & mask;
}

/// Integers of columns [begin, begin + n) of one row of the container's layout; begin is a
/// multiple of 64 and n at most 64.
void unpack(
    WeightKind kind, const std::byte* row, std::int64_t begin, std::int64_t n, std::int8_t* q) {
    for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t c = begin + i;
        int value = 0;
        switch (kind) {
            case WeightKind::Int8:
                value = std::bit_cast<std::int8_t>(row[c]);
                break;
            case WeightKind::Int4:
                value = bits_at(row, c / 2, static_cast<int>(c % 2) * 4, 15) - 8;
                break;
            case WeightKind::Int3: {
                const std::byte* block = row + c / 64 * 24;
                const std::int64_t k = c % 64;
                const int low = bits_at(block, k / 4, static_cast<int>(k % 4) * 2, 3);
                const int high = bits_at(block, 16 + k / 8, static_cast<int>(k % 8), 1);
                value = (low | high << 2) - 4;
                break;
            }
            case WeightKind::Int2:
                value = bits_at(row, c / 4, static_cast<int>(c % 4) * 2, 3) - 2;
                break;
            case WeightKind::Float32:
                break;
        }
        q[i] = static_cast<std::int8_t>(value);
    }
}

void embed_row(const RowKernels& kernels, const RawMatrix& table, std::int64_t id, float* out) {
    const std::byte* row = table.payload + id * raw_row_bytes(table.format.kind, table.cols);
    if (!table.format.quantised()) {
        std::memcpy(out, row, static_cast<std::size_t>(table.cols) * sizeof(float));
        return;
    }
    const float* scales = table.scales + id * scales_per_row(table.format, table.cols);
    const std::int64_t group = table.format.group == 0 ? table.cols : table.format.group;
    const std::int64_t step = std::min<std::int64_t>(group, 64);
    for (std::int64_t begin = 0; begin < table.cols; begin += 64) {
        std::int8_t q[64];
        const std::int64_t n = std::min<std::int64_t>(64, table.cols - begin);
        unpack(table.format.kind, row, begin, n, q);
        for (std::int64_t i = 0; i < n; i += step) {
            kernels.scale_int8(q + i, scales[(begin + i) / group], std::min(step, n - i),
                               out + begin + i);
        }
    }
}

/// The smallest id above `after` among the ids of one row; its rank, or -1.
std::int64_t next_rank(const std::int32_t* ids, std::int64_t top_k, std::int64_t after) {
    std::int64_t best = -1;
    for (std::int64_t rank = 0; rank < top_k; ++rank) {
        if (ids[rank] > after && (best < 0 || ids[rank] < ids[best])) {
            best = rank;
        }
    }
    return best;
}

void sum_chunk(const RowKernels& kernels, const ExpertSum& job, Chunk chunk) {
    const std::int32_t* ids = job.ids + chunk.row * job.top_k;
    const float* gates = job.gates + chunk.row * job.top_k;
    const std::int32_t* output_rows = job.output_rows + chunk.row * job.top_k;
    float acc[kChunk] = {};
    std::int64_t id = -1;
    for (std::int64_t i = 0; i < job.top_k; ++i) {
        const std::int64_t rank = next_rank(ids, job.top_k, id);
        CHECK(rank >= 0);  // ids of one row differ and are not negative
        id = ids[rank];
        kernels.accumulate(job.outputs + output_rows[rank] * job.width + chunk.begin, gates[rank],
                           chunk.n, acc);
    }
    if (job.shared != nullptr) {
        kernels.add(acc, job.shared + chunk.row * job.width + chunk.begin, chunk.n);
    }
    kernels.add(job.residual + chunk.row * job.residual_stride + chunk.begin, acc, chunk.n);
}

}  // namespace

void embed(Context context,
           const RawMatrix& table,
           std::span<const std::int32_t> ids,
           FloatRows out) {
    const RowKernels& kernels = row_kernels(context.isa);
    constexpr std::int64_t kUnpackingWork = 8;
    for_items(context, static_cast<std::int64_t>(ids.size()), table.cols * kUnpackingWork,
              [&](std::int64_t i) {
                  const std::int32_t id = ids[static_cast<std::size_t>(i)];
                  CHECK(id >= 0 && id < table.rows);
                  embed_row(kernels, table, id, out.row(i));
              });
}

void rms_norm(Context context,
              FloatRows x,
              const float* weight,
              float eps,
              const ActivationRows& out,
              RowScope scope) {
    const RowKernels& kernels = row_kernels(context.isa);
    for_items(context, x.n_rows, 3 * x.width, [&](std::int64_t r) {
        kernels.rms_norm(x.row(r), weight, eps, x.width, out.values + r * out.stride);
        quantise_chunk(context, out, {r, 0, x.width}, scope);
    });
}

void layer_norm(Context context, FloatRows x, const float* weight, const float* bias, float eps) {
    const RowKernels& kernels = row_kernels(context.isa);
    for_items(context, x.n_rows, 4 * x.width,
              [&](std::int64_t r) { kernels.layer_norm(x.row(r), weight, bias, eps, x.width); });
}

void swiglu(Context context,
            FloatRows gate,
            FloatRows up,
            Activation activation,
            const ActivationRows& out,
            RowScope scope) {
    const RowKernels& kernels = row_kernels(context.isa);
    const auto act = activation == Activation::SwiGlu ? kernels.swiglu : kernels.clamped_swiglu;
    constexpr std::int64_t kExponentialWork = 6;
    for_chunks(context, gate.n_rows, gate.width, kExponentialWork, [&](Chunk chunk) {
        act(gate.row(chunk.row) + chunk.begin, up.row(chunk.row) + chunk.begin, chunk.n,
            out.values + chunk.row * out.stride + chunk.begin);
        quantise_chunk(context, out, chunk, scope);
    });
}

void rope(Context context, const RopeJob& job) {
    const RowKernels& kernels = row_kernels(context.isa);
    const auto rotate =
        job.pairs == RopePairs::Interleaved ? kernels.rotate_interleaved : kernels.rotate_halves;
    const std::int64_t half = job.dims / 2;
    for_items(context, job.n_rows, 2 * job.n_heads * job.dims, [&](std::int64_t r) {
        const float* cos = job.cos + job.positions[r] * half;
        const float* sin = job.sin + job.positions[r] * half;
        for (std::int64_t h = 0; h < job.n_heads; ++h) {
            rotate(job.x + r * job.row_stride + h * job.head_stride, cos, sin, job.dims);
        }
    });
}

void sum_experts(Context context, const ExpertSum& job) {
    const RowKernels& kernels = row_kernels(context.isa);
    for_chunks(context, job.n_rows, job.width, job.top_k + 2,
               [&](Chunk chunk) { sum_chunk(kernels, job, chunk); });
}

void add(Context context, FloatRows residual, FloatRows y) {
    const RowKernels& kernels = row_kernels(context.isa);
    for_chunks(context, residual.n_rows, residual.width, 2, [&](Chunk chunk) {
        kernels.add(residual.row(chunk.row) + chunk.begin, y.row(chunk.row) + chunk.begin, chunk.n);
    });
}

void check_logits(Context context, FloatRows logits, RowScope scope) {
    const RowKernels& kernels = row_kernels(context.isa);
    for_chunks(context, logits.n_rows, logits.width, 1, [&](Chunk chunk) {
        float* x = logits.row(chunk.row) + chunk.begin;
        if (kernels.largest_bits(x, chunk.n) < kNotFiniteBits) {
            return;
        }
        report_fault(context, scope, chunk.row, FaultSite::Logits);
        clear_not_finite(kernels, x, chunk.n);
    });
}

}  // namespace terrace::cpu
