// Rules of the tokenizer on a file small enough to know by heart, and the files it must refuse.
#include "engine/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <functional>
#include <thread>

#include "engine/text/tokenizer_stream.h"
#include "engine/text/unicode_tables.h"
#include "tests/engine/text/tiny_tokenizer.h"

namespace terrace {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Ids = std::vector<std::int32_t>;
using Change = std::function<void(json&)>;

Result<Tokenizer> try_load(const Change& change) {
    json file = tiny::file();
    change(file);
    return Tokenizer::from_json(file.dump(), "tokenizer.json");
}

Tokenizer load(const Change& change = [](json&) {}) {
    Result<Tokenizer> loaded = try_load(change);
    EXPECT_TRUE(loaded.ok()) << loaded.error().text();
    return std::move(*loaded);
}

/// The tiny file with one Split in front of the byte level.
Tokenizer with_split(const json& pattern, const std::string& behavior, bool invert = false) {
    return load([&](json& file) {
        json step = tiny::split(pattern, behavior);
        step["invert"] = invert;
        file["pre_tokenizer"]["pretokenizers"] = {step, tiny::byte_level()};
    });
}

std::vector<std::string> pieces(const Tokenizer& tokenizer, const std::string& text) {
    std::vector<std::string> out;
    std::size_t at = 0;
    for (const std::size_t n : tokenizer.pre_token_lengths(text)) {
        out.push_back(text.substr(at, n));
        at += n;
    }
    return out;
}

Result<Tokenizer> load_with_regex(const std::string& pattern) {
    return try_load([&](json& file) {
        file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = pattern;
    });
}

Ids raw(const Tokenizer& tokenizer, std::string_view text) {
    return tokenizer.encode(text, AddedTokens::Raw);
}

Ids bytes(std::string_view text) {
    Ids out;
    for (const char c : text) {
        out.push_back(static_cast<unsigned char>(c));
    }
    return out;
}

// ---- merges ----

TEST(Tokenizer, MergesTheLowestRankFirst) {
    const Tokenizer tokenizer = load();
    EXPECT_THAT(raw(tokenizer, "abc"), ElementsAre(258));
    EXPECT_THAT(raw(tokenizer, "xbc"), ElementsAre('x', 257));
    EXPECT_THAT(raw(tokenizer, "eeeee"), ElementsAre(259, 259, 'e'));
    EXPECT_THAT(raw(tokenizer, "bb abc"), ElementsAre('b', 'b', ' ', 258));
    EXPECT_THAT(raw(tokenizer, ""), IsEmpty());
}

TEST(Tokenizer, ReadsMergesAsPairsAndAsTextAlike) {
    const Tokenizer pairs = load();
    const Tokenizer texts = load([](json& file) {
        json merges = json::array({"#version: 0.2"});
        for (const json& pair : file["model"]["merges"]) {
            merges.push_back(pair[0].get<std::string>() + " " + pair[1].get<std::string>());
        }
        file["model"]["merges"] = merges;
    });
    for (const char* text : {"abc", "xbc aab", " ab", "eee", "abcabc bcbc"}) {
        EXPECT_EQ(raw(pairs, text), raw(texts, text));
    }
}

TEST(Tokenizer, TakesWholeWordsWhenMergesAreIgnored) {
    const Change whole_word = [](json& file) { file["model"]["vocab"]["xyz"] = 270; };
    EXPECT_EQ(raw(load(whole_word), "xyz"), bytes("xyz"));
    const Tokenizer ignoring = load([&](json& file) {
        whole_word(file);
        file["model"]["ignore_merges"] = true;
    });
    EXPECT_THAT(raw(ignoring, "xyz"), ElementsAre(270));
    EXPECT_THAT(raw(ignoring, "xyzz"), ElementsAre('x', 'y', 'z', 'z'));
}

TEST(Tokenizer, NeverMakesAnAddedTokenOutOfRawText) {
    const Tokenizer tokenizer = load([](json& file) {
        file["model"]["ignore_merges"] = true;
        file["model"]["vocab"]["stop"] = 303;
        file["added_tokens"].push_back(tiny::added(303, "stop", true));
    });
    EXPECT_THAT(tokenizer.encode("stop", AddedTokens::Special), ElementsAre(303));
    EXPECT_EQ(raw(tokenizer, "stop"), bytes("stop"));
    EXPECT_EQ(tokenizer.encode("stop", AddedTokens::Plain), bytes("stop"));
}

TEST(Tokenizer, LeavesOutOrNamesBytesWithoutAToken) {
    const Change without_z = [](json& file) { file["model"]["vocab"].erase("z"); };
    const Tokenizer dropping = load(without_z);
    EXPECT_THAT(raw(dropping, "azb"), ElementsAre(256));  // what is left merges, as in the library
    ASSERT_EQ(dropping.warnings().size(), 1U);
    EXPECT_THAT(dropping.warnings()[0], HasSubstr("no token for 1 of the bytes"));
    const Tokenizer naming = load([&](json& file) {
        without_z(file);
        file["model"]["unk_token"] = "?";
    });
    EXPECT_THAT(raw(naming, "azzb"), ElementsAre('a', '?', '?', 'b'));
    const Tokenizer fusing = load([&](json& file) {
        without_z(file);
        file["model"]["unk_token"] = "?";
        file["model"]["fuse_unk"] = true;
    });
    EXPECT_THAT(raw(fusing, "azzbz"), ElementsAre('a', '?', 'b', '?'));
}

TEST(Tokenizer, ReadsAHundredKilobytesOfOneLetterQuickly) {
    const Tokenizer tokenizer = load();
    const std::clock_t start = std::clock();
    EXPECT_EQ(raw(tokenizer, std::string(100'000, 'e')).size(), 50'000U);
    EXPECT_LT(std::clock() - start, CLOCKS_PER_SEC);
}

// ---- added tokens ----

TEST(Tokenizer, ReadsTextInThreeWays) {
    const Tokenizer tokenizer = load();
    const std::string text = "<end><think>";
    EXPECT_THAT(tokenizer.encode(text, AddedTokens::Special), ElementsAre(300, 301));
    Ids plain = bytes("<end>");
    plain.push_back(301);
    EXPECT_EQ(tokenizer.encode(text, AddedTokens::Plain), plain);
    EXPECT_EQ(raw(tokenizer, text), bytes(text));
}

TEST(Tokenizer, TakesTheLongestAddedToken) {
    const Tokenizer tokenizer = load();
    EXPECT_THAT(tokenizer.encode("<think>\n\n", AddedTokens::Special), ElementsAre(302, '\n'));
}

TEST(Tokenizer, RecognisesNoAddedTokenThatTouchesARawSpan) {
    const Tokenizer tokenizer = load();
    const std::string user = "<end>";
    const std::string prompt = "<think>" + user + "<end>";
    const ByteSpan span{7, 7 + user.size()};
    Ids expected{301};
    for (const std::int32_t id : bytes(user)) {
        expected.push_back(id);
    }
    expected.push_back(300);
    EXPECT_EQ(tokenizer.encode_prompt(prompt, {&span, 1}), expected);
    // A longer token would reach into the user's line feed: the shorter one is the template's.
    const ByteSpan line_feed{7, 8};
    EXPECT_EQ(tokenizer.encode_prompt("<think>\n", {&line_feed, 1}), (Ids{301, '\n'}));
    // Half a token of the user's completed by the template is none.
    const ByteSpan half{0, 2};
    EXPECT_EQ(tokenizer.encode_prompt("<end>", {&half, 1}), bytes("<end>"));
    // Nor does it hide the token of the template behind it.
    const ByteSpan one{0, 1};
    EXPECT_EQ(tokenizer.encode_prompt("<<end>", {&one, 1}), (Ids{'<', 300}));
}

TEST(Tokenizer, DoesNotCutTextAtTheBordersOfRawSpans) {
    const Tokenizer tokenizer = load();
    const ByteSpan middle{1, 2};
    EXPECT_EQ(tokenizer.encode_prompt("abc", {&middle, 1}), (Ids{258}));
}

TEST(Tokenizer, FindsRawSpansAgainBehindBytesThatAreNotUtf8) {
    const Tokenizer tokenizer = load();
    const std::string prompt = "\xFF\xFF<end>\xE4\xB8<end>";
    const ByteSpan user{7, 14};
    Ids expected = bytes("\xEF\xBF\xBD\xEF\xBF\xBD");
    expected.push_back(300);
    for (const std::int32_t id : bytes("\xEF\xBF\xBD<end>")) {
        expected.push_back(id);
    }
    EXPECT_EQ(tokenizer.encode_prompt(prompt, {&user, 1}), expected);
}

TEST(Tokenizer, ToleratesAnyRawSpans) {
    const Tokenizer tokenizer = load();
    const std::vector<ByteSpan> spans{{9, 4}, {100, 200}, {3, 3}, {2, 300}, {0, 1}};
    EXPECT_EQ(tokenizer.encode_prompt("<end><end>", spans), bytes("<end><end>"));
    const ByteSpan everything{0, static_cast<std::size_t>(-1)};
    EXPECT_EQ(tokenizer.encode_prompt("<end>", {&everything, 1}), bytes("<end>"));
}

TEST(Tokenizer, FindsNormalizedAddedTokensAfterTheNormaliser) {
    const Tokenizer tokenizer = load([](json& file) {
        file["normalizer"] = {{"type", "NFC"}};
        json token = tiny::added(303, "<\xC3\xA9>", true);
        token["normalized"] = true;
        file["added_tokens"].push_back(token);
    });
    const std::string apart = "<e\xCC\x81>";
    EXPECT_THAT(tokenizer.encode(apart, AddedTokens::Special), ElementsAre(303));
    EXPECT_EQ(raw(tokenizer, apart), bytes("<\xC3\xA9>"));
    const std::string prompt = apart + "e\xCC\x81" + apart;
    const ByteSpan first{2, 3};
    Ids expected = bytes("<\xC3\xA9>\xC3\xA9");
    expected.push_back(303);
    EXPECT_EQ(tokenizer.encode_prompt(prompt, {&first, 1}), expected);
    const ByteSpan last{9, 10};
    expected = bytes("\xC3\xA9<\xC3\xA9>");
    expected.insert(expected.begin(), 303);
    EXPECT_EQ(tokenizer.encode_prompt(prompt, {&last, 1}), expected);
}

TEST(Tokenizer, StripsWhiteSpaceAndKeepsToWholeWordsWhereTheFileSaysSo) {
    const Tokenizer tokenizer = load([](json& file) {
        json strip = tiny::added(303, "<s>", true);
        strip["lstrip"] = true;
        strip["rstrip"] = true;
        json word = tiny::added(304, "word", false);
        word["single_word"] = true;
        file["added_tokens"].push_back(strip);
        file["added_tokens"].push_back(word);
    });
    const auto special = [&](std::string_view text) {
        return tokenizer.encode(text, AddedTokens::Special);
    };
    EXPECT_THAT(special("x  <s>\t\xE3\x80\x80y"), ElementsAre('x', 303, 'y'));
    EXPECT_THAT(special("  <s>  <s> "), ElementsAre(303, 303));
    EXPECT_THAT(special("-word-"), ElementsAre('-', 304, '-'));
    EXPECT_THAT(special("word"), ElementsAre(304));
    EXPECT_EQ(special("swords"), bytes("swords"));
    EXPECT_EQ(special("word\xCC\x81"), bytes("word\xCC\x81"));
}

TEST(Tokenizer, AnswersQuestionsAboutIds) {
    const Tokenizer tokenizer = load();
    EXPECT_EQ(tokenizer.n_ids(), 303U);
    EXPECT_TRUE(tokenizer.is_defined(0));
    EXPECT_FALSE(tokenizer.is_defined(299));
    EXPECT_FALSE(tokenizer.is_defined(-1));
    EXPECT_FALSE(tokenizer.is_defined(303));
    EXPECT_TRUE(tokenizer.is_special(300));
    EXPECT_FALSE(tokenizer.is_special(301));
    EXPECT_FALSE(tokenizer.is_special(5'000'000));
    EXPECT_EQ(tokenizer.id_of("<think>"), 301);
    EXPECT_EQ(tokenizer.id_of(tiny::letter_of_byte(' ') + "a"), 260);
    EXPECT_EQ(tokenizer.id_of(" a"), std::nullopt);
    EXPECT_EQ(tokenizer.piece_bytes(260), " a");
    EXPECT_EQ(tokenizer.piece_bytes(299), "");
    EXPECT_EQ(tokenizer.added_tokens().size(), 3U);
    EXPECT_TRUE(tokenizer.warnings().empty());
}

// ---- decoding ----

TEST(Tokenizer, DecodesAddedTokensByTheirOwnText) {
    const Tokenizer tokenizer = load([](json& file) {
        file["added_tokens"].push_back(tiny::added(303, "\xEF\xBD\x9C", true));  // U+FF5C
        file["added_tokens"].push_back(
            tiny::added(304, "\xC3\xA9\xC3\xA9", true));  // in the alphabet
    });
    EXPECT_EQ(tokenizer.decode(Ids{303}), "\xEF\xBD\x9C");
    EXPECT_EQ(tokenizer.decode(Ids{304}), "\xEF\xBF\xBD\xEF\xBF\xBD");
    EXPECT_EQ(tokenizer.decode(Ids{300, 258, 299, -4, 4000}), "<end>abc");
}

TEST(StreamDecoder, HoldsAnUnfinishedCharacterAndGivesItUpAtTheEnd) {
    const Tokenizer tokenizer = load();
    StreamDecoder decoder(tokenizer);
    EXPECT_EQ(decoder.push(0xF0), "");
    EXPECT_EQ(decoder.push(0x9F), "");
    EXPECT_EQ(decoder.push(0x98), "");
    EXPECT_EQ(decoder.held().size(), 3U);
    EXPECT_EQ(decoder.push(0x80), "\xF0\x9F\x98\x80");
    EXPECT_EQ(decoder.push(0xE4), "");
    EXPECT_EQ(decoder.push(258),
              "\xEF\xBF\xBD"
              "abc");
    EXPECT_EQ(decoder.push(0xE4), "");
    EXPECT_EQ(decoder.push(0xB8), "");
    EXPECT_EQ(decoder.finish(), "\xEF\xBF\xBD");
    EXPECT_EQ(decoder.finish(), "");
}

TEST(StreamDecoder, CompletesACharacterCutByALengthLimitWhenTheAnswerGoesOn) {
    const Tokenizer tokenizer = load();
    StreamDecoder first(tokenizer);
    EXPECT_EQ(first.push(0xF0), "");
    // The answer is continued from its ids, so the held byte comes again.
    StreamDecoder second(tokenizer);
    std::string text;
    for (const std::int32_t id : {0xF0, 0x9F, 0x98, 0x80}) {
        text += second.push(id);
    }
    EXPECT_EQ(text + second.finish(), "\xF0\x9F\x98\x80");
}

// ---- pre-tokenizer ----

TEST(PreTokenizer, TakesALiteralPatternLiterally) {
    const Tokenizer tokenizer = with_split({{"String", ".+"}}, "Isolated");
    EXPECT_THAT(pieces(tokenizer, "ab.+cd..+"), ElementsAre("ab", ".+", "cd.", ".+"));
}

TEST(PreTokenizer, DoesWhatEachBehaviourSays) {
    const json dash = {{"Regex", "-"}};
    const std::string text = "the-final--countdown-";
    EXPECT_THAT(pieces(with_split(dash, "Isolated"), text),
                ElementsAre("the", "-", "final", "-", "-", "countdown", "-"));
    EXPECT_THAT(pieces(with_split(dash, "MergedWithPrevious"), text),
                ElementsAre("the-", "final-", "-", "countdown-"));
    EXPECT_THAT(pieces(with_split(dash, "MergedWithNext"), text),
                ElementsAre("the", "-final", "-", "-countdown", "-"));
    EXPECT_THAT(pieces(with_split(dash, "Contiguous"), text),
                ElementsAre("the", "-", "final", "--", "countdown", "-"));
    EXPECT_EQ(with_split(dash, "Removed").pre_token_lengths(text),
              (std::vector<std::size_t>{3, 5, 9}));
    EXPECT_EQ(with_split(dash, "Removed", true).pre_token_lengths(text),
              (std::vector<std::size_t>{1, 1, 1, 1}));
    EXPECT_EQ(raw(with_split(dash, "Removed"), "a-b"), bytes("ab"));
}

TEST(PreTokenizer, SplitsAtEmptyMatchesOnce) {
    EXPECT_THAT(pieces(with_split({{"Regex", "x*"}}, "Isolated"), "axxb"),
                ElementsAre("a", "xx", "b"));
    EXPECT_THAT(pieces(with_split({{"Regex", "(?=b)"}}, "Isolated"), "abab"),
                ElementsAre("a", "ba", "b"));
}

TEST(PreTokenizer, SplitsDigitsTogetherOrApart) {
    const auto digits = [](bool individual) {
        return load([&](json& file) {
            file["pre_tokenizer"]["pretokenizers"] = {
                {{"type", "Digits"}, {"individual_digits", individual}}, tiny::byte_level()};
        });
    };
    EXPECT_THAT(pieces(digits(false), "a12b\xD9\xA3"), ElementsAre("a", "12", "b", "\xD9\xA3"));
    EXPECT_THAT(pieces(digits(true), "a12b"), ElementsAre("a", "1", "2", "b"));
}

TEST(PreTokenizer, AppliesItsOwnPatternAndPrefixSpaceUnlessToldOtherwise) {
    const Tokenizer by_default = load([](json& file) {
        file["pre_tokenizer"] = {{"type", "ByteLevel"}};
    });
    EXPECT_EQ(raw(by_default, "abc it's"), (Ids{' ', 258, ' ', 'i', 't', '\'', 's'}));
    EXPECT_EQ(raw(by_default, " abc"), raw(by_default, "abc"));
    // The space is put before every piece, also behind an added token.
    EXPECT_EQ(by_default.encode("<end>a", AddedTokens::Special), (Ids{300, 260}));
}

TEST(PreTokenizer, UnderstandsNestedAndIntersectedBrackets) {
    EXPECT_THAT(pieces(with_split({{"Regex", "[\\p{L}&&[^\\p{Han}]]+"}}, "Isolated"),
                       "ab\xE4\xB8\xAD"
                       "c"),
                ElementsAre("ab", "\xE4\xB8\xAD", "c"));
    EXPECT_THAT(pieces(with_split({{"Regex", "[a[0-9]\\-\\]]+"}}, "Isolated"), "xa1-]y"),
                ElementsAre("x", "a1-]", "y"));
    EXPECT_THAT(pieces(with_split({{"Regex", "[^\\S\\n]{2,}|\\x41|\\u4e2d"}}, "Isolated"),
                       "x  \nA\xE4\xB8\xAD"),
                ElementsAre("x", "  ", "\n", "A", "\xE4\xB8\xAD"));
    EXPECT_THAT(pieces(with_split({{"Regex", "^a|b$"}}, "Isolated"), "aab\nab"),
                ElementsAre("a", "a", "b", "\n", "a", "b"));
    EXPECT_THAT(pieces(with_split({{"Regex", "(?<=a)b|c(?!d)|(?>e+)e|f{,2}g|."}}, "Removed"), ""),
                IsEmpty());
}

TEST(PreTokenizer, RefusesPatternsItCannotVouchFor) {
    const std::pair<const char*, ErrorCode> kCases[] = {
        {"(?i:'s|'t|[a-z", ErrorCode::Corrupt},
        {"a)", ErrorCode::Corrupt},
        {"*a", ErrorCode::Corrupt},
        {"[z-a]", ErrorCode::Corrupt},
        {"\\p{L", ErrorCode::Corrupt},
        {"\\x{110000}", ErrorCode::Corrupt},
        {"a\\", ErrorCode::Corrupt},
        {"[\\", ErrorCode::Corrupt},
        {"(?:(?:a+)+)+b|\\s+|.", ErrorCode::Unsupported},
        {"(?:(?:(?:a{1,1000}){1,1000}){1,1000})|.", ErrorCode::Unsupported},
        {"a*a*b", ErrorCode::Unsupported},
        {"(?:a?){40}b", ErrorCode::Unsupported},
        {"(?:a|b|ab){40}c", ErrorCode::Unsupported},
        {"(?:a|a)+b", ErrorCode::Unsupported},
        {"(?=a*a*b)a", ErrorCode::Unsupported},
        {"(\\w)\\1+|.", ErrorCode::Unsupported},
        {"(?P<x>a)", ErrorCode::Unsupported},
        {"\\p{Quux}", ErrorCode::Unsupported},
        {"a{2}?", ErrorCode::Unsupported},
        {"a**", ErrorCode::Unsupported},
        {"a+{2}", ErrorCode::Unsupported},
        {"(?=a)*", ErrorCode::Unsupported},
        {"a{1,100000}", ErrorCode::Unsupported},
        {"\\bword", ErrorCode::Unsupported},
        {"\\h", ErrorCode::Unsupported},
        {"[[:alpha:]]", ErrorCode::Unsupported},
        {"[]a]", ErrorCode::Unsupported},
        {"a(?i)b|c", ErrorCode::Unsupported},
        {"(?i:\xC3\xA9)", ErrorCode::Unsupported},
        {"(?i:[^a])", ErrorCode::Unsupported}};
    for (const auto& [pattern, code] : kCases) {
        const Result<Tokenizer> refused = load_with_regex(pattern);
        ASSERT_FALSE(refused.ok()) << pattern;
        EXPECT_EQ(refused.error().code, code) << pattern << ": " << refused.error().text();
        EXPECT_THAT(refused.error().text(), HasSubstr("Regex")) << pattern;
        EXPECT_THAT(refused.error().text(), HasSubstr("tokenizer.json")) << pattern;
    }
}

TEST(PreTokenizer, BoundsWhatAPatternMayCost) {
    const std::string deep = std::string(5000, '(') + std::string(5000, ')');
    std::string wide = "[";
    for (char32_t c = 0x4E00; c < 0x4E00 + 2000; ++c) {
        append_utf8(c, wide);
    }
    wide += "]";
    std::string many;
    for (char32_t c = 0x4E00; c < 0x4E00 + 300; ++c) {
        append_utf8(c, many);
    }
    for (const std::string& pattern : {deep, many, std::string(10'000, 'a')}) {
        const Result<Tokenizer> refused = load_with_regex(pattern);
        ASSERT_FALSE(refused.ok());
        EXPECT_EQ(refused.error().code, ErrorCode::Unsupported);
    }
    EXPECT_THAT(pieces(with_split({{"Regex", wide}}, "Isolated"), "a\xE4\xB8\x80"),
                ElementsAre("a", "\xE4\xB8\x80"));
}

// ---- files ----

struct Refusal {
    const char* about;
    Change change;
    ErrorCode code;
    const char* names;
};

const std::vector<Refusal>& refusals() {
    static const std::vector<Refusal> list = {
        {"merge of unknown tokens",
         [](json& f) {
             f["model"]["merges"].push_back(json::array({"qqq", "zzz"}));
         },
         ErrorCode::Corrupt, "qqq"},
        {"merge with an unknown result",
         [](json& f) {
             f["model"]["merges"].push_back(json::array({"q", "z"}));
         },
         ErrorCode::Corrupt, "q z"},
        {"merge of one part", [](json& f) { f["model"]["merges"].push_back(json::array({"q"})); },
         ErrorCode::Corrupt, "merges of two tokens"},
        {"merge of three parts",
         [](json& f) {
             f["model"]["merges"].push_back({"a", "b", "c"});
         },
         ErrorCode::Corrupt, "more than two"},
        {"merge text without a space", [](json& f) { f["model"]["merges"].push_back("ab"); },
         ErrorCode::Corrupt, "one space"},
        {"merge that is a number", [](json& f) { f["model"]["merges"].push_back(7); },
         ErrorCode::Corrupt, "pairs"},
        {"one id twice", [](json& f) { f["model"]["vocab"]["zz"] = 'z'; }, ErrorCode::Corrupt,
         "zz"},
        {"id below 0", [](json& f) { f["model"]["vocab"]["z"] = -1; }, ErrorCode::Corrupt,
         "found -1"},
        {"id that is a text", [](json& f) { f["model"]["vocab"]["z"] = "90"; }, ErrorCode::Corrupt,
         "\"z\""},
        {"huge id", [](json& f) { f["model"]["vocab"]["zz"] = 4294967290U; }, ErrorCode::Corrupt,
         "zz"},
        {"WordPiece", [](json& f) { f["model"]["type"] = "WordPiece"; }, ErrorCode::Unsupported,
         "WordPiece"},
        {"Unigram",
         [](json& f) {
             f["model"] = {
                 {"type", "Unigram"},
                 {"vocab", json::array({json::array({"a", -1.5}), json::array({"b", -2.0})})}};
         },
         ErrorCode::Unsupported, "Unigram"},
        {"no model", [](json& f) { f.erase("model"); }, ErrorCode::Corrupt, "model"},
        {"no vocabulary", [](json& f) { f["model"].erase("vocab"); }, ErrorCode::Corrupt, "vocab"},
        {"no merges", [](json& f) { f["model"].erase("merges"); }, ErrorCode::Corrupt, "merges"},
        {"added token with a used id", [](json& f) { f["added_tokens"][0]["id"] = 40; },
         ErrorCode::Corrupt, "<end>"},
        {"added token with two ids",
         [](json& f) { f["added_tokens"].push_back(tiny::added(310, "<end>", true)); },
         ErrorCode::Corrupt, "<end>"},
        {"added token with a huge id", [](json& f) { f["added_tokens"][0]["id"] = 4294967290U; },
         ErrorCode::Corrupt, "<end>"},
        {"added token without text", [](json& f) { f["added_tokens"][0].erase("content"); },
         ErrorCode::Corrupt, "content"},
        {"very long added token",
         [](json& f) { f["added_tokens"][0]["content"] = std::string(5000, 'x'); },
         ErrorCode::Unsupported, "5000"},
        {"unknown pre-tokenizer",
         [](json& f) {
             f["pre_tokenizer"]["pretokenizers"].insert(f["pre_tokenizer"]["pretokenizers"].begin(),
                                                        {{"type", "Quantum"}});
         },
         ErrorCode::Unsupported, "Quantum"},
        {"pre-tokenizer behind the byte level",
         [](json& f) {
             f["pre_tokenizer"]["pretokenizers"].push_back({{"type", "Quantum"}});
         },
         ErrorCode::Unsupported, "Quantum"},
        {"Metaspace",
         [](json& f) {
             f["pre_tokenizer"] = {{"type", "Metaspace"}};
         },
         ErrorCode::Unsupported, "Metaspace"},
        {"no pre-tokenizer", [](json& f) { f["pre_tokenizer"] = nullptr; }, ErrorCode::Unsupported,
         "ByteLevel"},
        {"unknown behaviour",
         [](json& f) { f["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Sideways"; },
         ErrorCode::Unsupported, "Sideways"},
        {"unknown normalizer",
         [](json& f) {
             f["normalizer"] = {{"type", "Shuffle"}};
         },
         ErrorCode::Unsupported, "Shuffle"},
        {"unknown decoder",
         [](json& f) {
             f["decoder"] = {{"type", "WordPiece"}};
         },
         ErrorCode::Unsupported, "WordPiece"},
        {"prefix of continuing words",
         [](json& f) { f["model"]["continuing_subword_prefix"] = "##"; }, ErrorCode::Unsupported,
         "##"},
        {"dropout", [](json& f) { f["model"]["dropout"] = 0.1; }, ErrorCode::Unsupported,
         "dropout"},
        {"byte fallback without all bytes",
         [](json& f) {
             f["model"]["byte_fallback"] = true;
             f["model"]["vocab"].erase("z");
         },
         ErrorCode::Unsupported, "byte_fallback"}};
    return list;
}

TEST(TokenizerFile, IsRefusedWithItsNameAndTheFact) {
    for (const Refusal& refusal : refusals()) {
        const Result<Tokenizer> refused = try_load(refusal.change);
        ASSERT_FALSE(refused.ok()) << refusal.about;
        const std::string text = refused.error().text();
        EXPECT_EQ(refused.error().code, refusal.code) << refusal.about << ": " << text;
        EXPECT_THAT(text, HasSubstr("tokenizer.json")) << refusal.about;
        EXPECT_THAT(text, HasSubstr(refusal.names)) << refusal.about;
        EXPECT_FALSE(refused.error().next_step.empty()) << refusal.about;
    }
}

TEST(TokenizerFile, IsRefusedWhenItIsNoJson) {
    const std::string whole = tiny::file().dump();
    const std::string twice = R"({"model":{"type":"BPE","vocab":{},"vocab":{},"merges":[]}})";
    const std::string same = R"({"model":{"type":"BPE","vocab":{"a":1,"a":2},"merges":[]},)"
                             R"("pre_tokenizer":{"type":"ByteLevel"}})";
    const std::string deep = "{\"model\":" + std::string(100'000, '[');
    const std::string skipped = R"({"model":{"vocab":)" + std::string(100'000, '[');
    for (const std::string& text :
         {std::string(), whole.substr(0, whole.size() / 2), deep, skipped, std::string("[]"),
          std::string("7"), twice, same, std::string("{\"a\":\"\xFF\"}"), whole + "x"}) {
        const Result<Tokenizer> refused = Tokenizer::from_json(text, "tokenizer.json");
        ASSERT_FALSE(refused.ok()) << text.substr(0, 50);
        EXPECT_EQ(refused.error().code, ErrorCode::Corrupt);
        EXPECT_THAT(refused.error().text(), HasSubstr("tokenizer.json"));
    }
}

TEST(TokenizerFile, IsAcceptedWithHarmlessOddities) {
    const Ids plain = raw(load(), "abc <end> bc");
    const Change oddities[] = {
        [](json& f) { f["added_tokens"][2]["id"] = 400; },
        [](json& f) { f["model"]["vocab"]["<end>"] = 300; },
        [](json& f) { f["added_tokens"].push_back(f["added_tokens"][0]); },
        [](json& f) { f["added_tokens"].push_back(tiny::added(310, "", true)); },
        [](json& f) { f["model"].erase("type"); },
        [](json& f) {
            f["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array()}};
        },
        [](json& f) { f["model"]["vocab"][std::string(4 << 20, 'a')] = 299; },
        [](json& f) { f["model"]["vocab"].erase(tiny::letter_of_byte(0xFF)); },
        [](json& f) {
            f["post_processor"] = {{"type", "TemplateProcessing"}};
        },
        [](json& f) { f["added_tokens"] = nullptr; }};
    for (const Change& change : oddities) {
        EXPECT_EQ(raw(load(change), "abc <end> bc"), plain);
    }
}

TEST(TokenizerFile, SaysWhenItIsNotThere) {
    const Result<Tokenizer> missing = Tokenizer::from_file("/nonexistent/tokenizer.json");
    ASSERT_FALSE(missing.ok());
    EXPECT_EQ(missing.error().code, ErrorCode::NotFound);
    EXPECT_THAT(missing.error().text(), HasSubstr("/nonexistent/tokenizer.json"));
    const Result<Tokenizer> folder = Tokenizer::from_file(testing::TempDir());
    ASSERT_FALSE(folder.ok());
    EXPECT_EQ(folder.error().code, ErrorCode::Unreadable);
}

TEST(Tokenizer, EncodesFromSeveralThreadsAlike) {
    const Tokenizer tokenizer = load();
    const std::string text = "abc <end> abcabc bc <think>\n eee";
    const Ids expected = tokenizer.encode(text, AddedTokens::Special);
    std::vector<int> n_equal(4);
    {
        std::vector<std::jthread> threads;
        for (int& n : n_equal) {
            threads.emplace_back([&] {
                for (int round = 0; round < 200; ++round) {
                    n += tokenizer.encode(text, AddedTokens::Special) == expected ? 1 : 0;
                }
            });
        }
    }
    EXPECT_THAT(n_equal, testing::Each(200));
}

}  // namespace
}  // namespace terrace
