// Drives the two products with kv_b: the absorbed query (column sums over its K rows) and the value
// projection (row dots with its V rows).
#include <cstring>

#include "engine/cpu/attention.h"
#include "engine/cpu/attention/carver.h"
#include "engine/cpu/attention/kernels.h"
#include "engine/cpu/attention/row_faults.h"
#include "engine/cpu/attention/scratch.h"
#include "engine/cpu/attention/twin.h"
#include "engine/cpu/matmul.h"
#include "engine/cpu/quantise8.h"
#include "engine/cpu/thread_pool.h"
#include "engine/device/check.h"

namespace terrace::cpu {

namespace {

constexpr std::int64_t kRowsPerTask = 32;
// One row with one head takes about a microsecond: a task is worth handing out from a few on.
constexpr std::int64_t kSumsPerTask = 4;

/// qa of one row with float weights: multiply_add by rows of K, in their order.
void absorb_float(const AttentionKernels& kernels,
                  const WeightMatrix& k,
                  const ColumnLayout& layout,
                  const float* q,
                  float* out) {
    const auto* weights = reinterpret_cast<const float*>(k.data);
    std::memset(out, 0, static_cast<std::size_t>(k.cols * 4));
    for (std::int64_t t = 0; t < k.rows; ++t) {
        kernels.multiply_add(out, weights + t * layout.row_stride, q[t], k.cols);
    }
}

/// Rows first .. end of one head.
class Absorb {
public:
    Absorb(Context context,
           const HeadMatrices& k,
           FloatRows q,
           std::int64_t q_head_stride,
           float* out,
           RowScope scope)
        : context_(context),
          k_(k),
          q_(q),
          q_head_stride_(q_head_stride),
          out_(out),
          scope_(scope),
          layout_(k.first.format, k.first.rows, k.first.cols) {}

    void run();

private:
    void head_rows(std::int64_t head, std::int64_t first, std::int64_t end, std::byte* scratch);
    void row_alone(const WeightMatrix& k, const float* q, RowFaults faults, float* out);

    ColumnJob carve_job(Carver& carver) const {
        ColumnJob job;
        const std::int64_t bytes = kColumnRows * layout_.n_groups * layout_.rows64;
        job.kind = k_.first.format.kind;
        job.layout = &layout_;
        job.factors = carver.take<std::int8_t>(bytes);
        job.factor_scales = carver.take<float>(bytes / kQuantGroup);
        job.factor_sums = carver.take<std::int32_t>(bytes / kQuantGroup);
        return job;
    }

    Context context_;
    const HeadMatrices& k_;
    FloatRows q_;
    std::int64_t q_head_stride_;
    float* out_;
    RowScope scope_;
    ColumnLayout layout_;
};

void Absorb::run() {
    Carver counter(nullptr);
    static_cast<void>(carve_job(counter));
    const std::int64_t worker_bytes = counter.bytes();
    std::byte* base = op_scratch(context_, worker_bytes * context_.pool->n_threads());
    if (base == nullptr) {
        return;
    }
    const std::int64_t rows = q_.n_rows < kRowsPerTask ? q_.n_rows : kRowsPerTask;
    const std::int64_t heads = rows >= kSumsPerTask ? 1 : kSumsPerTask / rows;
    const std::int64_t row_tasks = (q_.n_rows + rows - 1) / rows;
    const std::int64_t head_tasks = (k_.n_heads + heads - 1) / heads;
    context_.pool->run(row_tasks * head_tasks, [&](std::int64_t task, int worker) {
        if (context_.stream->stop_requested()) {
            return;
        }
        const std::int64_t first = task % row_tasks * rows;
        const std::int64_t end = first + rows < q_.n_rows ? first + rows : q_.n_rows;
        const std::int64_t first_head = task / row_tasks * heads;
        for (std::int64_t head = first_head; head < first_head + heads && head < k_.n_heads;
             ++head) {
            head_rows(head, first, end, base + worker * worker_bytes);
        }
    });
}

void Absorb::head_rows(std::int64_t head,
                       std::int64_t first,
                       std::int64_t end,
                       std::byte* scratch) {
    const WeightMatrix k = k_.head(head);
    const std::int64_t out_stride = k_.n_heads * k.cols;
    float* out = out_ + head * k.cols;
    const float* q = q_.data + head * q_head_stride_;
    if (context_.isa == Isa::Scalar || !k.format.quantised()) {
        for (std::int64_t row = first; row < end; ++row) {
            row_alone(k, q + row * q_.stride, row_faults(*context_.stream, scope_, row),
                      out + row * out_stride);
        }
        return;
    }
    Carver carver(scratch);
    ColumnJob job = carve_job(carver);
    job.data = k.data;
    job.q_stride = q_.stride;
    job.out_stride = out_stride;
    for (std::int64_t row = first; row < end; row += kColumnRows) {
        job.q = q + row * q_.stride;
        job.out = out + row * out_stride;
        job.n_rows = end - row < kColumnRows ? end - row : kColumnRows;
        std::uint32_t worst[kColumnRows] = {};
        attention_kernels(context_.isa)->column_sum(job, worst);
        for (std::int64_t i = 0; i < job.n_rows; ++i) {
            if (worst[i] >= kNotFiniteBits) {
                row_faults(*context_.stream, scope_, row + i).report(FaultSite::Quantise);
            }
        }
    }
}

void Absorb::row_alone(const WeightMatrix& k, const float* q, RowFaults faults, float* out) {
    if (context_.isa == Isa::Scalar) {
        twin::absorb(k, q, faults, out);
    } else {
        absorb_float(*attention_kernels(context_.isa), k, layout_, q, out);
    }
}

}  // namespace

void absorb_query(Context context,
                  const HeadMatrices& k,
                  FloatRows q,
                  std::int64_t q_head_stride,
                  float* out,
                  RowScope scope) {
    CHECK(k.first.use == WeightUse::ColumnSum);
    if (q.n_rows == 0) {
        return;
    }
    Absorb(context, k, q, q_head_stride, out, scope).run();
}

}  // namespace terrace::cpu
