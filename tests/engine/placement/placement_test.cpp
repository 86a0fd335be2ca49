// The answer must not depend on kernels, threads, chunks, expert slots or speculation
// (docs/arithmetic.md 7): every pair of choices in the quick suite, every combination in the slow
// one; and a failing disk may end an answer, but never change it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "app/core/synthetic_model.h"
#include "engine/cpu/cpu_context.h"
#include "tests/support/model_copy.h"
#include "tests/support/models.h"
#include "tests/support/run_model.h"

namespace terrace::test {
namespace {

#ifdef TERRACE_SLOW_SUITE
constexpr bool kSlowSuite = true;
#else
constexpr bool kSlowSuite = false;
#endif

/// One choice of each factor, by index: isa, threads, chunk, slots, drafts, sampling.
using Placement = std::array<int, 6>;

struct Factors {
    std::vector<cpu::Isa> isas = cpu::available_isas();
    std::vector<int> threads{1, 2, 3};
    std::vector<int> chunks{1, 7, 64, 4096};
    std::vector<int> slots{2, 5, 0};
    std::vector<int> drafts{0, 1, 3};
    std::vector<double> temperatures{0.0, 1.0};

    [[nodiscard]] Placement sizes() const {
        const auto n = [](const auto& list) { return static_cast<int>(list.size()); };
        return {n(isas), n(threads), n(chunks), n(slots), n(drafts), n(temperatures)};
    }
};

std::vector<Placement> every_placement(const Placement& sizes) {
    std::vector<Placement> all{Placement{}};
    for (std::size_t f = 0; f < sizes.size(); ++f) {
        std::vector<Placement> more;
        for (const Placement& p : all) {
            for (int i = 0; i < sizes[f]; ++i) {
                more.push_back(p);
                more.back()[f] = i;
            }
        }
        all = std::move(more);
    }
    return all;
}

std::vector<std::array<int, 4>> pairs_in(const Placement& p) {
    std::vector<std::array<int, 4>> pairs;
    for (int a = 0; a < 6; ++a) {
        for (int b = a + 1; b < 6; ++b) {
            pairs.push_back({a, p[static_cast<std::size_t>(a)], b, p[static_cast<std::size_t>(b)]});
        }
    }
    return pairs;
}

/// A few placements in which every pair of choices stands together at least once.
std::vector<Placement> pairwise_placements(const Placement& sizes) {
    const std::vector<Placement> all = every_placement(sizes);
    std::vector<std::array<int, 4>> open;
    for (const Placement& p : all) {
        for (const auto& pair : pairs_in(p)) {
            open.push_back(pair);
        }
    }
    std::sort(open.begin(), open.end());
    open.erase(std::unique(open.begin(), open.end()), open.end());
    std::vector<Placement> chosen;
    while (!open.empty()) {
        const auto covered = [&](const Placement& p) {
            const auto pairs = pairs_in(p);
            return std::count_if(pairs.begin(), pairs.end(), [&](const auto& pair) {
                return std::binary_search(open.begin(), open.end(), pair);
            });
        };
        const Placement best = *std::max_element(
            all.begin(), all.end(),
            [&](const Placement& a, const Placement& b) { return covered(a) < covered(b); });
        chosen.push_back(best);
        for (const auto& pair : pairs_in(best)) {
            std::erase(open, pair);
        }
    }
    return chosen;
}

EngineConfig config_of(const Factors& f, const Placement& p) {
    const auto at = [&p](const auto& list, std::size_t factor) {
        return list[static_cast<std::size_t>(p[factor])];
    };
    EngineConfig config;
    config.isa = cpu::to_string(at(f.isas, 0));
    config.threads = at(f.threads, 1);
    config.chunk_rows = at(f.chunks, 2);
    config.slots = at(f.slots, 3);
    config.draft_depth = at(f.drafts, 4);
    return config;
}

/// Runs all placements; the first of each temperature is what the others are compared with.
void expect_one_answer(const std::filesystem::path& model,
                       const Ids& prompt,
                       std::int64_t n_tokens,
                       const Factors& factors) {
    const std::vector<Placement> placements =
        kSlowSuite ? every_placement(factors.sizes()) : pairwise_placements(factors.sizes());
    ASSERT_GE(placements.size(), 6u);
    std::array<std::optional<GenerateResult>, 2> reference;
    for (const Placement& p : placements) {
        const EngineConfig config = config_of(factors, p);
        SCOPED_TRACE(config.isa + ", threads " + std::to_string(config.threads) + ", chunk " +
                     std::to_string(config.chunk_rows) + ", slots " +
                     std::to_string(*config.slots) + ", drafts " +
                     std::to_string(*config.draft_depth) + ", sampling " + std::to_string(p[5]));
        const std::unique_ptr<Engine> engine = open_engine(model, config);
        ASSERT_NE(engine, nullptr);
        const GenerateResult got = generate(
            *engine, request_for(prompt, n_tokens, p[5] == 0 ? greedy() : sampled(1234567)));
        auto& want = reference[static_cast<std::size_t>(p[5])];
        if (!want) {
            want = got;
            ASSERT_EQ(static_cast<std::int64_t>(got.ids.size()), n_tokens);
        }
        ASSERT_EQ(got.ids, want->ids);
        ASSERT_EQ(got.logits_hash, want->logits_hash);
    }
}

TEST(Placement, DoesNotChangeTheWideModel) {
    TERRACE_NEEDS(generated_model("wide-mixed"));
    const ModelCopy copy(generated_model("wide-mixed"));
    expect_one_answer(copy.path(), random_ids(12, 96, 11), 6, {});
}

TEST(Placement, DoesNotChangeTheSmallModel) {
    TERRACE_NEEDS(generated_model("small"));
    const ModelCopy copy(generated_model("small"));
    expect_one_answer(copy.path(), random_ids(70, 64, 12), 12, {});
}

TEST(Placement, DoesNotChangeTheDemoModel) {
    expect_one_answer(demo_model(), random_ids(kSlowSuite ? 70 : 20, 2048, 13), 8, {});
}

TEST(Placement, DoesNotChangeAttentionOverBlocksOfKeys) {
    const ModelCopy copy(demo_model(), {{"index_topk", 1024}});
    Factors factors;
    factors.chunks = {7, 64, 4096};
    if (!kSlowSuite) {  // 640 rows take a while, of plain kernels above all
        factors.isas.erase(factors.isas.begin(), factors.isas.end() - 1);
        factors.threads = {1, 2};
        factors.slots = {5, 0};
        factors.drafts = {0, 3};
    }
    expect_one_answer(copy.path(), random_ids(640, 2048, 14), 6, factors);
}

app::SyntheticSpec drawn_spec(std::mt19937_64& random) {
    const auto between = [&random](std::int64_t low, std::int64_t high) {
        return low +
               static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
    };
    app::SyntheticSpec spec;
    spec.hidden_size = between(33, 300);
    spec.num_hidden_layers = between(2, 4);
    spec.first_k_dense_replace = between(0, 1);
    spec.num_attention_heads = between(1, 5);
    spec.q_lora_rank = between(17, 150);
    spec.kv_lora_rank = between(17, 150);
    spec.qk_nope_head_dim = between(5, 40);
    spec.qk_rope_head_dim = 2 * between(2, 12);
    spec.v_head_dim = between(5, 40);
    spec.intermediate_size = between(33, 300);
    spec.moe_intermediate_size = between(17, 150);
    spec.n_routed_experts = between(6, 20);
    spec.num_experts_per_tok = between(1, 5);
    spec.vocab_size = between(400, 700);
    spec.index_n_heads = between(1, 5);
    spec.index_head_dim = spec.qk_rope_head_dim + between(1, 40);
    spec.index_topk = between(3, 40);
    spec.index_topk_freq = between(1, 2);
    spec.seed = std::to_string(random());
    return spec;
}

TEST(Placement, DoesNotChangeAModelDrawnJustNow) {
    const std::uint64_t seed = std::random_device{}();
    std::printf("shapes and weights drawn from seed %llu\n", static_cast<unsigned long long>(seed));
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const app::SyntheticSpec spec = drawn_spec(random);
    const TempFolder folder;
    const Status written = app::writeSyntheticModel(spec, folder / "model", nullptr, {});
    ASSERT_TRUE(written.ok()) << written.error().text();
    expect_one_answer(folder / "model",
                      random_ids(60, spec.vocab_size, static_cast<std::uint32_t>(seed)), 10, {});
}

TEST(DiskFault, EndsAnAnswerOrDoesNotShow) {
    const TempFolder folder;
    const app::SyntheticSpec spec = app::syntheticPreset("tiny").value_or(app::SyntheticSpec{});
    ASSERT_TRUE(app::writeSyntheticModel(spec, folder / "model", nullptr, {}).ok());
    const GenerateRequest request = request_for(random_ids(20, spec.vocab_size, 15), 8);
    EngineConfig config = test_config();
    config.slots = 4;
    const auto answer = [&](Result<GenerateResult>& got) {
        const std::unique_ptr<Engine> engine = open_engine(folder / "model", config);
        if (engine != nullptr) {
            got = engine->session().generate(request, nullptr, {});
        }
    };
    Result<GenerateResult> want = Error{};
    answer(want);
    ASSERT_TRUE(want.ok()) << want.error().text();
    int n_equal = 0;
    for (const std::string fault : {"error", "short"}) {
        for (int n = 1; n <= 40; ++n) {
            SCOPED_TRACE(fault + " at read " + std::to_string(n));
            config.inject = {"disk.read:" + fault + "@" + std::to_string(n)};
            Result<GenerateResult> got = Error{};
            answer(got);
            if (got.ok()) {
                ++n_equal;
                EXPECT_EQ(got->ids, want->ids);
                EXPECT_EQ(got->logits_hash, want->logits_hash);
            } else {
                EXPECT_EQ(got.error().code, ErrorCode::Io) << got.error().text();
                EXPECT_FALSE(got.error().message.empty());
            }
        }
    }
    std::printf("%d of 80 faults were repaired\n", n_equal);
    EXPECT_GE(n_equal, 40) << "a short read is always read again";
}

TEST(DiskFault, OfEveryReadEndsTheAnswerWithAnError) {
    const TempFolder folder;
    const app::SyntheticSpec spec = app::syntheticPreset("tiny").value_or(app::SyntheticSpec{});
    ASSERT_TRUE(app::writeSyntheticModel(spec, folder / "model", nullptr, {}).ok());
    EngineConfig config = test_config();
    config.slots = 4;
    std::string all = "disk.read:error@1";
    for (int n = 2; n <= 2000; ++n) {
        all += ",error@" + std::to_string(n);
    }
    config.inject = {all};
    const std::unique_ptr<Engine> engine = open_engine(folder / "model", config);
    ASSERT_NE(engine, nullptr);
    const GenerateRequest request = request_for(random_ids(20, spec.vocab_size, 15), 8);
    const auto got = engine->session().generate(request, nullptr, {});
    ASSERT_FALSE(got.ok());
    EXPECT_TRUE(got.error().code == ErrorCode::Io || got.error().code == ErrorCode::Unreadable)
        << got.error().text();
    EXPECT_FALSE(got.error().message.empty());
}

}  // namespace
}  // namespace terrace::test
