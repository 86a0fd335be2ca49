// The Ops of the CPU: a list of calls into the op families.
#pragma once

#include "engine/cpu/cpu_context.h"
#include "engine/cpu/thread_pool.h"
#include "engine/device/ops.h"

namespace terrace::cpu {

/// Ops over the pool's threads with the kernels of one instruction set.
/// Owner: the engine; pool and stream must outlive it. Thread: the engine thread.
class CpuOps final : public Ops {
public:
    CpuOps(Isa isa, ThreadPool* pool, Stream* stream);

    [[nodiscard]] const char* name() const override;
    [[nodiscard]] std::int64_t packed_bytes(WeightFormat format,
                                            WeightUse use,
                                            std::int64_t rows,
                                            std::int64_t cols) const override;
    void pack(const RawMatrix& raw, WeightUse use, std::byte* out) const override;
    void embed(const RawMatrix& table, std::span<const std::int32_t> ids, FloatRows out) override;
    void rms_norm(FloatRows x,
                  const float* weight,
                  float eps,
                  const ActivationRows& out,
                  RowScope scope) override;
    void layer_norm(FloatRows x, const float* weight, const float* bias, float eps) override;
    void quantise(const ActivationRows& x, RowScope scope) override;
    void matmul(std::span<const MatmulJob> jobs) override;
    void swiglu(FloatRows gate,
                FloatRows up,
                Activation activation,
                const ActivationRows& out,
                RowScope scope) override;
    void rope(const RopeJob& job) override;
    void write_mla_cache(const MlaCache& cache,
                         FloatRows latent,
                         FloatRows key,
                         RowScope scope) override;
    void write_index_cache(const IndexCache& cache, FloatRows keys, RowScope scope) override;
    void absorb_query(const HeadMatrices& k,
                      FloatRows q,
                      std::int64_t q_head_stride,
                      float* out,
                      RowScope scope) override;
    void mla_attention(const MlaAttention& job, RowScope scope) override;
    void project_values(const HeadMatrices& v,
                        const float* z,
                        const ActivationRows& out,
                        RowScope scope) override;
    void index_select(const IndexSelect& job, RowScope scope) override;
    void route(const RouterJob& job, const RouterRule& rule, RowScope scope) override;
    void sum_experts(const ExpertSum& job) override;
    void add(FloatRows residual, FloatRows y) override;
    void check_logits(FloatRows logits, RowScope scope) override;

private:
    Context context_;
};

}  // namespace terrace::cpu
