#include "app/core/synthetic_model.h"

namespace terrace::app {

namespace {

/// Shapes of GLM-4.7-Flash, fewer layers and a small vocabulary: 2.4 GB, 555 M active parameters.
SyntheticSpec glm2g() {
    SyntheticSpec s;
    s.hidden_size = 2048;
    s.num_hidden_layers = 8;
    s.num_nextn_predict_layers = 0;
    s.num_attention_heads = 20;
    s.q_lora_rank = 768;
    s.kv_lora_rank = 512;
    s.qk_nope_head_dim = 192;
    s.qk_rope_head_dim = 64;
    s.v_head_dim = 256;
    s.intermediate_size = 8192;
    s.moe_intermediate_size = 1536;
    s.n_routed_experts = 64;
    s.vocab_size = 2048;
    s.index_n_heads = 8;
    s.index_head_dim = 128;
    s.index_topk = 2048;
    s.routed_scaling_factor = 1.8;
    return s;
}

/// Widths that are no multiples of 64, rows longer than one segment, four scale groups: small
/// models have too few groups to see the order of sums (docs/arithmetic.md 7).
SyntheticSpec wideTiny() {
    SyntheticSpec s;
    s.hidden_size = 1160;
    s.num_hidden_layers = 2;
    s.q_lora_rank = 136;
    s.kv_lora_rank = 192;
    s.qk_nope_head_dim = 24;
    s.v_head_dim = 40;
    s.intermediate_size = 584;
    s.moe_intermediate_size = 584;
    s.n_routed_experts = 4;
    s.num_experts_per_tok = 2;
    s.vocab_size = 96;
    s.index_head_dim = 48;
    s.index_topk = 5;
    s.max_position_embeddings = 4096;
    s.rope_theta = 8e6;
    s.seed = "wide";
    s.groups = {32, 64, 0, 16};
    return s;
}

}  // namespace

std::vector<std::string> syntheticPresetNames() {
    return {"tiny", "wide-tiny", "glm-2g"};
}

std::optional<SyntheticSpec> syntheticPreset(const std::string& name) {
    std::optional<SyntheticSpec> spec;
    if (name == "tiny") {
        spec = SyntheticSpec{};
    } else if (name == "wide-tiny") {
        spec = wideTiny();
    } else if (name == "glm-2g") {
        spec = glm2g();
    }
    if (spec) {
        spec->preset = name;
    }
    return spec;
}

}  // namespace terrace::app
