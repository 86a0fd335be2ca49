#include "tests/engine/model/tiny_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <fstream>

#include "engine/model/census.h"

namespace terrace {
namespace {

namespace fs = std::filesystem;

std::uint64_t mix(std::uint64_t x) {
    x += 0x9E3779B97F4A7C15ULL;
    x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
    return x ^ (x >> 31U);
}

std::int64_t count(const std::vector<std::int64_t>& shape) {
    std::int64_t n = 1;
    for (const std::int64_t size : shape) {
        n *= size;
    }
    return n;
}

/// Byte-level BPE without merges: one token a byte, and an end token.
std::string tiny_tokenizer() {
    std::string vocabulary;
    int extra = 256;
    for (int byte = 0; byte < 256; ++byte) {
        const bool plain = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) ||
                           (byte >= 174 && byte <= 255);
        const int code = plain ? byte : extra++;
        std::string text;
        if (code < 0x80) {
            text = static_cast<char>(code);
            text = text == "\"" || text == "\\" ? "\\" + text : text;
        } else {
            text = {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
        }
        vocabulary += (byte == 0 ? "\"" : ",\"") + text + "\":" + std::to_string(byte);
    }
    return R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[{"id":256,)"
           R"("content":"<|end|>","single_word":false,"lstrip":false,"rstrip":false,)"
           R"("normalized":false,"special":true}],"normalizer":null,"pre_tokenizer":)"
           R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},)"
           R"("post_processor":null,"decoder":{"type":"ByteLevel","add_prefix_space":true,)"
           R"("trim_offsets":true,"use_regex":true},"model":{"type":"BPE","dropout":null,)"
           R"("unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,)"
           R"("fuse_unk":false,"byte_fallback":false,"ignore_merges":false,"vocab":{)" +
           vocabulary + R"(},"merges":[]}})";
}

}  // namespace

TinyTensor tiny_bf16(const std::vector<std::int64_t>& shape, std::uint64_t seed) {
    TinyTensor tensor{"BF16", shape, {}};
    for (std::int64_t i = 0; i < count(shape); ++i) {
        const std::uint64_t bits = mix(seed * 1'000'003 + static_cast<std::uint64_t>(i));
        const float value = (static_cast<float>(bits >> 40U) / 8388608.0F - 1.0F) * 0.1F;
        const auto code = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16U);
        tensor.bytes.push_back(static_cast<std::byte>(code & 0xFFU));
        tensor.bytes.push_back(static_cast<std::byte>(code >> 8U));
    }
    return tensor;
}

TinyTensor tiny_f32(const std::vector<std::int64_t>& shape, const std::vector<float>& values) {
    TinyTensor tensor{"F32", shape, std::vector<std::byte>(values.size() * 4)};
    std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
    return tensor;
}

std::string tiny_safetensors(const std::map<std::string, TinyTensor>& tensors) {
    std::string header = "{";
    std::string data;
    for (const auto& [name, tensor] : tensors) {
        std::string shape;
        for (const std::int64_t size : tensor.shape) {
            shape += (shape.empty() ? "" : ",") + std::to_string(size);
        }
        const std::size_t begin = data.size();
        data.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
        header += (header.size() == 1 ? "\"" : ",\"") + name + R"(":{"dtype":")" + tensor.dtype +
                  R"(","shape":[)" + shape + R"(],"data_offsets":[)" + std::to_string(begin) + "," +
                  std::to_string(data.size()) + "]}";
    }
    header += "}";
    header.append((8 - header.size() % 8) % 8, ' ');
    std::string out(8, '\0');
    const std::uint64_t length = header.size();
    std::memcpy(out.data(), &length, 8);
    return out + header + data;
}

std::string tiny_config() {
    return R"({
 "architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa",
 "vocab_size": 260, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
 "q_lora_rank": 32, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
 "v_head_dim": 16, "head_dim": 99, "attention_bias": false, "hidden_act": "silu",
 "intermediate_size": 128, "moe_intermediate_size": 128, "first_k_dense_replace": 1,
 "mlp_layer_types": ["dense", "sparse"], "n_routed_experts": 4, "num_experts_per_tok": 2,
 "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "topk_method": "noaux_tc",
 "scoring_func": "sigmoid", "norm_topk_prob": true, "routed_scaling_factor": 2.5,
 "index_n_heads": 2, "index_head_dim": 16, "index_topk": 16,
 "indexer_types": ["full", "shared"], "index_share_for_mtp_iteration": true,
 "rope_parameters": {"rope_theta": 10000, "rope_type": "default"},
 "max_position_embeddings": 512, "rms_norm_eps": 1e-05, "num_nextn_predict_layers": 1,
 "tie_word_embeddings": false, "eos_token_id": [256]
})";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TinyFolder TinyFolder::make(std::uint64_t seed) {
    TinyFolder folder;
    folder.tokenizer = tiny_tokenizer();
    const Result<ModelConfig> config = parse_model_config(folder.config);
    EXPECT_TRUE(config.ok()) << config.error().text();
    const Family& family = *find_family(config->model_type);
    std::vector<ExpectedTensor> all = expected_globals(*config, family);
    for (std::int64_t layer = 0; layer < config->n_layers_stored(); ++layer) {
        for (ExpectedTensor& tensor : expected_layer(*config, family, layer)) {
            all.push_back(std::move(tensor));
        }
        if (config->owns_indexer(layer)) {
            for (ExpectedTensor& tensor : expected_indexer(*config, family, layer)) {
                all.push_back(std::move(tensor));
            }
        }
        for (std::int64_t e = 0; config->is_sparse(layer) && e < config->n_routed_experts; ++e) {
            for (const Projection projection : kProjections) {
                all.push_back(expected_expert(*config, family, layer, e, projection));
            }
        }
    }
    for (const ExpectedTensor& tensor : all) {
        const std::vector<std::int64_t> shape =
            tensor.is_vector() ? std::vector{tensor.cols.value}
                               : std::vector{tensor.rows.value, tensor.cols.value};
        folder.tensors()[tensor.name] = tiny_bf16(shape, seed++);
    }
    return folder;
}

void TinyFolder::write(const fs::path& folder) const {
    fs::create_directories(folder);
    std::map<std::string, std::string> files = other_files;
    files["config.json"] = config;
    files["tokenizer.json"] = tokenizer;
    for (const auto& [name, shard] : shards) {
        files[name] = tiny_safetensors(shard);
    }
    for (const auto& [name, text] : files) {
        std::ofstream(folder / name, std::ios::binary) << text;
    }
}

TemporaryFolder::TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "terrace-model-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code error;
    fs::remove_all(path_, error);
}

}  // namespace terrace
