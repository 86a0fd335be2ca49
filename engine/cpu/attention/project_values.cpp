// The value projection: row dots of every head's z with its V rows of kv_b.
#include <memory>

#include "engine/cpu/attention.h"
#include "engine/cpu/attention/carver.h"
#include "engine/cpu/attention/row_faults.h"
#include "engine/cpu/attention/scratch.h"
#include "engine/cpu/matmul.h"
#include "engine/cpu/quantise8.h"
#include "engine/device/check.h"

namespace terrace::cpu {

namespace {

constexpr std::int64_t kHeadsPerTask = 16;

/// z of one head of all rows in the form that its V rows ask for.
ActivationRows head_input(const HeadMatrices& v,
                          const float* z,
                          std::int64_t n_rows,
                          std::int64_t head,
                          std::byte* scratch) {
    ActivationRows input;
    input.n_rows = n_rows;
    input.width = v.first.cols;
    input.stride = v.n_heads * v.first.cols;
    // Read only: ActivationRows has no const form.
    input.values = const_cast<float*>(z) + head * v.first.cols;
    if (v.first.format.quantised()) {
        Carver carver(scratch);
        const std::int64_t all = v.n_heads * n_rows;
        auto* q = carver.take<std::int8_t>(all * input.q_stride());
        auto* scales = carver.take<float>(all * input.n_groups());
        auto* sums = carver.take<std::int32_t>(all * input.n_groups());
        input.q = q + head * n_rows * input.q_stride();
        input.scales = scales + head * n_rows * input.n_groups();
        input.sums = sums + head * n_rows * input.n_groups();
    }
    return input;
}

/// Quantises z of every head and row in one pass.
void quantise_heads(Context context,
                    const HeadMatrices& v,
                    const float* z,
                    std::int64_t n_rows,
                    std::byte* scratch,
                    RowScope scope) {
    const QuantiseRow quantise = quantise_row(context.isa);
    const std::int64_t n = n_rows * v.n_heads;
    context.pool->run((n + kHeadsPerTask - 1) / kHeadsPerTask, [&](std::int64_t task, int) {
        if (context.stream->stop_requested()) {
            return;
        }
        const std::int64_t end = (task + 1) * kHeadsPerTask;
        for (std::int64_t i = task * kHeadsPerTask; i < n && i < end; ++i) {
            const std::int64_t row = i / v.n_heads;
            const ActivationRows part =
                head_input(v, z, n_rows, i % v.n_heads, scratch).rows(row, 1);
            if (quantise(part.values, part.width, part.q, part.scales, part.sums) >=
                kNotFiniteBits) {
                row_faults(*context.stream, scope, row).report(FaultSite::Quantise);
            }
        }
    });
}

}  // namespace

void project_values(Context context,
                    const HeadMatrices& v,
                    const float* z,
                    const ActivationRows& out,
                    RowScope scope) {
    CHECK(v.first.use == WeightUse::RowDot && out.width == v.n_heads * v.first.rows);
    if (out.n_rows == 0) {
        return;
    }
    const std::int64_t n = out.n_rows * v.n_heads;
    const std::int64_t width = round_up(v.first.cols, kQuantGroup);
    Carver counter(nullptr);
    static_cast<void>(counter.take<std::int8_t>(n * width));
    static_cast<void>(counter.take<std::int64_t>(n * width / kQuantGroup + 16));
    const std::int64_t jobs_at = counter.bytes();
    static_cast<void>(counter.take<MatmulJob>(v.n_heads));
    std::byte* base = op_scratch(context, counter.bytes(), ScratchSlot::Operands);
    if (base == nullptr) {
        return;
    }
    if (v.first.format.quantised()) {
        quantise_heads(context, v, z, out.n_rows, base, scope);
    }
    auto* jobs = reinterpret_cast<MatmulJob*>(base + jobs_at);
    for (std::int64_t head = 0; head < v.n_heads; ++head) {
        MatmulJob* job = std::construct_at(jobs + head);
        job->weight = v.head(head);
        job->input = head_input(v, z, out.n_rows, head, base);
        job->out = out.values + head * v.first.rows;
        job->out_stride = out.stride;
    }
    matmul(context, {jobs, static_cast<std::size_t>(v.n_heads)});
    if (out.q != nullptr) {
        quantise(context, out, scope);
    }
}

}  // namespace terrace::cpu
