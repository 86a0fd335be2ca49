// Whole models against tests/data/contract/golden.json, recorded by an implementation that shares
// no code with the engine: every hash, on every kernel family of this machine.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "engine/cpu/cpu_context.h"
#include "tests/engine/device/contract_vectors.h"
#include "tests/support/model_copy.h"
#include "tests/support/models.h"
#include "tests/support/run_model.h"

namespace terrace::test {
namespace {

/// One model of golden.json, where its folder is here, and how it is opened.
struct GoldenCase {
    const char* name;   ///< in golden.json
    const char* label;  ///< in the test's name
    std::filesystem::path folder;
    bool float_session = false;
    std::optional<int> index_topk{};
};

const std::vector<GoldenCase>& golden_cases() {
    const std::filesystem::path original = oracle("../demo-model");
    static const std::vector<GoldenCase> cases{
        {"demo", "DemoContainer", demo_model()},
        {"demo", "DemoQuantisedWhileLoading", original},
        {"demo, float path", "DemoInFloat", original, true},
        {"demo, index_topk 1024 in config.json", "DemoWithBlocksOfKeys", demo_model(), false, 1024},
        {"small", "Small", generated_model("small")},
        {"small-mixed", "SmallWithMixedGroups", generated_model("small-mixed")},
        {"small, float path", "SmallInFloat", generated_model("small"), true},
        {"wide-tiny", "Wide", generated_model("wide")},
        {"wide-tiny, mixed container", "WideWithMixedGroups", generated_model("wide-mixed")},
    };
    return cases;
}

const nlohmann::json& golden_model(const std::string& name) {
    static const nlohmann::json golden = read_vectors("golden.json");
    for (const nlohmann::json& model : golden["models"]) {
        if (model["name"] == name) {
            return model;
        }
    }
    ADD_FAILURE() << "golden.json has no model " << name;
    static const nlohmann::json none;
    return none;
}

/// "0-3,7" as a row of flags.
std::vector<std::uint8_t> flags_of(const std::string& ranges, std::size_t n) {
    std::vector<std::uint8_t> row(n);
    std::stringstream parts(ranges);
    for (std::string part; std::getline(parts, part, ',');) {
        const std::size_t dash = part.find('-');
        const std::size_t first = std::stoul(part);
        const std::size_t last =
            dash == std::string::npos ? first : std::stoul(part.substr(dash + 1));
        for (std::size_t i = first; i <= last; ++i) {
            row.at(i) = 1;
        }
    }
    return row;
}

std::vector<float> floats_in(std::span<const std::byte> bytes) {
    std::vector<float> out(bytes.size() / 4);
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
}

Ids ids_in(std::span<const std::byte> bytes) {
    Ids out(bytes.size() / 4);
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
}

/// Everything golden.json says about one position of a trace.
void compare_row(const nlohmann::json& want, Trace& got, const ModelConfig& config) {
    const auto position = want["position"].get<std::int64_t>();
    SCOPED_TRACE("position " + std::to_string(position));
    std::int64_t sparse = 0;
    std::int64_t full = -1;
    for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
        SCOPED_TRACE("layer " + std::to_string(layer));
        const auto index = static_cast<std::size_t>(layer);
        EXPECT_EQ(hash_of(row_of(got["hidden"], position, layer + 1)), want["residual"][index]);
        full += config.owns_indexer(layer) ? 1 : 0;
        const auto selected = row_of(got["selected"], position, full);
        const auto flags = flags_of(want["selected"][index].get<std::string>(), selected.size());
        EXPECT_EQ(0, std::memcmp(selected.data(), flags.data(), flags.size())) << "selected keys";
        if (!config.is_sparse(layer)) {
            EXPECT_TRUE(want["experts"][index].empty());
            continue;
        }
        EXPECT_EQ(ids_in(row_of(got["router_ids"], position, sparse)),
                  want["experts"][index].get<Ids>());
        std::string gates;
        for (const nlohmann::json& gate : want["gates"][index]) {
            gates += gate.get<std::string>();
        }
        EXPECT_EQ(bits(floats_in(row_of(got["router_weights"], position, sparse))),
                  words_of(gates));
        ++sparse;
    }
    EXPECT_EQ(hash_of(row_of(got["final_norm"], position)), want["final_norm"]);
    EXPECT_EQ(hash_of(row_of(got["logits"], position)), want["logits"]);
}

SamplingSettings sampled_settings(const nlohmann::json& prompt) {
    SamplingSettings settings = sampled(prompt["sampled"]["seed"]);
    settings.top_p = 0.95;
    return settings;
}

/// The answer, its rounds of speculation, and the logits of all its positions.
void compare_answer(Engine& engine,
                    const Ids& prompt,
                    const nlohmann::json& want,
                    const SamplingSettings& sampling) {
    const Ids ids = want["ids"];
    const GenerateResult got =
        generate(engine, request_for(prompt, static_cast<std::int64_t>(ids.size()), sampling));
    EXPECT_EQ(got.ids, ids);
    EXPECT_EQ(got.stop_reason, StopReason::Length);
    // The recorded rounds go on behind the last token of a short answer.
    const std::size_t n_rounds = std::min(got.rounds.size(), want["mtp_rounds"].size());
    ASSERT_TRUE(n_rounds == want["mtp_rounds"].size() ||
                got.rounds.back().position + 4 >=
                    static_cast<std::int64_t>(prompt.size() + ids.size()))
        << n_rounds << " rounds";
    for (std::size_t i = 0; i < n_rounds; ++i) {
        SCOPED_TRACE("round " + std::to_string(i));
        const nlohmann::json& round = want["mtp_rounds"][i];
        EXPECT_EQ(got.rounds[i].position, round["position"]);
        // The recorded rounds always draft three; ours stop at the last token that is wanted.
        const Ids drafts = round["drafts"];
        const std::size_t n = got.rounds[i].drafts.size();
        ASSERT_LE(n, drafts.size());
        EXPECT_EQ(got.rounds[i].drafts,
                  Ids(drafts.begin(), drafts.begin() + static_cast<std::ptrdiff_t>(n)));
        EXPECT_EQ(got.rounds[i].accepted,
                  std::min(round["accepted"].get<std::int64_t>(), static_cast<std::int64_t>(n)));
    }
    Ids all = prompt;
    all.insert(all.end(), ids.begin(), ids.end() - 1);
    Trace whole = trace(engine, all, 64, sampling);
    EXPECT_EQ(hash_of(whole["logits"].bytes), want["logits_all"]);
}

/// Logits of the drafts: a trace that ends before the newest token of a round is that round.
void compare_draft_logits(Engine& engine,
                          const Ids& prompt,
                          const nlohmann::json& want,
                          const SamplingSettings& sampling) {
    Ids all = prompt;
    all.insert(all.end(), want["ids"].begin(), want["ids"].end());
    for (const nlohmann::json& round : want["mtp_rounds"]) {
        const auto position = round["position"].get<std::size_t>();
        SCOPED_TRACE("round at " + std::to_string(position));
        const std::span<const std::int32_t> before(all.data(), position);
        Trace got = trace(engine, before, 64, sampling);
        for (std::size_t k = 0; k < round["draft_logits"].size(); ++k) {
            EXPECT_EQ(hash_of(row_of(got["mtp_chain_logits"], static_cast<std::int64_t>(k))),
                      round["draft_logits"][k])
                << "draft " << k;
        }
    }
}

/// How much of golden.json is compared: the plain kernels are slow, so that the quick suite leaves
/// their longest prompts and most of their answers to the slow one.
enum class Extent : std::uint8_t { All, Quick };

void compare_prompt(Engine& engine, const nlohmann::json& want, Extent extent) {
    const Ids ids = want["ids"];
    if (extent == Extent::Quick && ids.size() > 40) {
        return;
    }
    SCOPED_TRACE("prompt of " + std::to_string(ids.size()));
    const auto n = static_cast<std::int64_t>(ids.size());
    Trace got = trace(engine, ids);
    ASSERT_FALSE(got.empty());
    EXPECT_EQ(hash_of(got["logits"].bytes), want["logits_all"]);
    const ModelConfig& config = engine.decoder().config();
    compare_row(want["last_row"], got, config);
    if (want.contains("row_3")) {
        compare_row(want["row_3"], got, config);
    }
    const nlohmann::json& mtp = want["mtp_last_row"];
    EXPECT_EQ(hash_of(row_of(got["mtp_logits"], n - 1)), mtp["logits"]);
    EXPECT_EQ(hash_of(row_of(got["mtp_chain_logits"], 0)), mtp["logits"]);
    EXPECT_EQ(hash_of(row_of(got["mtp_chain_logits"], 1)), mtp["second_step_logits"]);
    const SamplingSettings at_one = sampled_settings(want);
    compare_answer(engine, ids, want["greedy"], greedy());
    if (extent == Extent::Quick) {
        return;
    }
    compare_answer(engine, ids, want["sampled"], at_one);
    if (ids.size() <= 40) {
        compare_draft_logits(engine, ids, want["greedy"], greedy());
        compare_draft_logits(engine, ids, want["sampled"], at_one);
    }
}

#ifdef TERRACE_SLOW_SUITE
constexpr bool kSlowSuite = true;
#else
constexpr bool kSlowSuite = false;
#endif

using GoldenParam = std::tuple<std::size_t, cpu::Isa>;

class ContractModels : public ::testing::TestWithParam<GoldenParam> {};

TEST_P(ContractModels, GiveEveryRecordedHash) {
    const GoldenCase& c = golden_cases()[std::get<0>(GetParam())];
    TERRACE_NEEDS(c.folder);
    const nlohmann::json edits =
        c.index_topk ? nlohmann::json{{"index_topk", *c.index_topk}} : nlohmann::json::object();
    const ModelCopy copy(c.folder, edits);
    EngineConfig config = test_config();
    config.isa = cpu::to_string(std::get<1>(GetParam()));
    config.float_session = c.float_session;
    config.draft_depth = 3;
    const std::unique_ptr<Engine> engine = open_engine(copy.path(), config);
    ASSERT_NE(engine, nullptr);
    const nlohmann::json& model = golden_model(c.name);
    ASSERT_FALSE(model["prompts"].empty());
    const bool plain = std::get<1>(GetParam()) == cpu::Isa::Scalar;
    for (const nlohmann::json& prompt : model["prompts"]) {
        compare_prompt(*engine, prompt, plain && !kSlowSuite ? Extent::Quick : Extent::All);
    }
}

std::string name_of(const ::testing::TestParamInfo<GoldenParam>& info) {
    std::string isa = cpu::to_string(std::get<1>(info.param));
    isa[0] = static_cast<char>(isa[0] - 'a' + 'A');
    return golden_cases()[std::get<0>(info.param)].label + std::string("On") + isa;
}

INSTANTIATE_TEST_SUITE_P(AllFamilies,
                         ContractModels,
                         ::testing::Combine(::testing::Range<std::size_t>(0, golden_cases().size()),
                                            ::testing::ValuesIn(cpu::available_isas())),
                         name_of);

}  // namespace
}  // namespace terrace::test
