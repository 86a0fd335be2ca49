#include "app/core/synthetic_folder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/core/synthetic_values.h"
#include "engine/support/file.h"

namespace terrace::app {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<const char*, 8> kSpecialTokens{"<|endoftext|>",   "[gMASK]",  "<sop>",
                                                    "<|system|>",      "<|user|>", "<|assistant|>",
                                                    "<|observation|>", "<|pad|>"};

constexpr const char* kChatTemplate =
    "[gMASK]<sop>{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";

/// UTF-8 of a code point below U+0800.
std::string utf8(unsigned code) {
    if (code < 0x80) {
        return std::string(1, static_cast<char>(code));
    }
    return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

/// The letter that stands for a byte in byte-level vocabularies: printable bytes are themselves,
/// the others follow from U+0100 on.
std::string byteLetter(unsigned byte) {
    unsigned shifted = 0;
    for (unsigned b = 0; b < 256; ++b) {
        const bool printable =
            (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
        if (b == byte) {
            return utf8(printable ? b : 0x100 + shifted);
        }
        shifted += printable ? 0 : 1;
    }
    return "";
}

std::int64_t specialCount(const SyntheticSpec& spec) {
    return spec.vocab_size >= kSyntheticTokens ? static_cast<std::int64_t>(kSpecialTokens.size())
                                               : 1;
}

Json tokenizerJson(const SyntheticSpec& spec) {
    Json vocab = Json::object();
    Json added = Json::array();
    std::int64_t id = 0;
    for (; id < specialCount(spec); ++id) {
        const char* text = kSpecialTokens[static_cast<std::size_t>(id)];
        added.push_back({{"id", id},
                         {"content", text},
                         {"single_word", false},
                         {"lstrip", false},
                         {"rstrip", false},
                         {"normalized", false},
                         {"special", true}});
    }
    // Printable bytes first, so that a small vocabulary can still spell.
    for (unsigned i = 0; i < 256 && id < spec.vocab_size; ++i) {
        vocab[byteLetter((i + ' ') % 256)] = id++;
    }
    for (; id < spec.vocab_size; ++id) {
        vocab["Ġw" + std::to_string(id)] = id;
    }
    Json json;
    json["version"] = "1.0";
    json["truncation"] = nullptr;
    json["padding"] = nullptr;
    json["added_tokens"] = added;
    json["normalizer"] = nullptr;
    json["pre_tokenizer"] = {{"type", "ByteLevel"},
                             {"add_prefix_space", false},
                             {"trim_offsets", true},
                             {"use_regex", true}};
    json["post_processor"] = nullptr;
    json["decoder"] = {{"type", "ByteLevel"},
                       {"add_prefix_space", true},
                       {"trim_offsets", true},
                       {"use_regex", true}};
    json["model"] = {{"type", "BPE"},
                     {"dropout", nullptr},
                     {"unk_token", nullptr},
                     {"continuing_subword_prefix", nullptr},
                     {"end_of_word_suffix", nullptr},
                     {"fuse_unk", false},
                     {"byte_fallback", false},
                     {"ignore_merges", false},
                     {"vocab", vocab},
                     {"merges", Json::array()}};
    return json;
}

Json configJson(const SyntheticSpec& s) {
    Json mlp = Json::array();
    Json indexers = Json::array();
    for (std::int64_t layer = 0; layer < s.num_hidden_layers; ++layer) {
        mlp.push_back(layer < s.first_k_dense_replace ? "dense" : "sparse");
        indexers.push_back(syntheticLayerIsFull(s, layer) ? "full" : "shared");
    }
    return {{"architectures", {"GlmMoeDsaForCausalLM"}},
            {"model_type", "glm_moe_dsa"},
            {"dtype", "bfloat16"},
            {"vocab_size", s.vocab_size},
            {"hidden_size", s.hidden_size},
            {"num_hidden_layers", s.num_hidden_layers},
            {"num_attention_heads", s.num_attention_heads},
            {"num_key_value_heads", s.num_attention_heads},
            {"q_lora_rank", s.q_lora_rank},
            {"kv_lora_rank", s.kv_lora_rank},
            {"qk_nope_head_dim", s.qk_nope_head_dim},
            {"qk_rope_head_dim", s.qk_rope_head_dim},
            {"qk_head_dim", s.qk_nope_head_dim + s.qk_rope_head_dim},
            {"v_head_dim", s.v_head_dim},
            {"attention_bias", false},
            {"hidden_act", "silu"},
            {"intermediate_size", s.intermediate_size},
            {"moe_intermediate_size", s.moe_intermediate_size},
            {"first_k_dense_replace", s.first_k_dense_replace},
            {"mlp_layer_types", mlp},
            {"n_routed_experts", s.n_routed_experts},
            {"num_experts_per_tok", s.num_experts_per_tok},
            {"n_shared_experts", s.n_shared_experts},
            {"n_group", 1},
            {"topk_group", 1},
            {"topk_method", "noaux_tc"},
            {"scoring_func", "sigmoid"},
            {"norm_topk_prob", true},
            {"routed_scaling_factor", s.routed_scaling_factor},
            {"index_n_heads", s.index_n_heads},
            {"index_head_dim", s.index_head_dim},
            {"index_topk", s.index_topk},
            {"indexer_types", indexers},
            {"index_share_for_mtp_iteration", true},
            {"indexer_rope_interleave", true},
            {"rope_interleave", true},
            {"rope_parameters", {{"rope_theta", s.rope_theta}, {"rope_type", "default"}}},
            {"max_position_embeddings", s.max_position_embeddings},
            {"rms_norm_eps", 1e-5},
            {"num_nextn_predict_layers", s.num_nextn_predict_layers},
            {"tie_word_embeddings", false},
            {"eos_token_id", {0}}};
}

Status writeText(const std::filesystem::path& path, const std::string& text) {
    Result<AtomicFile> file = AtomicFile::create(path);
    if (!file) {
        return std::move(file).error();
    }
    if (Status written = file->write(std::as_bytes(std::span(text))); !written) {
        return written;
    }
    return file->commit();
}

}  // namespace

bool syntheticLayerIsFull(const SyntheticSpec& spec, std::int64_t layer) {
    return layer % spec.index_topk_freq == 0;
}

Status writeSyntheticFolder(const SyntheticSpec& spec, const std::filesystem::path& out) {
    const Json tokenizerConfig{{"eos_token", kSpecialTokens[0]}, {"pad_token", kSpecialTokens[0]}};
    const Json generation{
        {"do_sample", true}, {"temperature", 1.0}, {"top_p", 0.95}, {"eos_token_id", {0}}};
    const std::array<std::pair<const char*, std::string>, 5> files{
        {{"tokenizer.json", tokenizerJson(spec).dump(1)},
         {"tokenizer_config.json", tokenizerConfig.dump(1)},
         {"generation_config.json", generation.dump(1)},
         {"chat_template.jinja", kChatTemplate},
         {"config.json", configJson(spec).dump(1)}}};
    for (const auto& [name, text] : files) {
        if (Status written = writeText(out / name, text + (text.back() == '}' ? "\n" : ""));
            !written) {
            return written;
        }
    }
    return {};
}

}  // namespace terrace::app
