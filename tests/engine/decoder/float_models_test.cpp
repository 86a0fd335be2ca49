// Float sessions against numbers that other programs computed: the same function, within rounding;
// and mistakes in it, made on purpose through config and weights, show.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/arrays.h"
#include "tests/support/model_copy.h"
#include "tests/support/models.h"
#include "tests/support/run_model.h"

namespace terrace::test {
namespace {

nlohmann::json json_of(const std::filesystem::path& file) {
    std::ifstream in(file);
    return nlohmann::json::parse(in, nullptr, false);
}

EngineConfig float_config(double latent_eps = 1e-5) {
    EngineConfig config = test_config();
    config.float_session = true;
    config.latent_eps = latent_eps;
    return config;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
    EXPECT_EQ(a.size(), b.size());
    double largest = a.size() == b.size() ? 0.0 : INFINITY;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
        const double d = std::abs(double{a[i]} - double{b[i]});
        largest = d <= largest ? largest : d;  // NaN counts as large
    }
    return largest;
}

std::vector<float> row(const Trace& trace, const char* name, std::int64_t index) {
    const auto bytes = row_of(trace.at(name), index);
    std::vector<float> out(bytes.size() / 4);
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
}

std::int32_t argmax(const std::vector<float>& x) {
    return static_cast<std::int32_t>(std::max_element(x.begin(), x.end()) - x.begin());
}

void expect_begins(const std::vector<float>& got, const std::vector<double>& want) {
    ASSERT_GE(got.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
        EXPECT_NEAR(got[i], want[i], 6e-6) << "number " << i;
    }
}

const Ids kTinyPrompt{3, 17, 8, 25, 1, 30, 12, 5};

/// A float trace of the tiny model of the documentation, with changes. Empty after a failure.
Trace tiny_trace(const nlohmann::json& edits = nlohmann::json::object(),
                 double latent_eps = 1e-5,
                 const std::string& zeroed = "") {
    ModelCopy copy(generated_model("tiny81"), edits);
    for (int layer = 1; layer < 5 && !zeroed.empty(); ++layer) {
        copy.edit_tensor("model.layers." + std::to_string(layer) + zeroed,
                         [](std::vector<float>& w) { std::fill(w.begin(), w.end(), 0.0f); });
    }
    const std::unique_ptr<Engine> engine = open_engine(copy.path(), float_config(latent_eps));
    return engine == nullptr ? Trace{} : trace(*engine, kTinyPrompt);
}

TEST(TinyModel, GivesThePublishedDigits) {
    TERRACE_NEEDS(generated_model("tiny81"));
    Trace got = tiny_trace();
    ASSERT_FALSE(got.empty());
    expect_begins(row(got, "logits", 7),
                  {0.27429,  0.64277,  -0.22108, 0.01767,  1.47751,  0.25463,  -0.21276, 0.4155,
                   -0.01812, 0.89584,  -0.92868, 2.7506,   -0.36047, 2.96464,  -0.65808, 2.77292,
                   -1.87783, 0.83888,  0.05246,  -0.40911, 0.57383,  -1.04468, -1.74676, -0.02007,
                   1.34401,  -1.45658, 0.11578,  2.35729,  -1.6801,  0.75963,  0.69966,  -0.4785});
    expect_begins(row(got, "logits", 3),
                  {-0.115857, 0.704756, 0.328698, 0.78947, -0.17412, 1.644474});
    expect_begins(row(got, "logits", 0),
                  {-0.440442, 0.697581, 0.195208, -0.283681, -0.3575, 0.803666});
    EXPECT_EQ(argmax(row(got, "logits", 7)), 13);
    EXPECT_EQ(argmax(row(got, "logits", 3)), 20);
    const std::vector<std::vector<double>> hidden{{0.821523, -0.201188, 0.001068, -0.849024},
                                                  {0.305145, -0.866814, 0.11499, -3.200934},
                                                  {-0.008766, -1.244442, 0.368482, -4.372691},
                                                  {-0.969012, 0.624629, 0.195367, -4.21748},
                                                  {-1.022704, -0.284207, 0.599055, -4.455511}};
    for (std::size_t i = 0; i < hidden.size(); ++i) {
        expect_begins(row(got, "hidden", static_cast<std::int64_t>(i) * 8 + 7), hidden[i]);
    }
    expect_begins(row(got, "final_norm", 7), {-0.472872, -0.166793, 0.296188, -2.219556});
}

TEST(TinyModel, SelectsThePublishedKeysAndExperts) {
    TERRACE_NEEDS(generated_model("tiny81"));
    Trace got = tiny_trace();
    ASSERT_FALSE(got.empty());
    const std::vector<std::vector<std::vector<int>>> selected{{{0, 1, 3}, {0, 1, 3}, {0, 2, 3}},
                                                              {{0, 2, 3}, {0, 1, 4}, {2, 3, 4}},
                                                              {{0, 1, 2}, {0, 1, 3}, {1, 2, 3}},
                                                              {{0, 3, 6}, {2, 3, 4}, {2, 3, 6}},
                                                              {{0, 2, 3}, {3, 4, 7}, {3, 6, 7}}};
    for (std::size_t p = 3; p < 8; ++p) {
        for (std::size_t layer = 0; layer < 3; ++layer) {
            std::vector<int> keys;
            const auto flags = row_of(got.at("selected"), static_cast<std::int64_t>(p),
                                      static_cast<std::int64_t>(layer));
            for (int t = 0; t < 8; ++t) {
                if (flags[static_cast<std::size_t>(t)] != std::byte{0}) {
                    keys.push_back(t);
                }
            }
            EXPECT_EQ(keys, selected[p - 3][layer]) << "position " << p << ", indexer " << layer;
        }
    }
    const std::vector<Ids> experts{{5, 4}, {0, 2}, {1, 0}};
    const Ids ids = ints(got.at("router_ids"));
    for (std::size_t layer = 0; layer < 3; ++layer) {
        const std::size_t at = (layer * 8 + 7) * 2;
        EXPECT_EQ((Ids{ids[at], ids[at + 1]}), experts[layer]);
    }
    expect_begins(row(got, "router_weights", 7), {0.734562, 1.765438});
}

TEST(TinyModel, DraftsThePublishedLogits) {
    TERRACE_NEEDS(generated_model("tiny81"));
    Trace got = tiny_trace();
    ASSERT_FALSE(got.empty());
    const std::vector<double> want{1.226622, 2.548462, 0.35513, 0.370177, 1.32465, 1.528322};
    expect_begins(row(got, "mtp_logits", 7), want);
    expect_begins(row(got, "mtp_chain_logits", 0), want);
    EXPECT_EQ(argmax(row(got, "mtp_chain_logits", 0)), 1);
}

/// The wrong answers that the documentation lists, by what was changed: each change does what it
/// says, and none of them is the model.
TEST(TinyModel, GivesThePublishedWrongAnswersWhenChanged) {
    TERRACE_NEEDS(generated_model("tiny81"));

    struct Mistake {
        const char* what;
        nlohmann::json edits;
        std::vector<double> logits;
        double latent_eps = 1e-5;
        std::string zeroed{};
    };

    const nlohmann::json none = nlohmann::json::object();
    const std::vector<Mistake> mistakes{
        {"indexer rope half-split",
         {{"indexer_rope_interleave", false}},
         {-0.06795, 0.554123, -0.487633}},
        {"attention rope half-split", {{"rope_interleave", false}}, {-0.126493, 0.056194, 0.20076}},
        {"both half-split",
         {{"rope_interleave", false}, {"indexer_rope_interleave", false}},
         {0.268771, 0.562994, 0.019277}},
        {"dense, no top-k", {{"index_topk", 8}}, {0.00388, 0.398735, -0.202996}},
        {"no correction bias",
         none,
         {-1.371482, -1.027262, -0.191856},
         1e-5,
         ".mlp.gate.e_score_correction_bias"},
        {"no renormalisation", {{"norm_topk_prob", false}}, {0.390673, 0.690304, 0.001906}},
        {"scale 1 instead of 2.5",
         {{"routed_scaling_factor", 1.0}},
         {-0.01375, 0.351241, -0.561699}},
        {"latent eps 1e-6", none, {0.274308, 0.642767, -0.221075}, 1e-6},
    };
    for (const Mistake& m : mistakes) {
        SCOPED_TRACE(m.what);
        const Trace got = tiny_trace(m.edits, m.latent_eps, m.zeroed);
        ASSERT_FALSE(got.empty());
        expect_begins(row(got, "logits", 7), m.logits);
    }
}

/// One folder of the reference models.
struct Reference {
    std::filesystem::path folder;
    nlohmann::json info;
    std::map<std::string, Array> arrays;
    Ids ids;
};

Reference reference(const std::string& name) {
    Reference r;
    r.folder = oracle("models/" + name);
    // Expected values of the merged folder are those of the model it was saved from.
    const std::filesystem::path golden = std::filesystem::exists(r.folder / "golden.safetensors")
                                             ? r.folder
                                             : oracle("models/glm-dsa-small");
    r.info = json_of(golden / "golden.json");
    r.arrays = read_arrays(golden / "golden.safetensors");
    r.ids = r.arrays["input_ids"].as<std::int32_t>();
    return r;
}

class ReferenceModel : public ::testing::TestWithParam<const char*> {};

TEST_P(ReferenceModel, ComputesTheSameFunction) {
    TERRACE_NEEDS(oracle("models/" + std::string(GetParam())));
    Reference r = reference(GetParam());
    const ModelCopy copy(r.folder);
    EngineConfig config = float_config();
    const std::unique_ptr<Engine> engine = open_engine(copy.path(), config);
    ASSERT_NE(engine, nullptr);
    Trace got = trace(*engine, r.ids);
    ASSERT_FALSE(got.empty());
    int n_compared = 0;
    for (const auto& [name, tolerance] : r.info["test"]["max_abs_difference_float32"].items()) {
        if (got.contains(name) && r.arrays.contains(name)) {
            ++n_compared;
            EXPECT_LE(largest_difference(floats(got[name]), r.arrays[name].as<float>()),
                      tolerance.get<double>())
                << name;
        }
    }
    EXPECT_GE(n_compared, 4);
    for (const char* name : {"router_ids", "selected"}) {
        EXPECT_EQ(got[name].bytes, r.arrays[name].bytes) << name;
    }
    if (got.contains("mtp_chain_logits") && r.arrays.contains("mtp_draft_ids")) {
        const double tolerance = r.info["test"]["max_abs_difference_float32"]["mtp_logits"];
        EXPECT_LE(largest_difference(floats(got["mtp_chain_logits"]),
                                     r.arrays["mtp_chain_logits"].as<float>()),
                  tolerance);
        Ids drafts;
        for (int k = 0; k < 3; ++k) {
            drafts.push_back(argmax(row(got, "mtp_chain_logits", k)));
        }
        EXPECT_EQ(drafts, r.arrays["mtp_draft_ids"].as<std::int32_t>());
    }
    if (r.arrays.contains("prefix_lengths")) {
        const Ids lengths = r.arrays["prefix_lengths"].as<std::int32_t>();
        const std::vector<float> want = r.arrays["prefix_logits"].as<float>();
        const std::size_t vocab = want.size() / lengths.size();
        for (std::size_t i = 0; i < lengths.size(); ++i) {
            const std::vector<float> one(
                want.begin() + static_cast<std::ptrdiff_t>(i * vocab),
                want.begin() + static_cast<std::ptrdiff_t>((i + 1) * vocab));
            EXPECT_LE(largest_difference(row(got, "logits", lengths[i] - 1), one),
                      r.info["test"]["max_abs_difference_float32"]["logits"].get<double>());
        }
    }
    const Ids greedy_ids = r.arrays["greedy_ids"].as<std::int32_t>();
    EXPECT_EQ(
        generate(*engine, request_for(r.ids, static_cast<std::int64_t>(greedy_ids.size()))).ids,
        greedy_ids);
}

INSTANTIATE_TEST_SUITE_P(All,
                         ReferenceModel,
                         ::testing::Values("glm-dsa-tiny",
                                           "glm-dsa-small",
                                           "glm-dsa-boundary",
                                           "glm-dsa-all-full",
                                           "glm-dsa-groups",
                                           "glm-dsa-fp8",
                                           "glm-dsa-merged",
                                           "glm-dsa-headdim",
                                           "glm-dsa-wide"),
                         [](const auto& model) {
                             std::string name = model.param;
                             std::erase(name, '-');
                             return name;
                         });

TEST(DemoModel, ComputesTheSameFunctionInAFloatSession) {
    TERRACE_NEEDS(oracle("demo/golden.safetensors"));
    TERRACE_NEEDS(oracle("../demo-model"));
    const nlohmann::json info = json_of(oracle("demo/golden.json"));
    auto want = read_arrays(oracle("demo/golden.safetensors"));
    const double logits_tolerance = info["max_abs_difference_float32"]["logits"];
    const double hidden_tolerance = info["max_abs_difference_float32"]["hidden"];
    EngineConfig config = float_config();
    config.draft_depth = 0;
    const std::unique_ptr<Engine> engine = open_engine(oracle("../demo-model"), config);
    ASSERT_NE(engine, nullptr);
    for (const nlohmann::json& prompt : info["prompts"]) {
        const std::string p = prompt["array_prefix"];
        SCOPED_TRACE(p);
        const Ids ids = want[p + "input_ids"].as<std::int32_t>();
        const auto n = static_cast<std::int64_t>(ids.size());
        Trace got = trace(*engine, ids, 512);
        EXPECT_LE(largest_difference(row(got, "logits", n - 1), want[p + "logits"].as<float>()),
                  logits_tolerance);
        std::vector<float> hidden;
        for (std::int64_t layer = 0; layer < 7; ++layer) {
            const std::vector<float> one = row(got, "hidden", layer * n + n - 1);
            hidden.insert(hidden.end(), one.begin(), one.end());
        }
        EXPECT_LE(largest_difference(hidden, want[p + "hidden"].as<float>()), hidden_tolerance);
        const Ids best = want[p + "argmax"].as<std::int32_t>();
        const std::vector<float> gaps = want[p + "argmax_gap"].as<float>();
        for (std::int64_t i = 0; i < n; ++i) {
            if (gaps[static_cast<std::size_t>(i)] > 2 * logits_tolerance) {
                EXPECT_EQ(argmax(row(got, "logits", i)), best[static_cast<std::size_t>(i)]);
            }
        }
        for (std::int64_t f = 0; f < 4; ++f) {
            const auto flags = row_of(got.at("selected"), n - 1, f);
            const auto& recorded = want[p + "selected_last"].bytes;
            EXPECT_TRUE(std::equal(flags.begin(), flags.end(), recorded.begin() + f * n))
                << "keys of the last token, indexer " << f;
        }
        Ids greedy_ids = want[p + "greedy_ids"].as<std::int32_t>();
        const std::vector<float> greedy_gaps = want[p + "greedy_gaps"].as<float>();
        std::size_t sure = 0;
        while (sure < greedy_gaps.size() && greedy_gaps[sure] > 2 * logits_tolerance) {
            ++sure;
        }
        greedy_ids.resize(sure);
        Ids answer = generate(*engine, request_for(ids, 48)).ids;
        answer.resize(sure);
        EXPECT_EQ(answer, greedy_ids);
    }
}

/// A mistake that config or weights can imitate, and a reference model that must notice it.
struct Mistake {
    const char* what;
    const char* model;
    nlohmann::json edits;
    std::string tensor{};  ///< changed in every layer that has it
    std::function<void(std::vector<float>&)> change{};
    double latent_eps = 1e-5;
};

double distance_of(const Mistake& m) {
    Reference r = reference(m.model);
    ModelCopy copy(r.folder, m.edits);
    if (m.change) {
        for (const auto& entry : std::filesystem::directory_iterator(copy.path())) {
            if (entry.path().extension() != ".safetensors") {
                continue;
            }
            for (const auto& [name, array] : read_arrays(entry.path())) {
                if (name.ends_with(m.tensor)) {
                    copy.edit_tensor(name, m.change);
                }
            }
            break;  // these models have one file
        }
    }
    EngineConfig config = float_config(m.latent_eps);
    const std::unique_ptr<Engine> engine = open_engine(copy.path(), config);
    if (engine == nullptr) {
        return 0.0;
    }
    Trace got = trace(*engine, r.ids);
    const double tolerance = r.info["test"]["max_abs_difference_float32"]["logits"];
    return largest_difference(floats(got["logits"]), r.arrays["logits"].as<float>()) / tolerance;
}

void to_zero(std::vector<float>& w) {
    std::fill(w.begin(), w.end(), 0.0f);
}

void to_bf16(std::vector<float>& w) {
    for (float& x : w) {
        const auto bits = std::bit_cast<std::uint32_t>(x);
        x = std::bit_cast<float>((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000u);
    }
}

TEST(ReferenceModels, NoticeEveryMistakeThatCanBeImitated) {
    TERRACE_NEEDS(oracle("models/glm-dsa-small"));
    const nlohmann::json none = nlohmann::json::object();
    const std::vector<Mistake> mistakes{
        {"attention rope half-split", "glm-dsa-small", {{"rope_interleave", false}}},
        {"indexer rope half-split", "glm-dsa-small", {{"indexer_rope_interleave", false}}},
        {"no renormalisation", "glm-dsa-small", {{"norm_topk_prob", false}}},
        {"renormalised where it should not be", "glm-dsa-wide", {{"norm_topk_prob", true}}},
        {"scale 1", "glm-dsa-small", {{"routed_scaling_factor", 1.0}}},
        {"no selection", "glm-dsa-boundary", {{"index_topk", 4096}}},
        {"index_topk one less", "glm-dsa-boundary", {{"index_topk", 63}}},
        {"index_topk one more", "glm-dsa-boundary", {{"index_topk", 65}}},
        {"no group limit", "glm-dsa-groups", {{"n_group", 1}, {"topk_group", 1}}},
        {"frequency 4, offset 3 assumed",
         "glm-dsa-all-full",
         {{"index_topk_freq", 4}, {"index_skip_topk_offset", 3}}},
        {"latent eps 1e-6", "glm-dsa-headdim", none, "", nullptr, 1e-6},
        {"no correction bias", "glm-dsa-small", none, "e_score_correction_bias", to_zero},
        {"correction bias in bf16", "glm-dsa-small", none, "e_score_correction_bias", to_bf16},
        {"no bias of the index key's norm", "glm-dsa-small", none, "k_norm.bias", to_zero},
        {"block scales in another order", "glm-dsa-fp8", none, "_scale_inv",
         [](std::vector<float>& w) { std::reverse(w.begin(), w.end()); }},
    };
    for (const Mistake& m : mistakes) {
        const double distance = distance_of(m);
        std::printf("%-45s %-18s %8.1f tolerances\n", m.what, m.model, distance);
        EXPECT_GT(distance, 1.0) << m.what << " does not show in " << m.model;
    }
}

TEST(ReferenceModels, AreRefusedWithAnIndexerPatternOfOtherLayers) {
    TERRACE_NEEDS(oracle("models/glm-dsa-headdim"));
    const ModelCopy copy(oracle("models/glm-dsa-headdim"), {{"indexer_types", nullptr}});
    const Result<ModelFolder> folder = open_model_folder(copy.path());
    ASSERT_FALSE(folder.ok()) << "the frequency rule describes other layers than the files have";
    EXPECT_NE(folder.error().text().find("indexer"), std::string::npos) << folder.error().text();
}

}  // namespace
}  // namespace terrace::test
