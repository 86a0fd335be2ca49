#include "engine/model/model_config.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

#include "engine/model/config_reader.h"
#include "engine/model/family.h"
#include "engine/model/json_text.h"
#include "engine/model/printable.h"

namespace terrace {
namespace {

using nlohmann::json;

// No published model comes near these; they keep every product of two sizes inside 63 bits and
// every loop over layers and experts short.
constexpr std::int64_t kMaxLayers = 1000;
constexpr std::int64_t kMaxExperts = 4096;
constexpr std::int64_t kMaxAllExperts = 200'000;
constexpr std::int64_t kMaxWidth = 1 << 20;
constexpr std::int64_t kMaxHeads = 4096;
constexpr std::int64_t kMaxHeadDim = 4096;
constexpr std::int64_t kMaxVocabulary = 1 << 24;
constexpr std::int64_t kMaxPositions = std::int64_t{1} << 30;
constexpr std::int64_t kMaxMtpLayers = 8;

constexpr const char* kConvertHint = "This model cannot run in Terrace yet.";

std::size_t index_of(std::int64_t i) {
    return static_cast<std::size_t>(i);
}

void read_sizes(ConfigReader& in, ModelConfig& out) {
    out.vocab_size = in.whole("vocab_size", 1, kMaxVocabulary);
    out.hidden_size = in.whole("hidden_size", 1, kMaxWidth);
    out.num_hidden_layers = in.whole("num_hidden_layers", 1, kMaxLayers);
    out.num_nextn_predict_layers = in.whole_or("num_nextn_predict_layers", 0, 0, kMaxMtpLayers);
    out.max_position_embeddings = in.whole("max_position_embeddings", 1, kMaxPositions);
    out.rms_norm_eps = in.number("rms_norm_eps", {1e-20, 1.0});
    out.tie_word_embeddings = in.flag_or("tie_word_embeddings", false);
}

void read_attention(ConfigReader& in, const Family& family, ModelConfig& out) {
    out.num_attention_heads = in.whole("num_attention_heads", 1, kMaxHeads);
    out.q_lora_rank = in.whole("q_lora_rank", 1, kMaxWidth);
    out.kv_lora_rank = in.whole("kv_lora_rank", 1, kMaxWidth);
    out.qk_nope_head_dim = in.whole("qk_nope_head_dim", 1, kMaxHeadDim);
    out.qk_rope_head_dim = in.whole("qk_rope_head_dim", 2, kMaxHeadDim);
    out.v_head_dim = in.whole("v_head_dim", 1, kMaxHeadDim);
    out.rope_interleave =
        in.flag_or("rope_interleave", family.attention_rope == RopePairs::Interleaved);
    if (out.qk_rope_head_dim % 2 != 0) {
        in.expected("qk_rope_head_dim", "an even number");
    }
    if (in.flag_or("attention_bias", false)) {
        in.refuse(ErrorCode::Unsupported,
                  "attention_bias: false was expected, true was found; attention with biases is "
                  "not supported",
                  kConvertHint);
    }
    const std::string activation = in.text_or("hidden_act", "silu");
    if (activation != "silu") {
        in.refuse(ErrorCode::Unsupported,
                  "hidden_act: \"silu\" was expected, \"" + printable(activation) + "\" was found",
                  kConvertHint);
    }
}

void read_yarn(ConfigReader& in, RopeParameters& out) {
    out.factor = in.number("factor", {1.0, 1e6});
    out.original_max_position_embeddings =
        in.whole("original_max_position_embeddings", 1, kMaxPositions);
    out.beta_fast = in.number_or("beta_fast", 32.0, {1e-6, 1e6});
    out.beta_slow = in.number_or("beta_slow", 1.0, {1e-6, 1e6});
    out.mscale = in.number_or("mscale", 1.0, {0.0, 1e3});
    out.mscale_all_dim = in.number_or("mscale_all_dim", 0.0, {0.0, 1e3});
}

/// Newer files keep everything in rope_parameters, older ones have rope_theta at the top level
/// and, for YaRN, rope_scaling.
void read_rope(ConfigReader& in, const json& config, ModelConfig& out) {
    const json* section = in.find("rope_parameters");
    section = section != nullptr ? section : in.find("rope_scaling");
    static const json kNothing = json::object();
    if (section != nullptr && !section->is_object()) {
        in.expected(in.find("rope_parameters") != nullptr ? "rope_parameters" : "rope_scaling",
                    "an object");
        return;
    }
    ConfigReader rope(section == nullptr ? kNothing : *section, &config);
    if (rope.find("rope_theta") == nullptr) {
        out.warnings.emplace_back("config.json: rope_theta is absent, 10000 is taken");
    }
    out.rope_parameters.rope_theta = rope.number_or("rope_theta", 10000.0, {1.0, 1e15});
    const std::string type = rope.text_or("rope_type", rope.text_or("type", "default"));
    if (type == "yarn") {
        out.rope_parameters.rope_type = RopeType::Yarn;
        read_yarn(rope, out.rope_parameters);
    } else if (type != "default") {
        in.refuse(ErrorCode::Unsupported,
                  "rope_type: \"default\" or \"yarn\" was expected, \"" + printable(type) +
                      "\" was found",
                  kConvertHint);
    }
    if (!rope.ok()) {
        const Status status = rope.status();
        in.refuse(status.error().code, status.error().message, status.error().next_step);
    }
}

void check_groups(ConfigReader& in, const ModelConfig& out) {
    if (!in.ok()) {
        return;
    }
    const auto is = [](const char* key, std::int64_t value) {
        return std::string(key) + " " + std::to_string(value);
    };
    const std::string experts = is("n_routed_experts", out.n_routed_experts);
    if (out.n_routed_experts % out.n_group != 0) {
        in.refuse(ErrorCode::Corrupt, is("n_group", out.n_group) + " does not divide " + experts,
                  "Download config.json again from the model's publisher.");
    } else if (out.topk_group > out.n_group) {
        in.refuse(ErrorCode::Corrupt,
                  is("topk_group", out.topk_group) + " is more than " + is("n_group", out.n_group),
                  "Download config.json again from the model's publisher.");
    } else if (out.n_group > 1 && out.n_routed_experts / out.n_group < 2) {
        in.refuse(
            ErrorCode::Unsupported,
            is("n_group", out.n_group) + " leaves fewer than two of " + experts + " in a group",
            kConvertHint);
    } else if (out.num_experts_per_tok > out.n_routed_experts / out.n_group * out.topk_group) {
        in.refuse(ErrorCode::Corrupt,
                  is("num_experts_per_tok", out.num_experts_per_tok) + " is more than the " +
                      std::to_string(out.n_routed_experts / out.n_group * out.topk_group) +
                      " experts there are to choose from (" + experts + ")",
                  "Download config.json again from the model's publisher.");
    }
}

void read_experts(ConfigReader& in, const Family& family, ModelConfig& out) {
    out.intermediate_size = in.whole("intermediate_size", 1, kMaxWidth);
    out.moe_intermediate_size = in.whole("moe_intermediate_size", 1, kMaxWidth);
    const bool alias = in.find("num_experts") != nullptr && in.find("n_routed_experts") == nullptr;
    out.n_routed_experts = in.whole(alias ? "num_experts" : "n_routed_experts", 1, kMaxExperts);
    out.num_experts_per_tok = in.whole("num_experts_per_tok", 1, kMaxExperts);
    out.n_shared_experts = in.whole_or("n_shared_experts", 1, 1, 64);
    out.n_group = in.whole_or("n_group", 1, 1, kMaxExperts);
    out.topk_group = in.whole_or("topk_group", 1, 1, kMaxExperts);
    out.norm_topk_prob = in.flag_or("norm_topk_prob", true);
    out.routed_scaling_factor = in.number("routed_scaling_factor", {1e-6, 1e6});
    // GLM-4.7-Flash carries no scoring_func and means sigmoid.
    const std::string scoring = in.text_or("scoring_func", "sigmoid");
    out.scoring_func = scoring == "softmax" ? ScoringFunc::Softmax : ScoringFunc::Sigmoid;
    if (family.router == RouterKind::SigmoidBias && scoring != "sigmoid") {
        in.refuse(
            ErrorCode::Unsupported,
            "scoring_func: \"sigmoid\" was expected, \"" + printable(scoring) + "\" was found",
            kConvertHint);
    }
    const std::string method = in.text_or("topk_method", "noaux_tc");
    if (method != "noaux_tc") {
        in.refuse(ErrorCode::Unsupported,
                  "topk_method: \"noaux_tc\" was expected, \"" + printable(method) + "\" was found",
                  kConvertHint);
    }
    check_groups(in, out);
    if (in.ok() && out.n_layers_stored() * out.n_routed_experts > kMaxAllExperts) {
        in.refuse(ErrorCode::TooLarge,
                  "at most " + std::to_string(kMaxAllExperts) +
                      " experts in all layers were expected, num_hidden_layers times "
                      "n_routed_experts is " +
                      std::to_string(out.n_layers_stored() * out.n_routed_experts),
                  kConvertHint);
    }
}

/// Complains unless `list` has one entry a layer; entries for the MTP layers may follow.
bool one_entry_a_layer(ConfigReader& in,
                       const char* key,
                       std::size_t n_entries,
                       const ModelConfig& config) {
    if (n_entries == index_of(config.num_hidden_layers) ||
        n_entries == index_of(config.n_layers_stored())) {
        return true;
    }
    in.refuse(ErrorCode::Corrupt,
              std::string(key) + ": one entry for each of the " +
                  std::to_string(config.num_hidden_layers) + " layers was expected, " +
                  std::to_string(n_entries) + " were found",
              "Download config.json again from the model's publisher.");
    return false;
}

void read_mlp_types(ConfigReader& in, ModelConfig& out) {
    const std::int64_t first_sparse =
        in.whole_or("first_k_dense_replace", 0, 0, out.num_hidden_layers);
    const std::int64_t every = in.whole_or("moe_layer_freq", 1, 1, kMaxLayers);
    const json* list = in.find("mlp_layer_types");
    if (!in.ok()) {
        return;
    }
    out.mlp_layer_types.assign(index_of(out.num_hidden_layers), MlpKind::Dense);
    if (list == nullptr) {
        for (std::int64_t layer = first_sparse; layer < out.num_hidden_layers; ++layer) {
            if (layer % every == 0) {
                out.mlp_layer_types[index_of(layer)] = MlpKind::Sparse;
            }
        }
        return;
    }
    if (!list->is_array()) {
        return in.expected("mlp_layer_types", "a list");
    }
    if (!one_entry_a_layer(in, "mlp_layer_types", list->size(), out)) {
        return;
    }
    for (std::size_t layer = 0; layer < out.mlp_layer_types.size(); ++layer) {
        const json& kind = (*list)[layer];
        if (kind == "sparse") {
            out.mlp_layer_types[layer] = MlpKind::Sparse;
        } else if (kind != "dense") {
            in.refuse(ErrorCode::Unsupported,
                      "mlp_layer_types: \"dense\" or \"sparse\" was expected for layer " +
                          std::to_string(layer) + ", " + quoted(kind) + " was found",
                      kConvertHint);
            return;
        }
    }
}

/// "full", "F", "shared", "S"
std::optional<IndexerKind> indexer_kind(const json& entry) {
    if (entry == "full" || entry == "F") {
        return IndexerKind::Full;
    }
    if (entry == "shared" || entry == "S") {
        return IndexerKind::Shared;
    }
    return std::nullopt;
}

void read_indexer_list(ConfigReader& in, const char* key, const json& list, ModelConfig& out) {
    json entries = json::array();
    if (list.is_string()) {
        for (const char c : list.get_ref<const std::string&>()) {
            entries.push_back(std::string(1, c));
        }
    } else if (list.is_array()) {
        entries = list;
    } else {
        return in.expected(key, "a list");
    }
    if (!one_entry_a_layer(in, key, entries.size(), out)) {
        return;
    }
    for (std::size_t layer = 0; layer < index_of(out.num_hidden_layers); ++layer) {
        const std::optional<IndexerKind> kind = indexer_kind(entries[layer]);
        if (!kind) {
            in.refuse(ErrorCode::Unsupported,
                      std::string(key) + ": \"full\" or \"shared\" was expected for layer " +
                          std::to_string(layer) + ", " + quoted(entries[layer]) + " was found",
                      kConvertHint);
            return;
        }
        out.indexer_types.push_back(*kind);
    }
}

void read_indexer_types(ConfigReader& in, ModelConfig& out) {
    const std::int64_t every = in.whole_or("index_topk_freq", 1, 1, kMaxLayers);
    const std::int64_t offset = in.whole_or("index_skip_topk_offset", 2, 0, kMaxLayers);
    if (!in.ok()) {
        return;
    }
    const char* key = "indexer_types";
    if (const json* types = in.find("indexer_types")) {
        read_indexer_list(in, key, *types, out);
    } else if (const json* pattern = in.find("index_topk_pattern")) {
        key = "index_topk_pattern";
        read_indexer_list(in, key, *pattern, out);
    } else {
        for (std::int64_t layer = 0; layer < out.num_hidden_layers; ++layer) {
            const bool full = std::max<std::int64_t>(layer - offset + 1, 0) % every == 0;
            out.indexer_types.push_back(full ? IndexerKind::Full : IndexerKind::Shared);
        }
    }
    if (in.ok() && out.indexer_types[0] == IndexerKind::Shared) {
        in.refuse(ErrorCode::Corrupt,
                  std::string(key) +
                      ": the first layer was expected to be \"full\", it is "
                      "\"shared\" and has nothing to share",
                  "Download config.json again from the model's publisher.");
    }
}

void read_indexer(ConfigReader& in, const Family& family, ModelConfig& out) {
    if (family.indexer == FamilyIndexer::None) {
        return;
    }
    out.index_n_heads = in.whole("index_n_heads", 1, kMaxHeads);
    out.index_head_dim = in.whole("index_head_dim", 2, kMaxHeadDim);
    out.index_topk = in.whole("index_topk", 1, kMaxPositions);
    out.indexer_rope_interleave =
        in.flag_or("indexer_rope_interleave", family.indexer_rope == RopePairs::Interleaved);
    out.index_share_for_mtp_iteration = in.flag_or("index_share_for_mtp_iteration", false);
    if (in.ok() && out.index_head_dim < out.qk_rope_head_dim) {
        in.expected("index_head_dim",
                    "at least qk_rope_head_dim " + std::to_string(out.qk_rope_head_dim));
    }
    read_indexer_types(in, out);
}

void read_quantisation(ConfigReader& in, ModelConfig& out) {
    const json* section = in.find("quantization_config");
    if (section == nullptr) {
        return;
    }
    if (!section->is_object()) {
        return in.expected("quantization_config", "an object");
    }
    const std::string method = section->value("quant_method", json()).is_string()
                                   ? (*section)["quant_method"].get<std::string>()
                                   : std::string("none named");
    if (method != "fp8") {
        in.refuse(ErrorCode::Unsupported,
                  "quantization_config: quant_method \"fp8\" was expected, \"" + printable(method) +
                      "\" was found",
                  "Use the bf16 or fp8 files of this model, or a container made from them.");
        return;
    }
    const json block = section->value("weight_block_size", json());
    if (block != json::array({128, 128})) {
        in.refuse(ErrorCode::Unsupported,
                  "quantization_config: weight_block_size [128, 128] was expected, " +
                      quoted(block) + " was found",
                  "Use the bf16 files of this model.");
        return;
    }
    out.quant_method = QuantMethod::Fp8Blocks;
}

std::optional<std::int64_t> single_id(ConfigReader& in, const char* key) {
    const json* value = in.find(key);
    std::vector<std::string> ignored;
    const std::vector<std::int64_t> ids = read_token_ids(value, key, ignored);
    return ids.empty() ? std::nullopt : std::optional(ids.front());
}

Result<ModelConfig> read_config(const json& config) {
    ConfigReader in(config);
    ModelConfig out;
    out.model_type = in.text("model_type");
    if (!in.ok()) {
        Error error = in.status().error();
        error.next_step = "Known families: " + known_families() + ".";
        return error;
    }
    const Family* family = find_family(out.model_type);
    if (family == nullptr) {
        return Error{ErrorCode::Unsupported,
                     "model_type: a known family was expected, \"" + printable(out.model_type) +
                         "\" was found",
                     "config.json", "Known families: " + known_families() + "."};
    }
    read_sizes(in, out);
    read_attention(in, *family, out);
    read_rope(in, config, out);
    read_experts(in, *family, out);
    read_mlp_types(in, out);
    read_indexer(in, *family, out);
    read_quantisation(in, out);
    out.eos_token_id = read_token_ids(in.find("eos_token_id"), "config.json", out.warnings);
    out.bos_token_id = single_id(in, "bos_token_id");
    out.pad_token_id = single_id(in, "pad_token_id");
    if (!in.ok()) {
        return in.status().error();
    }
    return out;
}

/// An object, with the settings under `text_config` on top where there are any.
Result<json> config_object(std::string_view text) {
    Result<json> parsed = parse_json(text);
    if (!parsed) {
        return parsed;
    }
    if (!parsed->is_object()) {
        return Error{ErrorCode::Corrupt,
                     "an object was expected, " + quoted(*parsed) + " was found", "",
                     "Download the file again."};
    }
    const auto nested = parsed->find("text_config");
    if (nested != parsed->end() && nested->is_object() && nested->contains("num_hidden_layers")) {
        json merged = *parsed;
        merged.update(*nested);
        return merged;
    }
    return parsed;
}

/// A sampling default, or nothing and a warning when it is out of range.
std::optional<double> sampling_number(const json& config,
                                      const char* key,
                                      NumberRange range,
                                      std::vector<std::string>& warnings) {
    ConfigReader in(config);
    if (in.find(key) == nullptr) {
        return std::nullopt;
    }
    const double value = in.number(key, range);
    if (!in.ok()) {
        warnings.push_back("generation_config.json: " + in.status().error().message +
                           " and is ignored");
        return std::nullopt;
    }
    return value;
}

GenerationConfig read_generation(const json& config) {
    GenerationConfig out;
    ConfigReader in(config);
    if (const json* flag = in.find("do_sample"); flag != nullptr && flag->is_boolean()) {
        out.do_sample = flag->get<bool>();
    }
    const auto number = [&](const char* key, NumberRange range) {
        return sampling_number(config, key, range, out.warnings);
    };
    out.temperature = number("temperature", {0.0, 100.0});
    out.top_p = number("top_p", {1e-9, 1.0});
    out.min_p = number("min_p", {0.0, 1.0});
    out.repetition_penalty = number("repetition_penalty", {1e-3, 100.0});
    if (const std::optional<double> k = number("top_k", {0.0, 1e9})) {
        out.top_k = static_cast<std::int64_t>(*k);
    }
    out.eos_token_id =
        read_token_ids(in.find("eos_token_id"), "generation_config.json", out.warnings);
    return out;
}

template <typename T, typename Read>
Result<T> guarded(std::string_view text, const char* file, Read read) {
    try {
        Result<json> config = config_object(text);
        if (!config) {
            return std::move(config).error().in(file);
        }
        return read(*config);
    } catch (const std::exception& e) {
        return Error{ErrorCode::Corrupt,
                     std::string("the file cannot be read: ") + printable(e.what()), file,
                     "Download the file again."};
    }
}

}  // namespace

Result<ModelConfig> parse_model_config(std::string_view text) {
    return guarded<ModelConfig>(text, "config.json", read_config);
}

Result<GenerationConfig> parse_generation_config(std::string_view text) {
    return guarded<GenerationConfig>(
        text, "generation_config.json",
        [](const json& config) -> Result<GenerationConfig> { return read_generation(config); });
}

}  // namespace terrace
