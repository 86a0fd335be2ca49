// From token ids to the text a reader sees, and the guard against answers that go in circles.
#include "engine/generate/text_stream.h"

#include <gtest/gtest.h>

#include "engine/generate/repetition_guard.h"
#include "tests/support/model_copy.h"

namespace terrace {
namespace {

/// Id 0 is the space, then the bytes in order, then the control bytes; "<end>" is special (256).
Tokenizer tokenizer() {
    auto file = nlohmann::json::parse(test::byte_tokenizer_json(256));
    file["added_tokens"].push_back({{"id", 256},
                                    {"content", "<end>"},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", true}});
    Result<Tokenizer> made = Tokenizer::from_json(file.dump(), "tokenizer.json");
    EXPECT_TRUE(made) << (made ? "" : made.error().text());
    return std::move(made).value();
}

std::int32_t id_of(char c) {
    return (static_cast<unsigned char>(c) + 256 - 32) % 256;
}

struct Shown {
    std::string text;
    std::vector<std::string> pieces;
    bool stopped = false;
};

Shown show(const std::string& bytes, std::vector<std::string> stops) {
    const Tokenizer t = tokenizer();
    TextStream stream(t, std::move(stops));
    Shown shown;
    for (const char c : bytes) {
        shown.pieces.push_back(stream.push(id_of(c)));
        shown.text += shown.pieces.back();
        if (stream.stopped()) {
            break;
        }
    }
    shown.text += stream.finish();
    shown.stopped = stream.stopped();
    return shown;
}

TEST(TextStream, ShowsWholeCharactersOnly) {
    const Shown shown = show("a\xF0\x9F\x98\x80z", {});
    EXPECT_EQ(shown.pieces, (std::vector<std::string>{"a", "", "", "", "\xF0\x9F\x98\x80", "z"}));
}

TEST(TextStream, ReplacesACharacterThatIsCutOff) {
    EXPECT_EQ(show("a\xF0\x9F", {}).text, "a\xEF\xBF\xBD");
}

TEST(TextStream, FindsAStopStringAcrossTokens) {
    const Shown shown = show("one END two", {"END"});
    EXPECT_EQ(shown.text, "one ");
    EXPECT_TRUE(shown.stopped);
}

TEST(TextStream, GivesBackTheBeginningOfAStopStringThatDoesNotCome) {
    const Shown shown = show("one EN two E", {"END"});
    EXPECT_EQ(shown.text, "one EN two E");
    EXPECT_FALSE(shown.stopped);
}

TEST(TextStream, FindsAStopStringThatOverlapsAFalseBeginning) {
    EXPECT_EQ(show("xaab", {"aab"}).text, "x");
    EXPECT_EQ(show("xaaab", {"aab"}).text, "xa");
    EXPECT_EQ(show("xababc", {"ababc", "zzz"}).text, "x");
}

TEST(TextStream, TakesTheStopStringThatBeginsFirst) {
    EXPECT_EQ(show("one two", {"two", "ne"}).text, "o");
}

TEST(TextStream, FindsAStopStringInsideOfACharacterBorder) {
    EXPECT_EQ(show("caf\xC3\xA9!", {"\xC3\xA9"}).text, "caf");
}

TEST(TextStream, IgnoresEmptyStopStrings) {
    EXPECT_EQ(show("abc", {""}).text, "abc");
}

TEST(TextStream, HidesSpecialTokensAndShowsTheirSpelling) {
    const Tokenizer t = tokenizer();
    TextStream stream(t, {});
    EXPECT_EQ(stream.push(id_of('a')), "a");
    EXPECT_EQ(stream.push(256), "");
    std::string text;
    for (const char c : std::string("<end>")) {
        text += stream.push(id_of(c));
    }
    EXPECT_EQ(text, "<end>");
}

std::vector<std::int32_t> repeated(std::int64_t block, std::int64_t times) {
    std::vector<std::int32_t> ids{100, 101, 102};
    for (std::int64_t i = 0; i < block * times; ++i) {
        ids.push_back(static_cast<std::int32_t>(i % block));
    }
    return ids;
}

TEST(RepetitionGuard, NoticesABlockThatIsSaidOverAndOver) {
    EXPECT_EQ(repeated_block(repeated(30, 20)), 30);
    EXPECT_EQ(repeated_block(repeated(64, 16)), 64);
    EXPECT_EQ(repeated_block(repeated(1, 256)), 1);
    EXPECT_EQ(repeated_block(repeated(16, 16)), 16);
}

TEST(RepetitionGuard, LeavesShortRunsAndListsAlone) {
    EXPECT_EQ(repeated_block({}), 0);
    EXPECT_EQ(repeated_block(repeated(30, 15)), 0);
    EXPECT_EQ(repeated_block(repeated(1, 255)), 0);
    EXPECT_EQ(repeated_block(repeated(65, 40)), 0);
    std::vector<std::int32_t> ended = repeated(30, 20);
    ended.push_back(77);
    EXPECT_EQ(repeated_block(ended), 0) << "it went on";
}

}  // namespace
}  // namespace terrace
