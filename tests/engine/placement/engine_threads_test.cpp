// A whole engine with more threads than work: for the thread sanitizer, and for answers that must
// be the same every time.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "app/core/synthetic_model.h"
#include "tests/engine/support/temp_folder.h"
#include "tests/support/run_model.h"

namespace terrace::test {
namespace {

class EngineThreads : public ::testing::Test {
protected:
    void SetUp() override {
        spec_ = app::syntheticPreset("tiny").value_or(app::SyntheticSpec{});
        ASSERT_TRUE(app::writeSyntheticModel(spec_, folder_ / "model", nullptr, {}).ok());
    }

    [[nodiscard]] std::unique_ptr<Engine> open(std::int64_t threads, std::int64_t slots) const {
        EngineConfig config;
        config.threads = threads;
        config.slots = slots;
        config.chunk_rows = 16;
        config.draft_depth = 3;
        return open_engine(folder_ / "model", config);
    }

    TempFolder folder_;
    app::SyntheticSpec spec_;
};

TEST_F(EngineThreads, AnswerTheSameHoweverManyThereAre) {
    const GenerateRequest request = request_for(random_ids(40, spec_.vocab_size, 1), 12);
    const std::unique_ptr<Engine> one = open(1, 0);
    ASSERT_NE(one, nullptr);
    const GenerateResult want = generate(*one, request);
    for (const std::int64_t threads : {2, 4, 7}) {
        for (const std::int64_t slots : {2, 9, 0}) {
            const std::unique_ptr<Engine> engine = open(threads, slots);
            ASSERT_NE(engine, nullptr);
            EXPECT_EQ(generate(*engine, request).logits_hash, want.logits_hash);
        }
    }
}

TEST_F(EngineThreads, EndAtAStopFromAnotherThread) {
    const std::unique_ptr<Engine> engine = open(3, 5);
    ASSERT_NE(engine, nullptr);
    const GenerateRequest brief = request_for(random_ids(20, spec_.vocab_size, 2), 6);
    const GenerateResult want = generate(*engine, brief);
    const GenerateRequest endless = request_for(random_ids(40, spec_.vocab_size, 3), 6000);
    for (const int after_ms : {0, 1, 5, 20, 50}) {
        std::stop_source source;
        std::jthread other([&source, after_ms] {
            std::this_thread::sleep_for(std::chrono::milliseconds(after_ms));
            source.request_stop();
        });
        const GenerateResult got = generate(*engine, endless, nullptr, source.get_token());
        EXPECT_EQ(got.stop_reason, StopReason::Cancelled);
        static_cast<void>(engine->expert_stats());
        EXPECT_EQ(generate(*engine, brief).logits_hash, want.logits_hash);
    }
}

}  // namespace
}  // namespace terrace::test
