// One answer after the other on real weights: nothing that happened before, and no way of computing
// it, may change an answer.
#include "engine/generate/session.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <thread>

#include "app/core/prompt.h"
#include "engine/cpu/cpu_context.h"
#include "tests/support/model_copy.h"
#include "tests/support/models.h"
#include "tests/support/run_model.h"

namespace terrace::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int32_t kSmallVocab = 64;

std::string hash_text(std::uint64_t hash) {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
    return text;
}

struct SmallModel {
    ModelCopy copy{generated_model("small")};

    [[nodiscard]] std::unique_ptr<Engine> open(int draft_depth = 3) const {
        EngineConfig config = test_config();
        config.draft_depth = draft_depth;
        return open_engine(copy.path(), config);
    }
};

void expect_equal(const GenerateResult& got, const GenerateResult& want) {
    EXPECT_EQ(got.ids, want.ids);
    EXPECT_EQ(got.logits_hash, want.logits_hash);
    EXPECT_EQ(got.text, want.text);
}

TEST(Logits, AgreeWithThePlainKernelsAtEveryLengthAndBatch) {
    TERRACE_NEEDS(generated_model("small"));
    const SmallModel model;
    const Ids ids = random_ids(513, kSmallVocab, 7);
    EngineConfig config = test_config();
    config.isa = "scalar";
    config.draft_depth = 0;
    const std::unique_ptr<Engine> plain = open_engine(model.copy.path(), config);
    ASSERT_NE(plain, nullptr);
    Trace reference = trace(*plain, ids, 128);
    config.isa = "auto";
    for (const std::int64_t batch : {1, 2, 3, 4, 8}) {
        config.chunk_rows = batch;
        const std::unique_ptr<Engine> engine = open_engine(model.copy.path(), config);
        ASSERT_NE(engine, nullptr);
        ASSERT_EQ(engine->plan().chunk_rows, batch);
        for (const std::int64_t n :
             {1, 2, 7, 8, 9, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513}) {
            engine->session().reset();
            const GenerateResult got =
                generate(*engine, request_for(Ids(ids.begin(), ids.begin() + n), 1));
            EXPECT_EQ(hash_text(got.logits_hash), hash_of(row_of(reference["logits"], n - 1)))
                << n << " tokens, batch " << batch;
        }
    }
}

TEST(Session, AnswersTheSecondPromptAsAFreshOne) {
    TERRACE_NEEDS(generated_model("small"));
    const SmallModel model;
    const GenerateRequest a = request_for(random_ids(50, kSmallVocab, 1), 30, sampled(4));
    const GenerateRequest b = request_for(random_ids(44, kSmallVocab, 2), 30, sampled(5));
    const std::unique_ptr<Engine> fresh = model.open();
    const std::unique_ptr<Engine> used = model.open();
    ASSERT_TRUE(fresh != nullptr && used != nullptr);
    const GenerateResult want = generate(*fresh, b);
    static_cast<void>(generate(*used, a));
    expect_equal(generate(*used, b), want);
}

TEST(Session, ReusesTheRowsOfACommonBeginningBitForBit) {
    TERRACE_NEEDS(generated_model("small"));
    const SmallModel model;
    for (const int depth : {0, 3}) {
        const std::unique_ptr<Engine> engine = model.open(depth);
        ASSERT_NE(engine, nullptr);
        Ids prompt = random_ids(50, kSmallVocab, 1);
        const GenerateResult first = generate(*engine, request_for(prompt, 20));
        EXPECT_EQ(first.reused_tokens, 0);
        prompt.insert(prompt.end(), first.ids.begin(), first.ids.end());
        const Ids more = random_ids(9, kSmallVocab, 3);
        prompt.insert(prompt.end(), more.begin(), more.end());
        const GenerateResult second = generate(*engine, request_for(prompt, 20));
        EXPECT_GE(second.reused_tokens, 50 + 20 - 8) << "a second turn pays for its own tokens";
        prompt[30] = (prompt[30] + 1) % kSmallVocab;  // another system prompt
        const GenerateResult third = generate(*engine, request_for(prompt, 20));
        EXPECT_LE(third.reused_tokens, 30);
        EXPECT_GE(third.reused_tokens, 28);
        engine->session().reset();
        expect_equal(third, generate(*engine, request_for(prompt, 20)));
        prompt[30] = (prompt[30] + kSmallVocab - 1) % kSmallVocab;
        engine->session().reset();
        expect_equal(second, generate(*engine, request_for(prompt, 20)));
    }
}

