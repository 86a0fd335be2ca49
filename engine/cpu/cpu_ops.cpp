#include "engine/cpu/cpu_ops.h"

#include "engine/cpu/attention.h"
#include "engine/cpu/matmul.h"
#include "engine/cpu/row_ops.h"

namespace terrace::cpu {

CpuOps::CpuOps(Isa isa, ThreadPool* pool, Stream* stream) : context_{pool, stream, isa} {}

const char* CpuOps::name() const {
    return to_string(context_.isa);
}

std::int64_t CpuOps::packed_bytes(WeightFormat format,
                                  WeightUse use,
                                  std::int64_t rows,
                                  std::int64_t cols) const {
    return cpu::packed_bytes(format, use, rows, cols);
}

void CpuOps::pack(const RawMatrix& raw, WeightUse use, std::byte* out) const {
    cpu::pack(raw, use, out);
}

void CpuOps::embed(const RawMatrix& table, std::span<const std::int32_t> ids, FloatRows out) {
    cpu::embed(context_, table, ids, out);
}

void CpuOps::rms_norm(
    FloatRows x, const float* weight, float eps, const ActivationRows& out, RowScope scope) {
    cpu::rms_norm(context_, x, weight, eps, out, scope);
}

void CpuOps::layer_norm(FloatRows x, const float* weight, const float* bias, float eps) {
    cpu::layer_norm(context_, x, weight, bias, eps);
}

void CpuOps::quantise(const ActivationRows& x, RowScope scope) {
    cpu::quantise(context_, x, scope);
}

void CpuOps::matmul(std::span<const MatmulJob> jobs) {
    cpu::matmul(context_, jobs);
}

void CpuOps::swiglu(FloatRows gate,
                    FloatRows up,
                    Activation activation,
                    const ActivationRows& out,
                    RowScope scope) {
    cpu::swiglu(context_, gate, up, activation, out, scope);
}

void CpuOps::rope(const RopeJob& job) {
    cpu::rope(context_, job);
}

void CpuOps::write_mla_cache(const MlaCache& cache,
                             FloatRows latent,
                             FloatRows key,
                             RowScope scope) {
    cpu::write_mla_cache(context_, cache, latent, key, scope);
}

void CpuOps::write_index_cache(const IndexCache& cache, FloatRows keys, RowScope scope) {
    cpu::write_index_cache(context_, cache, keys, scope);
}

void CpuOps::absorb_query(
    const HeadMatrices& k, FloatRows q, std::int64_t q_head_stride, float* out, RowScope scope) {
    cpu::absorb_query(context_, k, q, q_head_stride, out, scope);
}

void CpuOps::mla_attention(const MlaAttention& job, RowScope scope) {
    cpu::mla_attention(context_, job, scope);
}

void CpuOps::project_values(const HeadMatrices& v,
                            const float* z,
                            const ActivationRows& out,
                            RowScope scope) {
    cpu::project_values(context_, v, z, out, scope);
}

void CpuOps::index_select(const IndexSelect& job, RowScope scope) {
    cpu::index_select(context_, job, scope);
}

void CpuOps::route(const RouterJob& job, const RouterRule& rule, RowScope scope) {
    cpu::route(context_, job, rule, scope);
}

void CpuOps::sum_experts(const ExpertSum& job) {
    cpu::sum_experts(context_, job);
}

void CpuOps::add(FloatRows residual, FloatRows y) {
    cpu::add(context_, residual, y);
}

void CpuOps::check_logits(FloatRows logits, RowScope scope) {
    cpu::check_logits(context_, logits, scope);
}

}  // namespace terrace::cpu
