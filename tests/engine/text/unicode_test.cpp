// The classes and the normaliser over every code point, against what was measured through the
// published library; and small cases that need no measured data.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/text/nfc.h"
#include "engine/text/pre_tokenizer_pattern.h"
#include "engine/text/unicode_tables.h"
#include "engine/text/utf8.h"
#include "tests/engine/text/oracle_files.h"

namespace terrace {
namespace {

using nlohmann::json;

std::string utf8(std::initializer_list<char32_t> code_points) {
    std::string out;
    for (const char32_t c : code_points) {
        append_utf8(c, out);
    }
    return out;
}

std::string utf8_of_hex(const json& list) {
    std::string out;
    for (const json& hex : list) {
        append_utf8(static_cast<char32_t>(std::stoul(hex.get<std::string>(), nullptr, 16)), out);
    }
    return out;
}

bool is_surrogate(char32_t c) {
    return c >= 0xD800 && c <= 0xDFFF;
}

std::vector<bool> members_of(const json& ranges) {
    std::vector<bool> out(kLastCodePoint + 1);
    for (const json& range : ranges) {
        for (char32_t c = range[0].get<char32_t>(); c <= range[1].get<char32_t>(); ++c) {
            out[c] = true;
        }
    }
    return out;
}

/// Every code point but the surrogates, each followed by a line feed.
const std::string& all_lines() {
    static const std::string text = [] {
        std::string out;
        for (char32_t c = 0; c <= kLastCodePoint; ++c) {
            if (!is_surrogate(c)) {
                append_utf8(c, out);
                out.push_back('\n');
            }
        }
        return out;
    }();
    return text;
}

/// Which code points a pattern matches as a whole line or (for "\n" itself) at all.
std::vector<bool> matched_by(const std::string& pattern) {
    Result<ParsedRegex> parsed = parse_regex(pattern);
    EXPECT_TRUE(parsed.ok()) << parsed.error().text();
    Result<SplitPattern> compiled = SplitPattern::compile(*parsed);
    EXPECT_TRUE(compiled.ok()) << compiled.error().text();
    PatternSearch search;
    std::vector<bool> out(kLastCodePoint + 1);
    for (const PieceSpan& span : compiled->find_all(all_lines(), search)) {
        std::size_t at = span.begin;
        out[next_code_point(all_lines(), at)] = true;
    }
    return out;
}

std::size_t n_differences(const std::vector<bool>& a, const std::vector<bool>& b) {
    std::size_t n = 0;
    for (char32_t c = 0; c <= kLastCodePoint; ++c) {
        n += !is_surrogate(c) && a[c] != b[c] ? 1U : 0U;
    }
    return n;
}

class MeasuredUnicode : public testing::Test {
protected:
    void SetUp() override {
        const auto path = oracle::folder() / "unicode_classes.json";
        if (!std::filesystem::exists(path)) {
            GTEST_SKIP() << "skipped: 13 character classes and NFC over all code points, not "
                         << "found: " << path;
        }
        measured_ = oracle::read_json(path);
    }

