#include "engine/model/model_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "engine/model/census.h"
#include "engine/text/template/chat_template.h"
#include "engine/text/tokenizer.h"
#include "tests/engine/model/tiny_folder.h"

namespace terrace {
namespace {

namespace fs = std::filesystem;

class ModelFolderTest : public ::testing::Test {
protected:
    [[nodiscard]] fs::path path() const { return temporary_.path() / "model"; }

    Result<ModelFolder> open(const TinyFolder& folder) {
        folder.write(path());
        return open_model_folder(path());
    }

    ModelFolder opened(const TinyFolder& folder) {
        Result<ModelFolder> result = open(folder);
        EXPECT_TRUE(result.ok()) << (result ? "" : result.error().text());
        return result ? std::move(*result) : ModelFolder();
    }

    std::string refusal(const TinyFolder& folder) {
        const Result<ModelFolder> result = open(folder);
        EXPECT_FALSE(result.ok());
        return result ? "" : result.error().text();
    }

    TinyFolder tiny_ = TinyFolder::make(1);
    TemporaryFolder temporary_;
};

bool mentions(const std::vector<std::string>& warnings, const std::string& part) {
    return std::any_of(warnings.begin(), warnings.end(), [&](const std::string& warning) {
        return warning.find(part) != std::string::npos;
    });
}

TEST_F(ModelFolderTest, CountsWhatIsInTheFolder) {
    const ModelFolder folder = opened(tiny_);
    const FolderFacts& facts = folder.facts;
    EXPECT_TRUE(facts.warnings.empty()) << facts.warnings.front();
    EXPECT_EQ(facts.n_layers, 2);
    EXPECT_EQ(facts.n_sparse_layers, 1);
    EXPECT_EQ(facts.n_experts_per_layer, 4);
    EXPECT_TRUE(facts.has_mtp);
    EXPECT_TRUE(facts.has_indexer);
    EXPECT_EQ(facts.kind, FolderKind::Float);
    ASSERT_EQ(facts.formats.size(), 1U);
    EXPECT_EQ(facts.formats[0].storage, Storage::BF16);
    EXPECT_EQ(facts.n_tensors, static_cast<std::int64_t>(tiny_.tensors().size()));
    EXPECT_EQ(facts.sizes.one_expert, 3 * 128 * 64 * 2);
    EXPECT_EQ(facts.sizes.routed_experts, 4 * facts.sizes.one_expert);
    EXPECT_EQ(facts.sizes.total, 2 * facts.n_parameters);
    EXPECT_EQ(facts.sizes.embedding_and_head + facts.sizes.attention + facts.sizes.indexer +
                  facts.sizes.dense_mlp + facts.sizes.shared_experts + facts.sizes.routed_experts +
                  facts.sizes.router_and_norms + facts.sizes.mtp,
              facts.sizes.total);
    EXPECT_EQ(folder.stop_ids, std::vector<std::int32_t>{256});
    EXPECT_EQ(folder.tokenizer->n_ids(), 257U);
    EXPECT_EQ(folder.identity.size(), 16U);
}

TEST_F(ModelFolderTest, StopIdsAreTheUnionOfThreeFiles) {
    tiny_.other_files["generation_config.json"] = R"({"eos_token_id": [256, 10, 999]})";
    tiny_.other_files["tokenizer_config.json"] =
        R"({"pad_token": "A", "eos_token": {"content": "B"}, "add_bos_token": true})";
    const ModelFolder folder = opened(tiny_);
    EXPECT_EQ(folder.stop_ids, (std::vector<std::int32_t>{256, 10, 'B'}));
    EXPECT_TRUE(mentions(folder.facts.warnings, "999"));
    ASSERT_EQ(folder.special_tokens.size(), 2U);
    EXPECT_EQ(folder.special_tokens[0].first, "pad_token");
    EXPECT_EQ(folder.special_tokens[1].second, "B");
}

TEST_F(ModelFolderTest, TheTemplateComesFromTheFirstPlaceThatHasOne) {
    tiny_.other_files["tokenizer_config.json"] =
        R"({"chat_template": [{"name": "tool_use", "template": "t"},)"
        R"({"name": "default", "template": "{{ messages[0].content }}"}]})";
    ModelFolder folder = opened(tiny_);
    EXPECT_EQ(folder.chat_template_text, "{{ messages[0].content }}");
    EXPECT_TRUE(folder.facts.has_chat_template);
    tiny_.other_files["chat_template.json"] = R"({"chat_template": "from json"})";
    EXPECT_EQ(opened(tiny_).chat_template_text, "from json");
    tiny_.other_files["chat_template.jinja"] = "from jinja";
    folder = opened(tiny_);
    EXPECT_EQ(folder.chat_template_text, "from jinja");
    EXPECT_EQ(folder.chat_template_origin, "chat_template.jinja");
}

TEST_F(ModelFolderTest, ABrokenTemplateIsNamedAndTheModelOpens) {
    tiny_.other_files["chat_template.jinja"] = "{% for m in messages %}";
    const ModelFolder folder = opened(tiny_);
    EXPECT_EQ(folder.chat_template, nullptr);
    EXPECT_TRUE(mentions(folder.facts.warnings, "chat_template.jinja"));
}

TEST_F(ModelFolderTest, ACopyHasTheSameIdentityAndAChangedOneHasAnother) {
    const std::string identity = opened(tiny_).identity;
    const fs::path copy = temporary_.path() / "copy";
    fs::copy(path(), copy);
    const Result<ModelFolder> again = open_model_folder(copy);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again->identity, identity);
    tiny_.other_files["README.md"] = "other files do not count";
    EXPECT_EQ(opened(tiny_).identity, identity);
    TinyFolder other = TinyFolder::make(2);
    EXPECT_NE(opened(other).identity, identity);
    tiny_.config = replaced(tiny_.config, "1e-05", "1e-06");
    EXPECT_NE(opened(tiny_).identity, identity);
}

TEST_F(ModelFolderTest, TensorNamesMayHaveAPrefix) {
    std::map<std::string, TinyTensor> renamed;
    for (auto& [name, tensor] : tiny_.tensors()) {
        renamed["language_model." + name] = std::move(tensor);
    }
    tiny_.tensors() = std::move(renamed);
    const ModelFolder folder = opened(tiny_);
    ASSERT_NE(folder.checkpoint, nullptr);
    EXPECT_TRUE(folder.checkpoint->matrix("lm_head.weight").ok());
}

std::vector<std::byte> joined(const std::vector<TinyTensor>& parts) {
    std::vector<std::byte> out;
    for (const TinyTensor& part : parts) {
        out.insert(out.end(), part.bytes.begin(), part.bytes.end());
    }
    return out;
}

TEST_F(ModelFolderTest, MergedExpertsGiveTheSameMatricesAsSeparateOnes) {
    const ModelFolder separate = opened(tiny_);
    TinyFolder merged = tiny_;
    std::vector<TinyTensor> gate_up;
    std::vector<TinyTensor> down;
    for (int expert = 0; expert < 4; ++expert) {
        const std::string name = "model.layers.1.mlp.experts." + std::to_string(expert) + ".";
        gate_up.push_back(tiny_.tensors()[name + "gate_proj.weight"]);
        gate_up.push_back(tiny_.tensors()[name + "up_proj.weight"]);
        down.push_back(tiny_.tensors()[name + "down_proj.weight"]);
        for (const char* projection : {"gate", "up", "down"}) {
            merged.tensors().erase(name + projection + "_proj.weight");
        }
    }
    merged.tensors()["model.layers.1.mlp.experts.gate_up_proj"] = {
        "BF16", {4, 256, 64}, joined(gate_up)};
    merged.tensors()["model.layers.1.mlp.experts.down_proj"] = {"BF16", {4, 64, 128}, joined(down)};
    TemporaryFolder other;
    merged.write(other.path());
    const Result<ModelFolder> folder = open_model_folder(other.path());
    ASSERT_TRUE(folder.ok()) << folder.error().text();
    for (std::int64_t expert = 0; expert < 4; ++expert) {
        for (const Projection projection : kProjections) {
            const TensorSource& a = separate.checkpoint->expert(1, expert, projection);
            const TensorSource& b = folder->checkpoint->expert(1, expert, projection);
            EXPECT_EQ(a.name, b.name);
            const auto wa = separate.checkpoint->read_weight(a, {WeightKind::Int4, 64});
            const auto wb = folder->checkpoint->read_weight(b, {WeightKind::Int4, 64});
            ASSERT_TRUE(wa.ok() && wb.ok());
            EXPECT_EQ(wa->payload, wb->payload) << a.name;
            EXPECT_EQ(wa->scales, wb->scales) << a.name;
        }
    }
}

TEST_F(ModelFolderTest, TiedEmbeddingsServeAsHead) {
    tiny_.config =
        replaced(tiny_.config, R"("tie_word_embeddings": false)", R"("tie_word_embeddings": true)");
    tiny_.tensors().erase("lm_head.weight");
    const ModelFolder folder = opened(tiny_);
    const auto head = folder.checkpoint->matrix("lm_head.weight");
    ASSERT_TRUE(head.ok());
    EXPECT_EQ(head->name, "model.embed_tokens.weight");
}

TEST_F(ModelFolderTest, MissingPiecesSwitchOffOnlyWhatNeedsThem) {
    TinyFolder no_mtp = tiny_;
    no_mtp.tensors().erase("model.layers.2.eh_proj.weight");
    ModelFolder folder = opened(no_mtp);
    EXPECT_FALSE(folder.facts.has_mtp);
    EXPECT_EQ(folder.facts.sizes.mtp, 0);
    EXPECT_TRUE(mentions(folder.facts.warnings, "model.layers.2.eh_proj.weight"));

    TinyFolder no_indexer = tiny_;
    for (const char* layer : {"0", "2"}) {
        for (const char* name :
             {"wq_b.weight", "wk.weight", "k_norm.weight", "k_norm.bias", "weights_proj.weight"}) {
            no_indexer.tensors().erase("model.layers." + std::string(layer) +
                                       ".self_attn.indexer." + name);
        }
    }
    folder = opened(no_indexer);
    EXPECT_FALSE(folder.facts.has_indexer);
    EXPECT_TRUE(folder.facts.has_mtp);
    EXPECT_FALSE(folder.checkpoint->mtp_has_indexer());

    no_indexer.tensors()["model.layers.0.self_attn.indexer.wk.weight"] =
        tiny_.tensors()["model.layers.0.self_attn.indexer.wk.weight"];
    EXPECT_NE(refusal(no_indexer).find("model.layers.0.self_attn.indexer.wq_b.weight"),
              std::string::npos);
}

TEST_F(ModelFolderTest, NamesMissingTensorsAndTheirCount) {
    tiny_.tensors().erase("model.layers.1.mlp.experts.2.up_proj.weight");
    tiny_.tensors().erase("model.norm.weight");
    const std::string text = refusal(tiny_);
    EXPECT_NE(text.find("2 tensors"), std::string::npos) << text;
    EXPECT_NE(text.find("model.norm.weight"), std::string::npos);
    EXPECT_NE(text.find("3 of 4 experts"), std::string::npos) << text;
}

TEST_F(ModelFolderTest, AnotherFamilyOfTheSameAttentionIsOneDescriptor) {
    // No indexer, other layer names: nothing else in the code knows the difference.
    Family other = *find_family("glm_moe_dsa");
    other.indexer = FamilyIndexer::None;
    other.names.layer_prefix = "model.blocks.";
    ModelConfig config = *parse_model_config(tiny_.config);
    config.index_topk = 0;
    config.indexer_types.clear();
    std::map<std::string, TinyTensor> renamed;
    for (auto& [name, tensor] : tiny_.tensors()) {
        if (name.find("indexer") == std::string::npos) {
            renamed[name.rfind("model.layers.", 0) == 0 ? "model.blocks." + name.substr(13)
                                                        : name] = std::move(tensor);
        }
    }
    tiny_.tensors() = std::move(renamed);
    tiny_.write(path());
    Result<ShardSet> shards = open_shards(path());
    ASSERT_TRUE(shards.ok());
    const Result<Checkpoint> checkpoint = Checkpoint::bind(std::move(*shards), config, other);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().text();
    EXPECT_TRUE(checkpoint->has_mtp());
    EXPECT_FALSE(checkpoint->has_indexer());
    EXPECT_TRUE(checkpoint->warnings().empty());
}

TEST_F(ModelFolderTest, Fp8WeightsNeedTheirBlockScales) {
    const std::string name = "model.layers.0.self_attn.o_proj.weight";
    TinyTensor& tensor = tiny_.tensors()[name];
    tensor.dtype = "F8_E4M3";
    tensor.bytes.assign(64 * 32, std::byte{0x38});
    EXPECT_NE(refusal(tiny_).find(name + "_scale_inv"), std::string::npos);
    tiny_.tensors()[name + "_scale_inv"] = tiny_f32({1, 1}, {0.5F});
    const ModelFolder folder = opened(tiny_);
    ASSERT_NE(folder.checkpoint, nullptr);
    const auto weight = folder.checkpoint->read_weight(*folder.checkpoint->matrix(name), {});
    ASSERT_TRUE(weight.ok());
    EXPECT_EQ(reinterpret_cast<const float*>(weight->matrix.payload)[0], 0.5F);
    tiny_.tensors()[name + "_scale_inv"] = tiny_f32({2, 1}, {0.5F, 1.0F});
    EXPECT_NE(refusal(tiny_).find(name + "_scale_inv"), std::string::npos);
}

TEST_F(ModelFolderTest, AFileCutAfterOpeningIsAReadErrorNotGarbage) {
    const ModelFolder folder = opened(tiny_);
    fs::resize_file(path() / "model.safetensors",
                    fs::file_size(path() / "model.safetensors") - 4096);
    int n_failed = 0;
    for (const TensorSource& source : folder.checkpoint->dense()) {
        n_failed += folder.checkpoint->read_weight(source, {}).ok() ? 0 : 1;
    }
    EXPECT_GT(n_failed, 0);
}

TEST_F(ModelFolderTest, FindsTheModelFromAFileAParentOrAHubCache) {
    tiny_.write(temporary_.path() / "a" / "b" / "m");
    const fs::path model = fs::canonical(temporary_.path() / "a" / "b" / "m");
    for (const fs::path& given : {model / "config.json", temporary_.path() / "a", model / "."}) {
        const auto found = find_model_folder(given);
        ASSERT_TRUE(found.ok()) << given << found.error().text();
        EXPECT_EQ(*found, model);
    }
    const fs::path cache = temporary_.path() / "models--x";
    tiny_.write(cache / "snapshots" / "old");
    tiny_.write(cache / "snapshots" / "new");
    EXPECT_EQ(find_model_folder(cache).error().code, ErrorCode::WrongUse);
    fs::create_directories(cache / "refs");
    std::ofstream(cache / "refs" / "main") << "new\n";
    const auto found = find_model_folder(cache);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(found->filename(), "new");
    std::ofstream(temporary_.path() / "x.gguf") << "GGUF";
    EXPECT_NE(find_model_folder(temporary_.path() / "x.gguf").error().text().find("safetensors"),
              std::string::npos);
}

}  // namespace
}  // namespace terrace
