#include "engine/decoder/activations.h"

#include <algorithm>

namespace terrace {

namespace {

constexpr std::int64_t kAlign = 64;

ActivationSet carve(const ModelConfig& c, std::int64_t n, ActivationArena& arena) {
    ActivationSet a;
    const std::int64_t hidden = c.hidden_size;
    const std::int64_t heads = c.num_attention_heads;
    const std::int64_t pairs = n * std::max<std::int64_t>(c.num_experts_per_tok, 1);
    const std::int64_t shared = c.n_shared_experts * c.moe_intermediate_size;
    a.max_rows = n;
    a.hidden = arena.floats(n, hidden);
    a.normed = arena.rows(n, hidden);
    a.final = arena.rows(n, hidden);
    a.block_out = arena.dense(n, hidden);
    a.q_latent_raw = arena.floats(n, c.q_lora_rank);
    a.q_latent = arena.rows(n, c.q_lora_rank);
    a.kv = arena.floats(n, c.kv_lora_rank + c.qk_rope_head_dim);
    a.q = arena.floats(n, heads * (c.qk_nope_head_dim + c.qk_rope_head_dim));
    a.absorbed = arena.dense(n, heads * c.kv_lora_rank);
    a.z = arena.dense(n, heads * c.kv_lora_rank);
    a.values = arena.rows(n, heads * c.v_head_dim);
    a.index_q = arena.dense(n, c.index_n_heads * c.index_head_dim);
    a.index_k = arena.floats(n, c.index_head_dim);
    a.index_weights = arena.floats(n, c.index_n_heads);
    a.selected = arena.ints(n * c.index_topk);
    // A dense layer's rows are wide and few, an expert's narrow and many: one piece serves both.
    a.gate = arena.floats(pairs, c.moe_intermediate_size);
    a.up = arena.floats(pairs, c.moe_intermediate_size);
    a.inner = arena.rows(pairs, c.moe_intermediate_size);
    const std::int64_t wide = std::max(shared, c.intermediate_size);
    a.shared_gate = arena.floats(n, wide);
    a.shared_up = arena.floats(n, wide);
    a.shared_inner = arena.rows(n, wide);
    a.expert_out = arena.dense(pairs, hidden);
    a.expert_ids = arena.ints(pairs);
    a.expert_gates = reinterpret_cast<float*>(arena.ints(pairs));
    a.expert_rows = arena.ints(pairs);
    a.pair_positions = arena.ints(pairs);
    a.mtp_input = arena.rows(n, 2 * hidden);
    a.mtp_out = arena.rows(n, hidden);
    a.positions = arena.ints(n);
    return a;
}

}  // namespace

std::byte* ActivationArena::take(std::int64_t bytes) {
    std::byte* piece = base_ == nullptr ? nullptr : base_ + used_;
    used_ += round_up(bytes, kAlign);
    return piece;
}

FloatRows ActivationArena::floats(std::int64_t n_rows, std::int64_t width) {
    // Rows start on their own cache line, so threads that write neighbouring rows do not share one.
    const std::int64_t stride = round_up(width, 16);
    auto* data = reinterpret_cast<float*>(take(n_rows * stride * 4));
    return FloatRows{data, n_rows, width, stride};
}

FloatRows ActivationArena::dense(std::int64_t n_rows, std::int64_t width) {
    return FloatRows{reinterpret_cast<float*>(take(n_rows * width * 4)), n_rows, width, width};
}

ActivationRows ActivationArena::rows(std::int64_t n_rows, std::int64_t width) {
    ActivationRows r;
    const FloatRows values = floats(n_rows, width);
    r.values = values.data;
    r.stride = values.stride;
    r.n_rows = n_rows;
    r.width = width;
    if (kind_ == SessionKind::Quantised) {
        r.q = reinterpret_cast<std::int8_t*>(take(n_rows * r.q_stride()));
        r.scales = reinterpret_cast<float*>(take(n_rows * r.n_groups() * 4));
        r.sums = reinterpret_cast<std::int32_t*>(take(n_rows * r.n_groups() * 4));
    }
    return r;
}

std::int32_t* ActivationArena::ints(std::int64_t count) {
    return reinterpret_cast<std::int32_t*>(take(count * 4));
}

std::int64_t Activations::bytes(const ModelConfig& config,
                                SessionKind kind,
                                std::int64_t max_rows) {
    ActivationArena counter(nullptr, kind);
    carve(config, max_rows, counter);
    return counter.used();
}

Result<Activations> Activations::create(const ModelConfig& config,
                                        SessionKind kind,
                                        std::int64_t max_rows,
                                        Device& device) {
    Result<Buffer> memory = device.allocate(bytes(config, kind, max_rows));
    if (!memory) {
        return std::move(memory).error().in("scratch for " + std::to_string(max_rows) + " rows");
    }
    Activations activations;
    activations.memory_ = std::move(memory).value();
    ActivationArena arena(activations.memory_.data(), kind);
    activations.set = carve(config, max_rows, arena);
    activations.selections.resize(static_cast<std::size_t>(max_rows));
    return activations;
}

}  // namespace terrace