    json measured_;
};

TEST_F(MeasuredUnicode, ClassesInPatternsEqualTheLibrarysOnEveryCodePoint) {
    EXPECT_EQ(measured_["classes"].size(), 13U);
    for (const auto& [name, ranges] : measured_["classes"].items()) {
        std::vector<bool> expected = members_of(ranges);
        EXPECT_EQ(n_differences(matched_by(name), expected), 0U) << name;
        if (name.starts_with("\\p{")) {
            const std::string negated = "\\P" + name.substr(2);
            std::vector<bool> others = matched_by(negated);
            others.flip();
            EXPECT_EQ(n_differences(others, expected), 0U) << negated;
        }
    }
}

TEST_F(MeasuredUnicode, LettersWithoutRegardToCaseEqualTheLibrarys) {
    std::size_t n_compared = 0;
    for (const auto& [letters, matches] : measured_["case_insensitive"].items()) {
        if (letters == "ss") {
            const Result<ParsedRegex> refused = parse_regex("(?i:ss)");
            ASSERT_FALSE(refused.ok());
            EXPECT_EQ(refused.error().code, ErrorCode::Unsupported);
            continue;
        }
        std::vector<bool> expected(kLastCodePoint + 1);
        for (const json& c : matches) {
            expected[c.get<char32_t>()] = true;
        }
        EXPECT_EQ(n_differences(matched_by("(?i:" + letters + ")"), expected), 0U) << letters;
        ++n_compared;
    }
    EXPECT_EQ(n_compared, 12U);
}

TEST_F(MeasuredUnicode, NfcOfEveryCodePointEqualsTheLibrarys) {
    const json& changed = measured_["nfc_of_single_code_points"];
    std::size_t n_changed = 0;
    for (char32_t c = 0; c <= kLastCodePoint; ++c) {
        if (is_surrogate(c)) {
            continue;
        }
        char key[8];
        std::snprintf(key, sizeof key, "%04X", static_cast<unsigned>(c));
        const std::string text = utf8({c});
        const bool changes = changed.contains(key);
        n_changed += changes ? 1U : 0U;
        ASSERT_EQ(to_nfc(text), changes ? utf8_of_hex(changed[key]) : text) << key;
    }
    EXPECT_EQ(n_changed, changed.size());
}

TEST_F(MeasuredUnicode, ReordersTheMarksThatTheLibraryReordersAndNoOthers) {
    const std::vector<bool> expected = members_of(measured_["nfc_reordered_marks"]);
    std::vector<bool> reordered(kLastCodePoint + 1);
    for (char32_t c = 0; c <= kLastCodePoint; ++c) {
        if (!is_surrogate(c)) {
            reordered[c] = to_nfc(utf8({0x4E2D, c, 0x334})) == utf8({0x4E2D, 0x334, c}) ||
                           to_nfc(utf8({0x4E2D, 0x316, c})) == utf8({0x4E2D, c, 0x316});
        }
    }
    EXPECT_EQ(n_differences(reordered, expected), 0U);
}

TEST_F(MeasuredUnicode, ProbesOfNewerVersionsOfUnicodeComeOutAsMeasured) {
    EXPECT_EQ(measured_["nfc_probes"].size(), 6U);
    for (const auto& [name, probe] : measured_["nfc_probes"].items()) {
        EXPECT_EQ(to_nfc(utf8_of_hex(probe["in"])), utf8_of_hex(probe["out"])) << name;
    }
}

TEST(CodePointSet, AgreesWithAPlainListOfMembersForSeededChanges) {
    constexpr char32_t kLast = 60;
    std::uint32_t state = 99;
    const auto draw = [&state](std::uint32_t n) {
        state = state * 1'664'525U + 1'013'904'223U;
        return (state >> 8) % n;
    };
    for (int round = 0; round < 2'000; ++round) {
        CodePointSet set;
        CodePointSet other;
        std::vector<bool> members(kLast + 1);
        std::vector<bool> other_members(kLast + 1);
        for (int i = 0; i < 8; ++i) {
            const char32_t first = draw(kLast);
            const char32_t last = first + draw(std::min<std::uint32_t>(6, kLast - first + 1));
            const bool to_other = i % 3 == 2;
            (to_other ? other : set).add(first, last);
            for (char32_t c = first; c <= last; ++c) {
                (to_other ? other_members : members)[c] = true;
            }
        }
        CodePointSet both = set;
        both.add(other);
        const CodePointSet common = set.intersection(other);
        const CodePointSet rest = set.complement();
        for (char32_t c = 0; c <= kLast; ++c) {
            ASSERT_EQ(set.contains(c), members[c]);
            ASSERT_EQ(both.contains(c), members[c] || other_members[c]);
            ASSERT_EQ(common.contains(c), members[c] && other_members[c]);
            ASSERT_EQ(rest.contains(c), !members[c]);
        }
        for (std::size_t i = 1; i < both.ranges().size(); ++i) {
            ASSERT_GT(both.ranges()[i].first, both.ranges()[i - 1].last + 1);
        }
        ASSERT_EQ(both, CodePointSet(both.ranges()));
    }
}

TEST(Nfc, ComposesDecomposesAndReorders) {
    EXPECT_EQ(to_nfc(""), "");
    EXPECT_EQ(to_nfc("plain text"), "plain text");
    EXPECT_EQ(to_nfc(utf8({'e', 0x301})), utf8({0xE9}));
    EXPECT_EQ(to_nfc(utf8({'a', 0x323, 0x302})), utf8({0x1EAD}));
    EXPECT_EQ(to_nfc(utf8({'a', 0x302, 0x323})), utf8({0x1EAD}));
    EXPECT_EQ(to_nfc(utf8({0x212B, 0x2126})), utf8({0xC5, 0x3A9}));
    EXPECT_EQ(to_nfc(utf8({0x1100, 0x1161, 0x11A8})), utf8({0xAC01}));
    EXPECT_EQ(to_nfc(utf8({0xAC00, 0x11A8})), utf8({0xAC01}));
    EXPECT_EQ(to_nfc(utf8({0xAC01, 0x11A8})), utf8({0xAC01, 0x11A8}));
    EXPECT_EQ(to_nfc(utf8({0x958})), utf8({0x915, 0x93C}));
    EXPECT_EQ(to_nfc(utf8({0x301, 'x'})), utf8({0x301, 'x'}));
    EXPECT_EQ(to_nfc(utf8({'e', 0x334, 0x301})), utf8({0xE9, 0x334}));
}

TEST(Nfc, IsItsOwnNormalFormForSeededText) {
    constexpr char32_t kSome[] = {'a',   'e',    0x301,  0x323,  0x334,  0x302,  0x345, 0x3B1,
                                  0x313, 0xAC00, 0x1100, 0x1161, 0x11A8, 0x9C7,  0x9BE, 0x915,
                                  0x93C, 0xF73,  0xF71,  0x1F71, 0x212B, 0x4E2D, 0x344, 0x1D15E};
    std::uint32_t state = 12345;
    for (int round = 0; round < 20'000; ++round) {
        std::string text;
        for (int i = 0; i < 8; ++i) {
            state = state * 1'664'525U + 1'013'904'223U;
            append_utf8(kSome[(state >> 8) % std::size(kSome)], text);
        }
        std::vector<NfcBlock> blocks;
        const std::string once = to_nfc(text, &blocks);
        ASSERT_EQ(to_nfc(once), once);
        std::size_t expected_begin = 0;
        std::string by_blocks;
        for (const NfcBlock& block : blocks) {
            ASSERT_EQ(block.in_begin, expected_begin);
            ASSERT_EQ(block.out_begin, by_blocks.size());
            by_blocks += to_nfc(text.substr(block.in_begin, block.in_end - block.in_begin));
            expected_begin = block.in_end;
        }
        ASSERT_EQ(expected_begin, text.size());
        ASSERT_EQ(by_blocks, once);
    }
}

TEST(Utf8, ReplacesEachMaximalIllFormedPart) {
    std::size_t n = 0;
    EXPECT_EQ(to_valid_utf8("a\xFF\xE4\xB8z\xF0\x9F", &n),
              "a\xEF\xBF\xBD\xEF\xBF\xBDz\xEF\xBF\xBD");
    EXPECT_EQ(n, 3U);
    EXPECT_EQ(to_valid_utf8("\xED\xA0\x80", &n), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
    EXPECT_EQ(to_valid_utf8("fine \xF0\x9F\x98\x80", &n), "fine \xF0\x9F\x98\x80");
    EXPECT_EQ(n, 0U);
}

TEST(Utf8, FindsTheUnfinishedTail) {
    EXPECT_EQ(unfinished_utf8_tail(""), 0U);
    EXPECT_EQ(unfinished_utf8_tail("abc"), 0U);
    EXPECT_EQ(unfinished_utf8_tail("a\xF0\x9F\x98"), 3U);
    EXPECT_EQ(unfinished_utf8_tail("a\xF0\x9F\x98\x80"), 0U);
    EXPECT_EQ(unfinished_utf8_tail("a\xC3"), 1U);
    EXPECT_EQ(unfinished_utf8_tail("\xE0\x80"), 0U);
    EXPECT_EQ(unfinished_utf8_tail("\xED\xA0"), 0U);
    EXPECT_EQ(unfinished_utf8_tail("\x80\x80\x80\x80"), 0U);
}

TEST(Utf8, CutsExcerptsAtWholeCharacters) {
    EXPECT_EQ(quoted_excerpt("short"), "\"short\"");
    const std::string text(59, 'a');
    EXPECT_EQ(quoted_excerpt(text + "\xC3\xA9 and more"), "\"" + text + "...\"");
}

}  // namespace
}  // namespace terrace
