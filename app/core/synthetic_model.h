// Seeded models of any shape: real folders with random weights, for tests, measurements and
// experiments. No file is downloaded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/device/result.h"
#include "engine/device/tensor.h"

namespace terrace::app {

/// How often the experts of a layer are chosen.
struct SyntheticRouting {
    /// Popularity of the r-th most popular expert is 1 / r^exponent; 0: uniform.
    double zipfExponent = 0.0;
    /// Share of a token's experts that the token before also chose, for text that the model itself
    /// writes. Empty: whatever comes of independent tokens.
    std::optional<double> overlap;
};

/// Dimensions under the names of config.json, and how the weights are stored.
struct SyntheticSpec {
    std::string preset;
    std::int64_t hidden_size = 128;
    std::int64_t num_hidden_layers = 4;
    std::int64_t first_k_dense_replace = 1;
    std::int64_t num_nextn_predict_layers = 1;
    std::int64_t num_attention_heads = 4;
    std::int64_t q_lora_rank = 64;
    std::int64_t kv_lora_rank = 64;
    std::int64_t qk_nope_head_dim = 32;
    std::int64_t qk_rope_head_dim = 16;
    std::int64_t v_head_dim = 32;
    std::int64_t intermediate_size = 256;
    std::int64_t moe_intermediate_size = 64;
    std::int64_t n_routed_experts = 16;
    std::int64_t num_experts_per_tok = 4;
    std::int64_t n_shared_experts = 1;
    std::int64_t vocab_size = 512;
    std::int64_t index_n_heads = 4;
    std::int64_t index_head_dim = 32;
    std::int64_t index_topk = 64;
    std::int64_t index_topk_freq = 1;  ///< every n-th layer has an indexer of its own
    std::int64_t max_position_embeddings = 8192;
    double rope_theta = 1e6;
    double routed_scaling_factor = 2.5;
    std::string seed = "1";
    /// Scale groups of int4 matrices; a matrix takes one of them by its name. {64} for one kind.
    std::vector<std::int32_t> groups{64};
    WeightKind kind = WeightKind::Int4;  ///< of what the rule of conversions stores as int4
    SyntheticRouting routing;
};

/// "tiny", "wide-tiny", "glm-2g" ...; empty when there is no such preset.
[[nodiscard]] std::optional<SyntheticSpec> syntheticPreset(const std::string& name);
[[nodiscard]] std::vector<std::string> syntheticPresetNames();

using SyntheticProgress = std::function<void(std::int64_t bytesDone, std::int64_t bytesTotal)>;

/// Writes the folder `out`, which must not exist or be empty: config.json, generation_config.json,
/// tokenizer.json, tokenizer_config.json, chat_template.jinja and a container.
/// Errors: WrongUse for dimensions that fit no model, TooLarge for a full disk, Io; a stop leaves
/// no config.json behind, so that the rest is never taken for a model.
[[nodiscard]] Status writeSyntheticModel(const SyntheticSpec& spec,
                                         const std::filesystem::path& out,
                                         const SyntheticProgress& progress,
                                         std::stop_token stop);

}  // namespace terrace::app
