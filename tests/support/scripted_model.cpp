#include "tests/support/scripted_model.h"

#include <algorithm>
#include <deque>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/support/model_copy.h"

namespace terrace::test {

namespace {

constexpr std::int64_t kLayers = 2;  // one dense, one sparse
constexpr std::int64_t kExperts = 2;
constexpr std::int64_t kWidth = 8;  // of every small dimension

/// Collects float32 tensors and writes them as one safetensors file.
class Tensors {
public:
    std::vector<float>& add(const std::string& name, std::vector<std::int64_t> shape, float value) {
        std::int64_t n = 1;
        for (const std::int64_t d : shape) {
            n *= d;
        }
        shapes_.emplace_back(name, std::move(shape));
        values_.emplace_back(static_cast<std::size_t>(n), value);
        return values_.back();
    }

    void write(const std::filesystem::path& file) const {
        nlohmann::json header = nlohmann::json::object();
        std::size_t offset = 0;
        for (std::size_t i = 0; i < shapes_.size(); ++i) {
            const std::size_t end = offset + values_[i].size() * 4;
            header[shapes_[i].first] = {
                {"dtype", "F32"}, {"shape", shapes_[i].second}, {"data_offsets", {offset, end}}};
            offset = end;
        }
        std::string text = header.dump();
        text.resize((text.size() + 7) / 8 * 8, ' ');
        std::ofstream out(file, std::ios::binary);
        const std::uint64_t n = text.size();
        out.write(reinterpret_cast<const char*>(&n), 8);
        out << text;
        for (const std::vector<float>& v : values_) {
            out.write(reinterpret_cast<const char*>(v.data()),
                      static_cast<std::streamsize>(v.size() * 4));
        }
    }

private:
    std::vector<std::pair<std::string, std::vector<std::int64_t>>> shapes_;
    std::deque<std::vector<float>> values_;  // add() hands out references
};

void add_attention(Tensors& tensors, const std::string& layer, std::int64_t hidden) {
    const std::string a = layer + "self_attn.";
    tensors.add(layer + "input_layernorm.weight", {hidden}, 1.0f);
    tensors.add(layer + "post_attention_layernorm.weight", {hidden}, 1.0f);
    tensors.add(a + "q_a_proj.weight", {kWidth, hidden}, 0.25f);
    tensors.add(a + "q_a_layernorm.weight", {kWidth}, 1.0f);
    tensors.add(a + "q_b_proj.weight", {kWidth, kWidth}, 0.25f);
    tensors.add(a + "kv_a_proj_with_mqa.weight", {kWidth + 4, hidden}, 0.25f);
    tensors.add(a + "kv_a_layernorm.weight", {kWidth}, 1.0f);
    tensors.add(a + "kv_b_proj.weight", {4 + kWidth, kWidth}, 0.25f);
    tensors.add(a + "o_proj.weight", {hidden, kWidth}, 0.0f);
    tensors.add(a + "indexer.wq_b.weight", {2 * kWidth, kWidth}, 0.25f);
    tensors.add(a + "indexer.wk.weight", {kWidth, hidden}, 0.25f);
    tensors.add(a + "indexer.k_norm.weight", {kWidth}, 1.0f);
    tensors.add(a + "indexer.k_norm.bias", {kWidth}, 0.5f);
    tensors.add(a + "indexer.weights_proj.weight", {2, hidden}, 0.25f);
}

void add_mlp(Tensors& tensors, const std::string& prefix, std::int64_t hidden) {
    tensors.add(prefix + "gate_proj.weight", {kWidth, hidden}, 0.25f);
    tensors.add(prefix + "up_proj.weight", {kWidth, hidden}, 0.25f);
    tensors.add(prefix + "down_proj.weight", {hidden, kWidth}, 0.0f);
}

void add_sparse(Tensors& tensors, const std::string& layer, std::int64_t hidden) {
    tensors.add(layer + "mlp.gate.weight", {kExperts, hidden}, 0.0f);
    tensors.add(layer + "mlp.gate.e_score_correction_bias", {kExperts}, 0.0f);
    add_mlp(tensors, layer + "mlp.shared_experts.", hidden);
    for (std::int64_t e = 0; e < kExperts; ++e) {
        add_mlp(tensors, layer + "mlp.experts." + std::to_string(e) + ".", hidden);
    }
}

/// The draft layer sees the embedding it eats, or the one after it when it is to be wrong.
void add_drafter(Tensors& tensors, std::int64_t hidden, std::int64_t vocab, Drafter drafter) {
    const std::string layer = "model.layers." + std::to_string(kLayers) + ".";
    add_attention(tensors, layer, hidden);
    add_sparse(tensors, layer, hidden);
    std::vector<float>& eh = tensors.add(layer + "eh_proj.weight", {hidden, 2 * hidden}, 0.0f);
    const std::int64_t shift = drafter == Drafter::Wrong ? 1 : 0;
    for (std::int64_t i = 0; i < vocab; ++i) {
        eh[static_cast<std::size_t>((i + shift) % vocab * 2 * hidden + i)] = 1.0f;
    }
    tensors.add(layer + "enorm.weight", {hidden}, 1.0f);
    tensors.add(layer + "hnorm.weight", {hidden}, 1.0f);
    const float head =
        drafter == Drafter::NotANumber ? std::numeric_limits<float>::quiet_NaN() : 1.0f;
    tensors.add(layer + "shared_head.norm.weight", {hidden}, head);
}

nlohmann::json config_of(const Script& script, std::int64_t hidden) {
    return {{"architectures", {"GlmMoeDsaForCausalLM"}},
            {"model_type", "glm_moe_dsa"},
            {"vocab_size", script.pieces.size()},
            {"hidden_size", hidden},
            {"num_hidden_layers", kLayers},
            {"num_nextn_predict_layers", 1},
            {"first_k_dense_replace", 1},
            {"mlp_layer_types", {"dense", "sparse"}},
            {"indexer_types", {"full", "full"}},
            {"num_attention_heads", 1},
            {"num_key_value_heads", 1},
            {"q_lora_rank", kWidth},
            {"kv_lora_rank", kWidth},
            {"qk_nope_head_dim", 4},
            {"qk_rope_head_dim", 4},
            {"qk_head_dim", 8},
            {"v_head_dim", kWidth},
            {"index_n_heads", 2},
            {"index_head_dim", kWidth},
            {"index_topk", 8},
            {"n_routed_experts", kExperts},
            {"num_experts_per_tok", 1},
            {"n_shared_experts", 1},
            {"n_group", 1},
            {"topk_group", 1},
            {"moe_intermediate_size", kWidth},
            {"intermediate_size", kWidth},
            {"norm_topk_prob", true},
            {"routed_scaling_factor", 1.0},
            {"scoring_func", "sigmoid"},
            {"index_share_for_mtp_iteration", true},
            {"rms_norm_eps", 1e-5},
            {"tie_word_embeddings", false},
            {"eos_token_id", script.stop_ids},
            {"max_position_embeddings", 4096},
            {"rope_parameters", {{"rope_theta", 10000}, {"rope_type", "default"}}}};
}

std::string tokenizer_of(const Script& script) {
    nlohmann::json file = nlohmann::json::parse(byte_tokenizer_json(0));
    nlohmann::json ids = nlohmann::json::object();
    for (std::size_t id = 0; id < script.pieces.size(); ++id) {
        const bool special = std::find(script.special.begin(), script.special.end(),
                                       static_cast<std::int32_t>(id)) != script.special.end();
        if (special) {
            file["added_tokens"].push_back({{"id", id},
                                            {"content", script.pieces[id]},
                                            {"single_word", false},
                                            {"lstrip", false},
                                            {"rstrip", false},
                                            {"normalized", false},
                                            {"special", true}});
        } else {
            ids[byte_letters(script.pieces[id])] = id;
        }
    }
    file["model"]["vocab"] = ids;
    return file.dump();
}

}  // namespace

ScriptedModel::ScriptedModel(const Script& script) {
    const auto vocab = static_cast<std::int64_t>(script.pieces.size());
    const std::int64_t hidden = (vocab + 63) / 64 * 64;
    Tensors tensors;
    std::vector<float>& embedding = tensors.add("model.embed_tokens.weight", {vocab, hidden}, 0.0f);
    for (std::int64_t id = 0; id < vocab; ++id) {
        embedding[static_cast<std::size_t>(id * hidden + id)] = 1.0f;
    }
    std::vector<float>& head = tensors.add("lm_head.weight", {vocab, hidden}, 0.0f);
    for (std::int64_t id = 0; id < vocab; ++id) {
        const auto found = script.next.find(static_cast<std::int32_t>(id));
        const std::int64_t next =
            found == script.next.end() ? std::min(id + 1, vocab - 1) : found->second;
        head[static_cast<std::size_t>(next * hidden + id)] = 4.0f;
    }
    tensors.add("model.norm.weight", {hidden}, 1.0f);
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
        const std::string name = "model.layers." + std::to_string(layer) + ".";
        add_attention(tensors, name, hidden);
        if (layer == 0) {
            add_mlp(tensors, name + "mlp.", hidden);
        } else {
            add_sparse(tensors, name, hidden);
        }
    }
    add_drafter(tensors, hidden, vocab, script.drafter);
    tensors.write(path() / "model.safetensors");
    std::ofstream(path() / "config.json") << config_of(script, hidden).dump();
    std::ofstream(path() / "tokenizer.json") << tokenizer_of(script);
}

}  // namespace terrace::test
