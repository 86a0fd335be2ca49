#include "engine/model/model_config.h"

#include <gtest/gtest.h>

#include "tests/engine/model/tiny_folder.h"

namespace terrace {
namespace {

ModelConfig parsed(const std::string& text) {
    Result<ModelConfig> config = parse_model_config(text);
    EXPECT_TRUE(config.ok()) << (config ? "" : config.error().text());
    return config ? *config : ModelConfig{};
}

std::string refusal(const std::string& text) {
    const Result<ModelConfig> config = parse_model_config(text);
    EXPECT_FALSE(config.ok());
    return config ? "" : config.error().text();
}

/// The tiny config with another number of layers and without the lists of one entry a layer.
std::string many_layers(int layers) {
    std::string text = replaced(tiny_config(), R"("num_hidden_layers": 2)",
                                R"("num_hidden_layers": )" + std::to_string(layers));
    text = replaced(text, R"("mlp_layer_types": ["dense", "sparse"], )", "");
    return replaced(text, R"("indexer_types": ["full", "shared"], )", "");
}

std::vector<std::int64_t> full_layers(const ModelConfig& config) {
    std::vector<std::int64_t> layers;
    for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
        if (config.owns_indexer(layer)) {
            layers.push_back(layer);
        }
    }
    return layers;
}

TEST(ModelConfigTest, ReadsEveryFieldOfTheTinyModel) {
    const ModelConfig c = parsed(tiny_config());
    EXPECT_EQ(c.vocab_size, 260);
    EXPECT_EQ(c.hidden_size, 64);
    EXPECT_EQ(c.n_layers_stored(), 3);
    EXPECT_EQ(c.qk_head_dim(), 24);
    EXPECT_EQ(c.v_head_dim, 16);
    EXPECT_FALSE(c.is_sparse(0));
    EXPECT_TRUE(c.is_sparse(1));
    EXPECT_TRUE(c.is_sparse(2));
    EXPECT_TRUE(c.owns_indexer(0));
    EXPECT_FALSE(c.owns_indexer(1));
    EXPECT_TRUE(c.owns_indexer(2));
    EXPECT_EQ(c.rms_norm_eps, 1e-05);
    EXPECT_EQ(c.routed_scaling_factor, 2.5);
    EXPECT_EQ(c.rope_parameters.rope_theta, 10000.0);
    EXPECT_EQ(c.eos_token_id, std::vector<std::int64_t>{256});
    EXPECT_TRUE(c.index_share_for_mtp_iteration);
    EXPECT_TRUE(c.warnings.empty());
}

TEST(ModelConfigTest, TakesRopeThetaFromTheTopLevelOfOlderFiles) {
    const std::string text = replaced(
        tiny_config(), R"("rope_parameters": {"rope_theta": 10000, "rope_type": "default"})",
        R"("rope_theta": 8000000, "rope_parameters": null)");
    EXPECT_EQ(parsed(text).rope_parameters.rope_theta, 8e6);
}

TEST(ModelConfigTest, ReadsYarnFromRopeScalingOfOlderFiles) {
    const std::string text = replaced(
        tiny_config(), R"("rope_parameters": {"rope_theta": 10000, "rope_type": "default"})",
        R"("rope_theta": 50000, "rope_scaling": {"type": "yarn", "factor": 40,
           "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1,
           "mscale": 1.0, "mscale_all_dim": 1.0})");
    const RopeParameters rope = parsed(text).rope_parameters;
    EXPECT_EQ(rope.rope_type, RopeType::Yarn);
    EXPECT_EQ(rope.rope_theta, 50000.0);
    EXPECT_EQ(rope.factor, 40.0);
    EXPECT_EQ(rope.original_max_position_embeddings, 4096);
    EXPECT_EQ(rope.mscale_all_dim, 1.0);
}

TEST(ModelConfigTest, WithoutALayerListTheFirstLayersAreDense) {
    const ModelConfig c = parsed(many_layers(5));
    EXPECT_FALSE(c.is_sparse(0));
    for (int layer = 1; layer < 5; ++layer) {
        EXPECT_TRUE(c.is_sparse(layer)) << layer;
    }
}

TEST(ModelConfigTest, WithoutAnyIndexerKeyEveryLayerIsFull) {
    EXPECT_EQ(full_layers(parsed(many_layers(4))).size(), 4U);
}

TEST(ModelConfigTest, FrequencyAndOffsetGiveTheScheduleOfGlm52) {
    const std::string text =
        replaced(many_layers(78), R"("index_topk": 16)",
                 R"("index_topk": 16, "index_topk_freq": 4, "index_skip_topk_offset": 3)");
    const std::vector<std::int64_t> expected = {0,  1,  2,  6,  10, 14, 18, 22, 26, 30, 34,
                                                38, 42, 46, 50, 54, 58, 62, 66, 70, 74};
    EXPECT_EQ(full_layers(parsed(text)), expected);
}

TEST(ModelConfigTest, APatternGoesBeforeTheFrequency) {
    const std::string text =
        replaced(many_layers(4), R"("index_topk": 16)",
                 R"("index_topk": 16, "index_topk_freq": 4, "index_topk_pattern": "FSFS")");
    EXPECT_EQ(full_layers(parsed(text)), (std::vector<std::int64_t>{0, 2}));
}

TEST(ModelConfigTest, NumExpertsIsAnotherNameOfRoutedExperts) {
    EXPECT_EQ(parsed(replaced(tiny_config(), "n_routed_experts", "num_experts")).n_routed_experts,
              4);
}

