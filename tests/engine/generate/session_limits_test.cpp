// Where answers end and what is shown of them, on models whose every next token is known.
#include <gtest/gtest.h>

#include "engine/generate/session.h"
#include "tests/support/model_copy.h"
#include "tests/support/run_model.h"
#include "tests/support/scripted_model.h"

namespace terrace::test {
namespace {

/// `n` pieces nobody mistakes for each other.
std::vector<std::string> words(std::int32_t n) {
    std::vector<std::string> pieces;
    for (std::int32_t i = 0; i < n; ++i) {
        pieces.push_back("w" + std::to_string(i) + ";");
    }
    return pieces;
}

Script script_of(std::vector<std::string> pieces) {
    Script script;
    script.pieces = std::move(pieces);
    return script;
}

GenerateResult answer(const Script& script, const GenerateRequest& request, int draft_depth = 3) {
    const ScriptedModel model(script);
    EngineConfig config = test_config();
    config.draft_depth = draft_depth;
    const std::unique_ptr<Engine> engine = open_engine(model.path(), config);
    return engine == nullptr ? GenerateResult{} : generate(*engine, request);
}

GenerateRequest until_a_stop(Ids prompt) {
    GenerateRequest request = request_for(std::move(prompt), 200);
    request.ignore_eos = false;
    return request;
}

Script with_end_marker() {
    Script script = script_of({"say ", "<|", "end", "|>", " and", " more", ".", "<|end|>", "!"});
    script.special = {7};
    script.stop_ids = {7};
    return script;
}

TEST(Answer, EndsAtAStopIdAndNotAtItsSpelling) {
    const GenerateResult got = answer(with_end_marker(), until_a_stop({0}));
    EXPECT_EQ(got.text, "<|end|> and more.");
    EXPECT_EQ(got.ids, (Ids{1, 2, 3, 4, 5, 6, 7}));
    EXPECT_EQ(got.stop_reason, StopReason::Eos);
}

TEST(Answer, GoesOnBehindAStopIdWhenAsked) {
    const GenerateResult got = answer(with_end_marker(), request_for({0}, 8));
    EXPECT_EQ(got.text, "<|end|> and more.!") << "special tokens are hidden";
    EXPECT_EQ(got.stop_reason, StopReason::Length);
}

TEST(Answer, EndsAtTheStopIdsOfAllThreeFiles) {
    const auto end_of = [](const char* file, const std::string& text) {
        Script script = script_of(words(12));
        script.special = {9};
        script.stop_ids = {10};
        const ScriptedModel model(script);
        ModelCopy copy(model.path());
        if (file != nullptr) {
            copy.write(file, text);
        }
        const std::unique_ptr<Engine> engine = open_engine(copy.path());
        const Ids ids = engine == nullptr ? Ids{} : generate(*engine, until_a_stop({0})).ids;
        return ids.empty() ? -1 : ids.back();
    };
    EXPECT_EQ(end_of(nullptr, ""), 10);
    EXPECT_EQ(end_of("generation_config.json", R"({"eos_token_id": [8, 11]})"), 8);
    EXPECT_EQ(end_of("tokenizer_config.json", R"({"eos_token": "w9;"})"), 9);
}

TEST(Answer, HasAsManyTokensAsAskedFor) {
    for (const int depth : {0, 3}) {
        const GenerateResult none = answer(script_of(words(64)), request_for({0}, 0), depth);
        EXPECT_TRUE(none.ids.empty());
        EXPECT_EQ(none.stop_reason, StopReason::Length);
        for (std::int32_t n = 1; n < 12; ++n) {
            Ids expected;
            for (std::int32_t id = 1; id <= n; ++id) {
                expected.push_back(id);
            }
            const GenerateResult got = answer(script_of(words(64)), request_for({0}, n), depth);
            EXPECT_EQ(got.ids, expected);
            EXPECT_EQ(got.stop_reason, StopReason::Length);
        }
    }
}

TEST(Answer, EndsBeforeAStopStringThatSpansTokens) {
    GenerateRequest request = until_a_stop({0});
    request.stop_strings = {"5;w6", "never"};
    const GenerateResult got = answer(script_of(words(64)), request);
    EXPECT_EQ(got.text, "w1;w2;w3;w4;w");
    EXPECT_EQ(got.stop_reason, StopReason::Stop);
    EXPECT_EQ(got.ids.back(), 6);
}

TEST(Answer, MayEndInsideACharacterAndBeContinued) {
    const Script script = script_of({"x", "\xF0", "\x9F", "\x98", "\x80", "!"});
    const ScriptedModel model(script);
    const std::unique_ptr<Engine> engine = open_engine(model.path());
    ASSERT_NE(engine, nullptr);
    const GenerateResult first = generate(*engine, request_for({0}, 1));
    EXPECT_EQ(first.text, "\xEF\xBF\xBD") << "valid UTF-8, whatever the limit cut";
    EXPECT_EQ(first.stop_reason, StopReason::Length);
    Ids whole{0};
    whole.insert(whole.end(), first.ids.begin(), first.ids.end());
    const GenerateResult second = generate(*engine, request_for(whole, 4));
    whole.insert(whole.end(), second.ids.begin(), second.ids.end());
    EXPECT_EQ(engine->folder().tokenizer->decode(whole), "x\xF0\x9F\x98\x80!");
}

TEST(Answer, IsReportedWhenItGoesInCircles) {
    Script script = script_of(words(40));
    script.next[29] = 0;
    const auto warnings = [&](std::int64_t n) {
        return answer(script, request_for({39, 29}, n)).warnings;
    };
    const std::vector<std::string> circles = warnings(20 * 30);
    ASSERT_EQ(circles.size(), 1u);
    EXPECT_NE(circles[0].find("over and over"), std::string::npos);
    EXPECT_TRUE(warnings(10 * 30).empty());
}

TEST(Answer, EndsWithTheContext) {
    const ScriptedModel model(script_of(words(64)));
    EngineConfig config = test_config();
    config.context = 20;
    const std::unique_ptr<Engine> engine = open_engine(model.path(), config);
    ASSERT_NE(engine, nullptr);
    const GenerateResult got = generate(*engine, request_for(random_ids(15, 64, 1), -1));
    EXPECT_EQ(got.stop_reason, StopReason::Context);
    EXPECT_EQ(got.ids.size(), 6u) << "the last token of an answer needs no position";
}

TEST(Prompt, IsRefusedWithBothNumbersAndNeverCut) {
    const ScriptedModel model(script_of(words(64)));
    EngineConfig config = test_config();
    config.context = 20;
    const std::unique_ptr<Engine> engine = open_engine(model.path(), config);
    ASSERT_NE(engine, nullptr);
    for (const std::int64_t n : {19, 20}) {
        EXPECT_EQ(generate(*engine, request_for(random_ids(n, 64, 2), 1)).ids.size(), 1u);
    }
    for (const std::int64_t n : {21, 200}) {
        const auto got =
            engine->session().generate(request_for(random_ids(n, 64, 3), 1), nullptr, {});
        ASSERT_FALSE(got.ok());
        EXPECT_EQ(got.error().code, ErrorCode::TooLarge);
        EXPECT_NE(got.error().message.find(std::to_string(n) + " tokens"), std::string::npos);
        EXPECT_NE(got.error().message.find("20"), std::string::npos);
    }
}

TEST(Prompt, IsRefusedWhenEmptyOrOutsideTheVocabulary) {
    const ScriptedModel model(script_of(words(64)));
    const std::unique_ptr<Engine> engine = open_engine(model.path());
    ASSERT_NE(engine, nullptr);
    for (const Ids& prompt : {Ids{}, Ids{64}, Ids{3, -1}}) {
        const auto got = engine->session().generate(request_for(prompt, 1), nullptr, {});
        ASSERT_FALSE(got.ok());
        EXPECT_EQ(got.error().code, ErrorCode::WrongUse);
    }
}

TEST(Drafts, AreAllAcceptedFromAHeadThatKnowsTheAnswer) {
    const GenerateResult got = answer(script_of(words(200)), request_for({0}, 101));
    EXPECT_EQ(got.speculation.accepted, got.speculation.drafted);
    EXPECT_EQ(got.speculation.forwards, 25) << "four tokens a sweep behind the first";
    EXPECT_TRUE(got.warnings.empty());
}

TEST(Drafts, ThatAreNeverRightAreReportedAndChangeNothing) {
    Script script = script_of(words(200));
    const GenerateResult plain = answer(script, request_for({0}, 100), 0);
    script.drafter = Drafter::Wrong;
    const GenerateResult got = answer(script, request_for({0}, 100));
    EXPECT_EQ(got.ids, plain.ids);
    EXPECT_EQ(got.logits_hash, plain.logits_hash);
    EXPECT_EQ(got.speculation.accepted, 0);
    EXPECT_GE(got.speculation.drafted, 64);
    ASSERT_EQ(got.warnings.size(), 1u);
    EXPECT_NE(got.warnings[0].find("never right"), std::string::npos);
    EXPECT_TRUE(answer(script, request_for({0}, 20)).warnings.empty()) << "too few to judge";
}

TEST(Drafts, FromADamagedHeadAreLeftOut) {
    Script script = script_of(words(200));
    const GenerateResult plain = answer(script, request_for({0}, 100), 0);
    script.drafter = Drafter::NotANumber;
    const GenerateResult got = answer(script, request_for({0}, 100));
    EXPECT_EQ(got.ids, plain.ids);
    EXPECT_EQ(got.logits_hash, plain.logits_hash);
    EXPECT_EQ(got.speculation.accepted, 0);
}

}  // namespace
}  // namespace terrace::test
