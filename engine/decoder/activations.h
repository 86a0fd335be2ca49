// Scratch memory of one sweep of rows through the layers: every intermediate of the forward pass.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/decoder/kv_cache.h"
#include "engine/device/device.h"
#include "engine/device/ops.h"
#include "engine/model/model_config.h"

namespace terrace {

/// Hands out typed rows of one allocation; a first pass with a null base counts the bytes.
class ActivationArena {
public:
    ActivationArena(std::byte* base, SessionKind kind) : base_(base), kind_(kind) {}

    /// [n_rows, width] f32.
    FloatRows floats(std::int64_t n_rows, std::int64_t width);
    /// [n_rows, width] f32 without gaps, for ops that take no stride.
    FloatRows dense(std::int64_t n_rows, std::int64_t width);
    /// Float rows with their quantised form (none in a float session).
    ActivationRows rows(std::int64_t n_rows, std::int64_t width);
    std::int32_t* ints(std::int64_t count);

    [[nodiscard]] std::int64_t used() const { return used_; }

private:
    std::byte* take(std::int64_t bytes);

    std::byte* base_;
    SessionKind kind_;
    std::int64_t used_ = 0;
};

/// The intermediates, for at most `max_rows` rows at a time. Shapes: n rows, H hidden_size,
/// k num_experts_per_tok, I moe_intermediate_size, S shared width, D widest dense FFN.
struct ActivationSet {
    std::int64_t max_rows = 0;
    FloatRows hidden;       ///< [n, H] the residual stream
    ActivationRows normed;  ///< [n, H] after a layer's input or post-attention norm
    ActivationRows final;   ///< [n, H] after model.norm: logits and the MTP head read it
    FloatRows block_out;    ///< [n, H] output of attention, of a dense FFN, of the shared expert
    // attention
    FloatRows q_latent_raw;   ///< [n, q_lora_rank]
    ActivationRows q_latent;  ///< [n, q_lora_rank] after its norm; the indexer reads it too
    FloatRows kv;             ///< [n, kv_lora_rank + rope]
    FloatRows q;              ///< [n, heads * (nope + rope)]
    FloatRows absorbed;       ///< [n, heads * kv_lora_rank]
    FloatRows z;              ///< [n, heads * kv_lora_rank]
    ActivationRows values;    ///< [n, heads * v_head_dim]
    // indexer
    FloatRows index_q;                 ///< [n, index_n_heads * index_head_dim]
    FloatRows index_k;                 ///< [n, index_head_dim]
    FloatRows index_weights;           ///< [n, index_n_heads]
    std::int32_t* selected = nullptr;  ///< [n, index_topk]
    // feed-forward
    FloatRows gate;  ///< [max(n*k, n), widest]: gate_proj of experts or of a dense layer
    FloatRows up;
    ActivationRows inner;   ///< after SwiGLU
    FloatRows shared_gate;  ///< [n, S]
    FloatRows shared_up;
    ActivationRows shared_inner;
    FloatRows expert_out;                    ///< [n*k, H]
    std::int32_t* expert_ids = nullptr;      ///< [n, k] in order of choice
    float* expert_gates = nullptr;           ///< [n, k]
    std::int32_t* expert_rows = nullptr;     ///< [n, k] row of expert_out
    std::int32_t* pair_positions = nullptr;  ///< [n*k] position of the row behind each pair
    // MTP
    ActivationRows mtp_input;           ///< [n, 2H] enorm(embedding) then hnorm(hidden)
    ActivationRows mtp_out;             ///< [n, H] z, after shared_head.norm
    std::int32_t* positions = nullptr;  ///< [n]
};

/// Owns the memory behind an ActivationSet. Owner: the decoder. Thread: engine.
class Activations {
public:
    [[nodiscard]] static Result<Activations> create(const ModelConfig& config,
                                                    SessionKind kind,
                                                    std::int64_t max_rows,
                                                    Device& device);

    /// Bytes that `create` would allocate.
    [[nodiscard]] static std::int64_t bytes(const ModelConfig& config,
                                            SessionKind kind,
                                            std::int64_t max_rows);

    ActivationSet set;
    std::vector<Selection> selections;  ///< [max_rows], of the last full layer

private:
    Activations() = default;
    Buffer memory_;
};

}  // namespace terrace