TEST(ModelConfigTest, AnAbsentScoringFuncMeansSigmoid) {
    const std::string text = replaced(tiny_config(), R"("scoring_func": "sigmoid", )", "");
    EXPECT_EQ(parsed(text).scoring_func, ScoringFunc::Sigmoid);
    EXPECT_NE(refusal(replaced(tiny_config(), "sigmoid", "softmax")).find("scoring_func"),
              std::string::npos);
}

TEST(ModelConfigTest, TakesSettingsUnderTextConfig) {
    const ModelConfig c =
        parsed(R"({"architectures": ["X"], "text_config": )" + tiny_config() + "}");
    EXPECT_EQ(c.hidden_size, 64);
}

TEST(ModelConfigTest, ToleratesAByteOrderMark) {
    EXPECT_EQ(parsed("\xEF\xBB\xBF" + tiny_config()).hidden_size, 64);
}

TEST(ModelConfigTest, EosMayBeOneIdAndWhatIsNoIdIsNamed) {
    EXPECT_EQ(parsed(replaced(tiny_config(), "[256]", "256")).eos_token_id,
              std::vector<std::int64_t>{256});
    const ModelConfig odd = parsed(replaced(tiny_config(), "[256]", R"([256, "end", -1])"));
    EXPECT_EQ(odd.eos_token_id, std::vector<std::int64_t>{256});
    ASSERT_EQ(odd.warnings.size(), 2U);
    EXPECT_NE(odd.warnings[0].find("eos_token_id"), std::string::npos);
}

TEST(ModelConfigTest, AcceptsFp8InBlocksAndRefusesOtherQuantisation) {
    const std::string fp8 = replaced(
        tiny_config(), "{",
        R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},)");
    EXPECT_EQ(parsed(fp8).quant_method, QuantMethod::Fp8Blocks);
    EXPECT_NE(refusal(replaced(fp8, "\"fp8\"", "\"aqlm\"")).find("aqlm"), std::string::npos);
    EXPECT_NE(refusal(replaced(fp8, "[128, 128]", "[64, 64]")).find("weight_block_size"),
              std::string::npos);
}

TEST(ModelConfigTest, RefusesAnUnknownFamilyAndListsTheKnownOnes) {
    const Result<ModelConfig> config =
        parse_model_config(replaced(tiny_config(), "glm_moe_dsa", "mamba9"));
    ASSERT_FALSE(config.ok());
    EXPECT_EQ(config.error().code, ErrorCode::Unsupported);
    EXPECT_NE(config.error().text().find("mamba9"), std::string::npos);
    EXPECT_NE(config.error().text().find("glm_moe_dsa"), std::string::npos);
}

TEST(ModelConfigTest, RefusesWhatItCannotCompute) {
    EXPECT_NE(
        refusal(replaced(tiny_config(), R"("attention_bias": false)", R"("attention_bias": true)"))
            .find("attention_bias"),
        std::string::npos);
    EXPECT_NE(refusal(replaced(tiny_config(), "\"silu\"", "\"gelu\"")).find("hidden_act"),
              std::string::npos);
    EXPECT_NE(refusal(replaced(tiny_config(), "noaux_tc", "greedy")).find("topk_method"),
              std::string::npos);
    EXPECT_NE(refusal(replaced(tiny_config(), R"("index_head_dim": 16)", R"("index_head_dim": 4)"))
                  .find("index_head_dim"),
              std::string::npos);
}

TEST(ModelConfigTest, RefusesMoreExpertsThanItWouldEverCount) {
    const std::string text =
        replaced(many_layers(900), R"("n_routed_experts": 4,)", R"("n_routed_experts": 4000,)");
    EXPECT_NE(refusal(text).find("n_routed_experts"), std::string::npos);
}

TEST(ModelConfigTest, QuotesThePlaceWhereJsonBreaksOff) {
    EXPECT_NE(refusal(replaced(tiny_config(), "1e-05", "NaN")).find("rms_norm_eps"),
              std::string::npos);
}

TEST(GenerationConfigTest, ReadsSamplingDefaults) {
    const Result<GenerationConfig> c = parse_generation_config(
        R"({"do_sample": true, "temperature": 0.4, "top_p": 0.9, "top_k": 20, "min_p": 0.05,
            "repetition_penalty": 1.1, "eos_token_id": [1, 2]})");
    ASSERT_TRUE(c.ok());
    EXPECT_EQ(c->do_sample, true);
    EXPECT_EQ(c->temperature, 0.4);
    EXPECT_EQ(c->top_p, 0.9);
    EXPECT_EQ(c->top_k, 20);
    EXPECT_EQ(c->min_p, 0.05);
    EXPECT_EQ(c->repetition_penalty, 1.1);
    EXPECT_EQ(c->eos_token_id, (std::vector<std::int64_t>{1, 2}));
}

TEST(GenerationConfigTest, LeavesOutWhatIsOutOfRangeAndSaysSo) {
    const Result<GenerationConfig> c =
        parse_generation_config(R"({"temperature": -1, "top_p": 2, "top_k": "many"})");
    ASSERT_TRUE(c.ok());
    EXPECT_FALSE(c->temperature || c->top_p || c->top_k);
    EXPECT_EQ(c->warnings.size(), 3U);
    EXPECT_FALSE(parse_generation_config("[1]").ok());
}

}  // namespace
}  // namespace terrace
