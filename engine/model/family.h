// The model families we run: one descriptor each. Whatever differs between families stands in the
// descriptor or in config.json, never in an `if` on a family's name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/device/ops.h"
#include "engine/model/model_config.h"

namespace terrace {

enum class AttentionKind : std::uint8_t { Mla };

enum class FamilyIndexer : std::uint8_t { None, Lightning };

/// What the router adds before it chooses: SigmoidBias chooses by score + correction bias and
/// weighs by the score alone.
enum class RouterKind : std::uint8_t { SigmoidBias };

enum class ActivationKind : std::uint8_t { SiluGlu };

enum class Projection : std::uint8_t { Gate, Up, Down };

inline constexpr Projection kProjections[] = {Projection::Gate, Projection::Up, Projection::Down};

/// Tensor names of a family. Names without a layer are whole; the others follow
/// `layer_prefix` + layer number + ".". The defaults are the names of the DeepSeek line, which
/// all MLA families share; a family overrides what differs.
struct TensorNames {
    std::string_view embed = "model.embed_tokens.weight";
    std::string_view final_norm = "model.norm.weight";
    std::string_view head = "lm_head.weight";
    std::string_view layer_prefix = "model.layers.";

    std::string_view input_norm = "input_layernorm.weight";
    std::string_view post_attention_norm = "post_attention_layernorm.weight";

    std::string_view q_a = "self_attn.q_a_proj.weight";
    std::string_view q_a_norm = "self_attn.q_a_layernorm.weight";
    std::string_view q_b = "self_attn.q_b_proj.weight";
    std::string_view kv_a = "self_attn.kv_a_proj_with_mqa.weight";
    std::string_view kv_a_norm = "self_attn.kv_a_layernorm.weight";
    std::string_view kv_b = "self_attn.kv_b_proj.weight";
    std::string_view o = "self_attn.o_proj.weight";

    std::string_view index_q_b = "self_attn.indexer.wq_b.weight";
    std::string_view index_k = "self_attn.indexer.wk.weight";
    std::string_view index_k_norm = "self_attn.indexer.k_norm.weight";
    std::string_view index_k_norm_bias = "self_attn.indexer.k_norm.bias";
    std::string_view index_weights = "self_attn.indexer.weights_proj.weight";

    std::string_view mlp_gate = "mlp.gate_proj.weight";
    std::string_view mlp_up = "mlp.up_proj.weight";
    std::string_view mlp_down = "mlp.down_proj.weight";

    std::string_view router = "mlp.gate.weight";
    std::string_view router_bias = "mlp.gate.e_score_correction_bias";
    std::string_view shared_gate = "mlp.shared_experts.gate_proj.weight";
    std::string_view shared_up = "mlp.shared_experts.up_proj.weight";
    std::string_view shared_down = "mlp.shared_experts.down_proj.weight";

    std::string_view expert_prefix = "mlp.experts.";  ///< + expert number + "."
    std::string_view expert_gate = "gate_proj.weight";
    std::string_view expert_up = "up_proj.weight";
    std::string_view expert_down = "down_proj.weight";
    std::string_view merged_gate_up = "mlp.experts.gate_up_proj";  ///< [E, 2I, H]
    std::string_view merged_down = "mlp.experts.down_proj";        ///< [E, H, I]

    std::string_view mtp_projection = "eh_proj.weight";
    std::string_view mtp_embed_norm = "enorm.weight";
    std::string_view mtp_hidden_norm = "hnorm.weight";
    std::string_view mtp_head_norm = "shared_head.norm.weight";
};

/// One model family. Lives as long as the program; immutable; thread-safe.
struct Family {
    std::string_view model_type;    ///< as in config.json
    std::string_view display_name;  ///< for people
    AttentionKind attention = AttentionKind::Mla;
    FamilyIndexer indexer = FamilyIndexer::None;
    RouterKind router = RouterKind::SigmoidBias;
    ActivationKind activation = ActivationKind::SiluGlu;
    /// Defaults where config.json does not say (`rope_interleave`, `indexer_rope_interleave`).
    RopePairs attention_rope = RopePairs::Interleaved;
    RopePairs indexer_rope = RopePairs::Interleaved;
    TensorNames names;

    /// "model.layers.7." + suffix
    [[nodiscard]] std::string layer_tensor(std::int64_t layer, std::string_view suffix) const;
    /// "model.layers.7.mlp.experts.3.up_proj.weight"
    [[nodiscard]] std::string expert_tensor(std::int64_t layer,
                                            std::int64_t expert,
                                            Projection projection) const;
};

/// Every family there is.
[[nodiscard]] std::span<const Family> families();

/// Null when there is none of this name.
[[nodiscard]] const Family* find_family(std::string_view model_type);

/// "glm_moe_dsa, ...", for error messages.
[[nodiscard]] std::string known_families();

}  // namespace terrace