/// Asks for a stop after some tokens of the answer, or after some rows of the prompt.
struct Stopper final : GenerateObserver {
    std::stop_source source;
    int tokens_left = -1;
    bool in_prefill = false;
    int n_tokens = 0;

    void prefill_progress(std::int64_t /*done*/, std::int64_t /*total*/) override {
        if (in_prefill) {
            source.request_stop();
        }
    }

    void text(std::string_view /*piece*/, std::int32_t /*token*/) override {
        ++n_tokens;
        if (tokens_left >= 0 && tokens_left-- == 0) {
            source.request_stop();
        }
    }
};

TEST(Session, AnswersAsAFreshOneAfterAStopOrAnError) {
    TERRACE_NEEDS(generated_model("small"));
    const SmallModel model;
    const Ids a = random_ids(50, kSmallVocab, 1);
    Ids b = a;  // a common beginning, so that a wrong row would be used
    b[45] = (b[45] + 1) % kSmallVocab;
    const std::unique_ptr<Engine> engine = model.open();
    ASSERT_NE(engine, nullptr);
    const GenerateResult want_a = generate(*engine, request_for(a, 30));
    engine->session().reset();
    const GenerateResult want_b = generate(*engine, request_for(b, 30));
    for (const int at : {0, 1, 2, 5, 11}) {
        Stopper stopper;
        stopper.tokens_left = at;
        engine->session().reset();
        const GenerateResult stopped =
            generate(*engine, request_for(a, 30), &stopper, stopper.source.get_token());
        EXPECT_EQ(stopped.stop_reason, StopReason::Cancelled);
        EXPECT_LT(stopped.ids.size(), 30u);
        EXPECT_TRUE(std::equal(stopped.ids.begin(), stopped.ids.end(), want_a.ids.begin()));
        expect_equal(generate(*engine, request_for(b, 30)), want_b);
        expect_equal(generate(*engine, request_for(a, 30)), want_a);
    }
    Ids wrong = a;
    wrong[3] = 1000;
    EXPECT_FALSE(engine->session().generate(request_for(wrong, 3), nullptr, {}).ok());
    expect_equal(generate(*engine, request_for(b, 30)), want_b);
}

TEST(Session, AnswersAsAFreshOneAfterAStopInThePrompt) {
    TERRACE_NEEDS(generated_model("small"));
    const SmallModel model;
    EngineConfig config = test_config();
    config.chunk_rows = 16;
    const std::unique_ptr<Engine> engine = open_engine(model.copy.path(), config);
    ASSERT_NE(engine, nullptr);
    const Ids prompt = random_ids(100, kSmallVocab, 1);
    const GenerateResult want = generate(*engine, request_for(prompt, 20));
    engine->session().reset();
    Stopper stopper;
    stopper.in_prefill = true;
    const GenerateResult stopped =
        generate(*engine, request_for(prompt, 20), &stopper, stopper.source.get_token());
    EXPECT_EQ(stopped.stop_reason, StopReason::Cancelled);
    EXPECT_EQ(stopper.n_tokens, 0);
    const GenerateResult again = generate(*engine, request_for(prompt, 20));
    EXPECT_GT(again.reused_tokens, 0) << "what was computed is kept";
    expect_equal(again, want);
}

