// What config.json and generation_config.json say, checked and in one spelling. First thing read
// of a model folder; every shape of the checkpoint is derived from it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/device/result.h"

namespace terrace {

enum class MlpKind : std::uint8_t { Dense, Sparse };

/// A Full layer owns an indexer; a Shared one uses the selection of the last full layer before it.
enum class IndexerKind : std::uint8_t { Full, Shared };

enum class RopeType : std::uint8_t { Default, Yarn };

enum class ScoringFunc : std::uint8_t { Sigmoid, Softmax };

/// How the published weights are quantised, as `quantization_config` says.
enum class QuantMethod : std::uint8_t { None, Fp8Blocks };

/// Frequencies of the rotary embedding. The YaRN members mean something for RopeType::Yarn only.
struct RopeParameters {
    double rope_theta = 10000.0;
    RopeType rope_type = RopeType::Default;
    double factor = 1.0;
    std::int64_t original_max_position_embeddings = 0;
    double beta_fast = 32.0;
    double beta_slow = 1.0;
    double mscale = 1.0;
    double mscale_all_dim = 0.0;
};

/// One model's hyperparameters under the field names of config.json. Value type; immutable by
/// habit. Every number was range-checked: sizes are positive and products of two fit 63 bits.
/// Numbers that enter the arithmetic are binary64, as the decimal text gives them.
struct ModelConfig {
    std::string model_type;

    std::int64_t vocab_size = 0;
    std::int64_t hidden_size = 0;
    std::int64_t num_hidden_layers = 0;         ///< without MTP layers
    std::int64_t num_nextn_predict_layers = 0;  ///< MTP layers, stored after the main ones
    std::int64_t max_position_embeddings = 0;
    double rms_norm_eps = 0.0;
    bool tie_word_embeddings = false;

    std::int64_t num_attention_heads = 0;
    std::int64_t q_lora_rank = 0;
    std::int64_t kv_lora_rank = 0;
    std::int64_t qk_nope_head_dim = 0;
    std::int64_t qk_rope_head_dim = 0;
    std::int64_t v_head_dim = 0;
    bool rope_interleave = true;
    RopeParameters rope_parameters;

    std::int64_t intermediate_size = 0;      ///< width of a dense feed-forward layer
    std::int64_t moe_intermediate_size = 0;  ///< width of one expert
    std::int64_t n_routed_experts = 0;
    std::int64_t num_experts_per_tok = 0;
    std::int64_t n_shared_experts = 0;  ///< the shared expert is this many times as wide
    std::int64_t n_group = 1;
    std::int64_t topk_group = 1;
    ScoringFunc scoring_func = ScoringFunc::Sigmoid;
    bool norm_topk_prob = true;
    double routed_scaling_factor = 1.0;
    std::vector<MlpKind> mlp_layer_types;  ///< [num_hidden_layers]; MTP layers are sparse

    std::int64_t index_n_heads = 0;  ///< the index_ members are 0 in a family without indexer
    std::int64_t index_head_dim = 0;
    std::int64_t index_topk = 0;
    bool indexer_rope_interleave = true;
    bool index_share_for_mtp_iteration = false;
    std::vector<IndexerKind> indexer_types;  ///< [num_hidden_layers], empty without indexer

    std::vector<std::int64_t> eos_token_id;  ///< as written; range-checked by open_model_folder
    std::optional<std::int64_t> bos_token_id;
    std::optional<std::int64_t> pad_token_id;

    QuantMethod quant_method = QuantMethod::None;

    std::vector<std::string> warnings;  ///< oddities that do not stop the model

    /// Values of one head's query or key. `head_dim` of config.json means something else in the
    /// MLA families and is not read.
    [[nodiscard]] std::int64_t qk_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }

    /// Main layers and MTP layers together.
    [[nodiscard]] std::int64_t n_layers_stored() const {
        return num_hidden_layers + num_nextn_predict_layers;
    }

    [[nodiscard]] bool is_sparse(std::int64_t layer) const {
        return layer >= num_hidden_layers ||
               mlp_layer_types[static_cast<std::size_t>(layer)] == MlpKind::Sparse;
    }

    /// True for layers that run their own indexer; the MTP layers do.
    [[nodiscard]] bool owns_indexer(std::int64_t layer) const {
        return index_topk > 0 &&
               (layer >= num_hidden_layers ||
                indexer_types[static_cast<std::size_t>(layer)] == IndexerKind::Full);
    }
};

/// Defaults for sampling from generation_config.json; absent ones stay empty.
struct GenerationConfig {
    std::optional<bool> do_sample;
    std::optional<double> temperature;
    std::optional<double> top_p;
    std::optional<std::int64_t> top_k;
    std::optional<double> min_p;
    std::optional<double> repetition_penalty;
    std::vector<std::int64_t> eos_token_id;
    std::vector<std::string> warnings;
};

/// Reads the text of config.json. Errors name "config.json" and the key; Unsupported lists the
/// families we know. A byte order mark, unknown keys and settings under `text_config` are fine.
[[nodiscard]] Result<ModelConfig> parse_model_config(std::string_view text);

/// Reads the text of generation_config.json. Values out of range are left out with a warning.
[[nodiscard]] Result<GenerationConfig> parse_generation_config(std::string_view text);

}  // namespace terrace
