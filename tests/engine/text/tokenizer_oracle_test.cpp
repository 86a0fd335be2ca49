// Six published tokenizers against the golden ids of the Hugging Face library: every string in
// three modes, pre-tokens, decoding, streams, random ids, bytes that are not UTF-8.
#include <gtest/gtest.h>

#include <ctime>
#include <iostream>

#include "engine/text/tokenizer.h"
#include "engine/text/tokenizer_stream.h"
#include "engine/text/utf8.h"
#include "tests/engine/text/oracle_files.h"

namespace terrace {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

/// Time of this process and not of the clock on the wall: other programs may be busy.
double cpu_seconds() {
    return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

/// Loads one tokenizer for all tests of its name.
class TokenizerOracle : public testing::TestWithParam<std::string> {
protected:
    void SetUp() override {
        if (!oracle::is_there()) {
            GTEST_SKIP() << "skipped: golden ids of tokenizer " << GetParam()
                         << " (582 strings, 30 byte strings, 20 streams, 10 random sequences), "
                         << "not found in " << oracle::folder();
        }
        golden_ = oracle::read_json(oracle::folder() / (GetParam() + ".golden.json"));
        const std::string text = oracle::tokenizer_text(GetParam());
        const double start = cpu_seconds();
        Result<Tokenizer> loaded = Tokenizer::from_json(text, GetParam());
        load_seconds_ = cpu_seconds() - start;
        ASSERT_TRUE(loaded.ok()) << loaded.error().text();
        tokenizer_ = std::make_unique<Tokenizer>(std::move(*loaded));
    }

    /// Compares one entry of the golden file; adds to the counts.
    void expect_entry(const std::string& text, const json& entry, const std::string& where) {
        const Ids plain = entry["plain"].get<Ids>();
        const Ids special = entry.contains("special") ? entry["special"].get<Ids>() : plain;
        const Ids raw = entry.contains("raw") ? entry["raw"].get<Ids>() : plain;
        EXPECT_EQ(tokenizer_->encode(text, AddedTokens::Plain), plain) << where;
        EXPECT_EQ(tokenizer_->encode(text, AddedTokens::Special), special) << where;
        EXPECT_EQ(tokenizer_->encode(text, AddedTokens::Raw), raw) << where;
        EXPECT_EQ(tokenizer_->encode_prompt(text, {}), special) << where;
        if (entry.contains("pre")) {
            EXPECT_EQ(tokenizer_->pre_token_lengths(text),
                      entry["pre"].get<std::vector<std::size_t>>())
                << where;
        }
        const std::string valid = to_valid_utf8(text);
        const std::string decoded =
            entry.contains("decoded") ? entry["decoded"].get<std::string>() : valid;
        EXPECT_EQ(tokenizer_->decode(special), decoded) << where;
        n_encodings_ += 3;
    }

    json golden_;
    std::unique_ptr<Tokenizer> tokenizer_;
    double load_seconds_ = 0;
    std::size_t n_encodings_ = 0;
};

TEST_P(TokenizerOracle, GivesTheSameIdsForEveryStringInThreeModes) {
    const json strings = oracle::read_json(oracle::folder() / "strings.json");
    std::size_t n_strings = 0;
    for (const json& group : strings["groups"]) {
        const auto name = group["name"].get<std::string>();
        const json& entries = golden_["groups"][name];
        ASSERT_EQ(entries.size(), group["strings"].size());
        for (std::size_t i = 0; i < entries.size(); ++i, ++n_strings) {
            expect_entry(oracle::expand(group["strings"][i]), entries[i],
                         name + " " + std::to_string(i));
        }
    }
    EXPECT_EQ(n_strings, 582U);
    std::cout << GetParam() << ": " << n_strings << " strings, " << n_encodings_
              << " encodings compared; loaded in " << load_seconds_ << " s\n";
}

TEST_P(TokenizerOracle, ReplacesBytesThatAreNotUtf8BeforeEncoding) {
    for (const json& entry : golden_["invalid_utf8"]) {
        const std::string bytes = oracle::from_hex(entry["hex"].get<std::string>());
        std::size_t n_replaced = 0;
        EXPECT_EQ(to_valid_utf8(bytes, &n_replaced), entry["text"].get<std::string>());
        expect_entry(bytes, entry, entry["hex"].get<std::string>());
    }
    EXPECT_EQ(n_encodings_, 90U);
}

TEST_P(TokenizerOracle, StreamsWholeCharactersOnly) {
    EXPECT_EQ(golden_["streams"].size(), 20U);
    for (const json& stream : golden_["streams"]) {
        StreamDecoder decoder(*tokenizer_);
        const Ids ids = stream["ids"].get<Ids>();
        std::vector<std::string> pieces;
        std::string joined;
        for (const std::int32_t id : ids) {
            pieces.push_back(decoder.push(id));
            joined += pieces.back();
        }
        const std::string end = decoder.finish();
        EXPECT_EQ(pieces, stream["pieces"].get<std::vector<std::string>>()) << stream["name"];
        EXPECT_EQ(end, stream["finish"].get<std::string>()) << stream["name"];
        EXPECT_EQ(joined + end, tokenizer_->decode(ids)) << stream["name"];
    }
}

TEST_P(TokenizerOracle, DecodesRandomIds) {
    EXPECT_EQ(golden_["random_ids"].size(), 10U);
    for (const json& entry : golden_["random_ids"]) {
        const Ids ids = entry["ids"].get<Ids>();
        std::string bytes;
        for (const std::int32_t id : ids) {
            EXPECT_TRUE(tokenizer_->is_defined(id));
            bytes += tokenizer_->piece_bytes(id);
        }
        EXPECT_EQ(bytes, oracle::from_hex(entry["bytes"].get<std::string>()));
        EXPECT_EQ(tokenizer_->decode(ids), entry["text"].get<std::string>());
    }
}

TEST_P(TokenizerOracle, KnowsTheAddedTokens) {
    for (const json& token : golden_["added_tokens"]) {
        const auto id = token["id"].get<std::int32_t>();
        const auto content = token["content"].get<std::string>();
        EXPECT_EQ(tokenizer_->id_of(content), id);
        EXPECT_EQ(tokenizer_->is_special(id), token["special"].get<bool>());
        EXPECT_EQ(tokenizer_->encode(content, AddedTokens::Special), Ids{id});
        // As a raw span of a prompt it is ordinary text.
        const ByteSpan all{0, content.size()};
        EXPECT_EQ(tokenizer_->encode_prompt(content, {&all, 1}),
                  tokenizer_->encode(content, AddedTokens::Raw));
    }
}

TEST_P(TokenizerOracle, LoadsQuicklyAndReadsALongWordQuickly) {
    for (const char* unit : {"a", " ", "\n", "0", "\xE4\xB8\xAD", "\xCC\x81", "'"}) {
        std::string text;
        while (text.size() < 100'000) {
            text += unit;
        }
        const double start = cpu_seconds();
        const Ids ids = tokenizer_->encode(text, AddedTokens::Special);
        const double seconds = cpu_seconds() - start;
        EXPECT_EQ(tokenizer_->decode(ids), text);
        EXPECT_LT(seconds, 1.0) << unit;
        std::cout << GetParam() << ": 100 kB of '" << unit << "': " << seconds << " s, "
                  << ids.size() << " ids\n";
    }
    EXPECT_LT(load_seconds_, 2.0);
}

INSTANTIATE_TEST_SUITE_P(Published,
                         TokenizerOracle,
                         testing::ValuesIn(oracle::tokenizer_names()),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace terrace