/// Seconds from a stop asked for by another thread to the end of the call.
double seconds_to_stop(Engine& engine, const GenerateRequest& request, int after_ms) {
    std::stop_source source;
    std::atomic<Clock::rep> asked{0};
    std::jthread other([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(after_ms));
        asked = Clock::now().time_since_epoch().count();
        source.request_stop();
    });
    const GenerateResult got = generate(engine, request, nullptr, source.get_token());
    const auto end = Clock::now().time_since_epoch().count();
    EXPECT_EQ(got.stop_reason, StopReason::Cancelled);
    other.join();
    return std::chrono::duration<double>(Clock::duration(end - asked)).count();
}

TEST(Session, StopsWithinMomentsAndGoesOn) {
    EngineConfig config = test_config();
    config.isa = "scalar";  // the slowest tiles
    const std::unique_ptr<Engine> engine = open_engine(demo_model(), config);
    ASSERT_NE(engine, nullptr);
    const Ids small = random_ids(12, 2048, 3);
    const GenerateResult want = generate(*engine, request_for(small, 8));
    EXPECT_LT(seconds_to_stop(*engine, request_for(random_ids(4000, 2048, 4), 1), 100), 0.3);
    expect_equal(generate(*engine, request_for(small, 8)), want);
    EXPECT_LT(seconds_to_stop(*engine, request_for(small, 3000), 300), 0.3);
    expect_equal(generate(*engine, request_for(small, 8)), want);
}

TEST(NumericFault, NamesTheLayerAndShowsNoToken) {
    TERRACE_NEEDS(generated_model("small"));
    ModelCopy broken(generated_model("small"));
    broken.edit_tensor("model.layers.2.input_layernorm.weight", [](std::vector<float>& w) {
        w[5] = std::numeric_limits<float>::quiet_NaN();
    });
    const std::unique_ptr<Engine> engine = open_engine(broken.path());
    ASSERT_NE(engine, nullptr);
    Stopper observer;
    const auto got =
        engine->session().generate(request_for(random_ids(20, kSmallVocab, 1), 5), &observer, {});
    ASSERT_FALSE(got.ok());
    EXPECT_EQ(got.error().code, ErrorCode::NumericFault);
    EXPECT_NE(got.error().text().find("layer 2"), std::string::npos) << got.error().text();
    EXPECT_EQ(observer.n_tokens, 0);
    const SmallModel model;
    const std::unique_ptr<Engine> healthy = model.open();
    ASSERT_NE(healthy, nullptr);
    EXPECT_EQ(generate(*healthy, request_for(random_ids(20, kSmallVocab, 1), 5)).ids.size(), 5u);
}

const std::vector<std::string>& questions() {
    static const std::vector<std::string> texts{"What is Terrace?",
                                                "What is the capital of Sweden?",
                                                "Tell me a story about a mouse.",
                                                "What is 17 plus 25?",
                                                "Who are you?",
                                                "Please tell a bedtime story with a turtle.",
                                                "what's the gpu?",
                                                "What is the sum of 4 and 9?",
                                                "Hello!",
                                                "How does memory work?",
                                                "What is the capital of Portugal?",
                                                "Count to ten.",
                                                "Why is the sky blue?",
                                                "Write a list of fruits.",
                                                "Explain experts in one sentence.",
                                                "What is an expert?",
                                                "good morning",
                                                "Tell me about the sea.",
                                                "Which number comes after 41?",
                                                "Thanks, bye."};
    return texts;
}

struct Answers {
    std::vector<GenerateResult> results;
    SpeculationStats total;
};

Answers answers(int depth, const SamplingSettings& sampling) {
    EngineConfig config = test_config();
    config.draft_depth = depth;
    Answers all;
    const std::unique_ptr<Engine> engine = open_engine(demo_model(), config);
    if (engine == nullptr) {
        return all;
    }
    for (const std::string& question : questions()) {
        app::PromptInput input;
        input.text = question;
        const auto prompt = app::preparePrompt(engine->folder(), input);
        EXPECT_TRUE(prompt.ok());
        GenerateRequest request = request_for(prompt->ids, 96, sampling);
        request.ignore_eos = false;
        all.results.push_back(generate(*engine, request));
        all.total.drafted += all.results.back().speculation.drafted;
        all.total.accepted += all.results.back().speculation.accepted;
        all.total.forwards += all.results.back().speculation.forwards;
    }
    return all;
}

/// Percent of the drafts on these prompts that were right when this was measured; the kernels give
/// the same bits, so that a change of the model or of the drafting shows here and nothing else.
constexpr double kGreedyAcceptance = 88.3;
constexpr double kSampledAcceptance = 90.2;

void compare_with_and_without_drafts(const SamplingSettings& sampling, double stored) {
    const Answers with = answers(3, sampling);
    const Answers without = answers(0, sampling);
    ASSERT_EQ(with.results.size(), 20u);
    for (std::size_t i = 0; i < with.results.size(); ++i) {
        SCOPED_TRACE(questions()[i]);
        expect_equal(with.results[i], without.results[i]);
        EXPECT_EQ(with.results[i].stop_reason, without.results[i].stop_reason);
    }
    EXPECT_EQ(without.total.drafted, 0);
    const double percent =
        100.0 * static_cast<double>(with.total.accepted) / static_cast<double>(with.total.drafted);
    std::printf("drafts accepted: %lld of %lld (%.1f %%)\n",
                static_cast<long long>(with.total.accepted),
                static_cast<long long>(with.total.drafted), percent);
    EXPECT_GE(percent, stored - 2.0);
}

TEST(Speculation, LeavesTwentyGreedyAnswersAsTheyAre) {
    compare_with_and_without_drafts(greedy(), kGreedyAcceptance);
}

TEST(Speculation, LeavesTwentyAnswersAtTemperatureOneAsTheyAre) {
    compare_with_and_without_drafts(sampled(77), kSampledAcceptance);
}

std::int64_t n_special(const ModelFolder& folder, const Ids& ids) {
    return std::count_if(ids.begin(), ids.end(),
                         [&](std::int32_t id) { return folder.tokenizer->is_special(id); });
}

/// A person's text in each place of a conversation.
std::vector<app::PromptInput> places_for(const std::string& text) {
    std::vector<app::PromptInput> inputs(3);
    inputs[0].text = text;
    inputs[1].text = "hello";
    inputs[1].system = text;
    inputs[2].messages = nlohmann::json{
        {{"role", "user"}, {"content", "hello"}},
        {{"role", "assistant"}, {"content", text}},
        {{"role", "user"},
         {"content", text}}}.dump();
    return inputs;
}

TEST(Prompt, NeverReadsAPersonsTextAsSpecialTokens) {
    Result<ModelFolder> folder = open_model_folder(demo_model());
    ASSERT_TRUE(folder.ok());
    const std::vector<app::PromptInput> neutral = places_for("neutral");
    std::int64_t n_strings = 0;
    for (const AddedToken& token : folder->tokenizer->added_tokens()) {
        ++n_strings;
        const std::string text = "a " + token.content + " b";
        const std::vector<app::PromptInput> inputs = places_for(text);
        for (std::size_t i = 0; i < inputs.size(); ++i) {
            SCOPED_TRACE(token.content + " in place " + std::to_string(i));
            const auto got = app::preparePrompt(*folder, inputs[i]);
            const auto plain = app::preparePrompt(*folder, neutral[i]);
            ASSERT_TRUE(got.ok() && plain.ok());
            EXPECT_EQ(n_special(*folder, got->ids), n_special(*folder, plain->ids));
            EXPECT_NE(folder->tokenizer->decode(got->ids).find(text), std::string::npos);
        }
    }
    EXPECT_GE(n_strings, 10);
}

}  // namespace
}  // namespace terrace::test
