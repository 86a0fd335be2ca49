// Template and tokenizer together: the ids of a whole conversation against those that the reference
// library gives. The data is other people's and read from its own folder.
//
// Terrace reads the text of a request raw: an added token spelled out in it is ordinary text, where
// the reference sees the token. Those conversations are listed by name below and must differ in
// that way only; all others must be equal. The reference data also has a column "sanitized", its
// own way to disarm such text: it cuts the text around each token and encodes the pieces apart.
// That is not what raw reading does, so the column is not looked at.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/text/template/chat_template.h"
#include "engine/text/tokenizer.h"
#include "tests/engine/text/oracle_files.h"
#include "tests/engine/text_template/test_support.h"

namespace terrace {

namespace {

using Json = nlohmann::ordered_json;
using Ids = std::vector<std::int32_t>;

constexpr std::size_t kConversations = 30;

/// Conversations whose messages spell an added token of this tokenizer.
const std::map<std::string, std::set<std::string>>& deviating() {
    static const std::map<std::string, std::set<std::string>> list{
        {"gptoss", {"special tokens in user text"}},
        {"qwen3", {"special tokens in user text", "Jinja, quotes and braces in user text"}},
        {"deepseek_v3", {"special tokens in user text"}},
        {"demo", {"special tokens in user text"}}};
    return list;
}

std::filesystem::path template_folder() {
    return std::filesystem::path(TERRACE_ORACLE_DIR) / "templates";
}

Json read_json(const std::string& file) {
    return Json::parse(template_test::read_file((template_folder() / file).string()));
}

/// One conversation, rendered and encoded by us, beside the reference's row.
struct Case {
    std::string name;
    Json golden;
    RenderResult rendered = TemplateFailure{};
    std::vector<ByteSpan> user_spans;
    Ids ours;

    [[nodiscard]] Ids theirs() const { return golden["ids"].get<Ids>(); }
};

/// A token and the bytes of the prompt that it stands for.
struct PlacedToken {
    ByteSpan bytes;
    std::int32_t id = -1;

    auto key() const { return std::tuple(bytes.begin, bytes.end, id); }

    bool operator<(const PlacedToken& other) const { return key() < other.key(); }
};

bool overlap(const ByteSpan& a, const ByteSpan& b) {
    return a.begin < b.end && b.begin < a.end;
}

std::string print(const PlacedToken& token, const Tokenizer& tokenizer) {
    return std::to_string(token.id) + " <<" + std::string(tokenizer.piece_bytes(token.id)) +
           ">> at byte " + std::to_string(token.bytes.begin);
}

/// Where two lists of ids part, in words; empty when they are equal.
std::string difference(const Ids& expected, const Ids& found, const Tokenizer& tokenizer) {
    const auto [e, f] = std::mismatch(expected.begin(), expected.end(), found.begin(), found.end());
    if (e == expected.end() && f == found.end()) {
        return "";
    }
    const auto around = [&](const Ids& ids, Ids::const_iterator at) {
        const auto from = at - std::min<std::ptrdiff_t>(3, at - ids.begin());
        const auto to = at + std::min<std::ptrdiff_t>(8, ids.end() - at);
        std::string out;
        for (auto it = from; it != to; ++it) {
            out += std::to_string(*it) + "<<" + std::string(tokenizer.piece_bytes(*it)) + ">> ";
        }
        return out;
    };
    return "ids part at index " + std::to_string(e - expected.begin()) + ": expected " +
           around(expected, e) + "found " + around(found, f);
}

/// Puts the tokens behind each other.
std::vector<PlacedToken> place(const Ids& ids, const Tokenizer& tokenizer) {
    std::vector<PlacedToken> out;
    std::size_t at = 0;
    for (const std::int32_t id : ids) {
        const std::size_t end = at + tokenizer.piece_bytes(id).size();
        out.push_back({{at, end}, id});
        at = end;
    }
    return out;
}

/// The tokens of either list that the other has not, joined where they touch: where the two
/// readings disagree.
std::vector<ByteSpan> disagreements(std::vector<PlacedToken> a, std::vector<PlacedToken> b) {
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    std::vector<PlacedToken> differing;
    std::set_symmetric_difference(a.begin(), a.end(), b.begin(), b.end(),
                                  std::back_inserter(differing));
    std::vector<ByteSpan> out;
    for (const PlacedToken& token : differing) {
        if (!out.empty() && token.bytes.begin <= out.back().end) {
            out.back().end = std::max(out.back().end, token.bytes.end);
        } else {
            out.push_back(token.bytes);
        }
    }
    return out;
}

class ChatIds : public testing::TestWithParam<std::string> {
protected:
    void SetUp() override {
        if (!std::filesystem::exists(template_folder() / "chat_ids.json") || !oracle::is_there()) {
            std::cout << "skipped: chat ids of " << GetParam() << ", no reference data in "
                      << TERRACE_ORACLE_DIR << "\n";
            GTEST_SKIP() << "skipped " << kConversations << " conversations of " << GetParam();
        }
        auto tokenizer = Tokenizer::from_json(oracle::tokenizer_text(GetParam()), GetParam());
        ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().text();
        tokenizer_ = std::move(tokenizer).value();
        for (const AddedToken& token : tokenizer_->added_tokens()) {
            added_.insert(token.id);
        }
        const Json rows = read_json("chat_ids.json")[GetParam()];
        const Json conversations = read_json("conversations.json");
        ASSERT_EQ(conversations.size(), kConversations);
        ASSERT_EQ(rows["conversations"].size(), kConversations);
        render_all(rows, conversations);
    }

    [[nodiscard]] bool is_listed(const std::string& conversation) const {
        return deviating().at(GetParam()).contains(conversation);
    }

    [[nodiscard]] bool is_added_inside(const PlacedToken& token,
                                       const std::vector<ByteSpan>& spans) const {
        return added_.contains(token.id) &&
               std::any_of(spans.begin(), spans.end(),
                           [&](const ByteSpan& span) { return overlap(span, token.bytes); });
    }

    [[nodiscard]] const Tokenizer& tokenizer() const { return *tokenizer_; }

    std::vector<Case> cases_;

private:
    void render_all(const Json& rows, const Json& conversations) {
        const auto name = rows["template"].get<std::string>();
        const auto parsed = ChatTemplate::parse(
            template_test::read_file((template_folder() / (name + ".jinja")).string()), name);
        ASSERT_TRUE(parsed.ok()) << parsed.error().text();
        RenderRequest request;
        request.clock = template_test::reference_clock();
        const Json templates = read_json("templates.json");
        for (const auto& entry : templates) {
            if (entry["name"] != name) {
                continue;
            }
            for (const auto& [key, value] : entry["special_tokens"].items()) {
                request.special_tokens.emplace_back(key, value.get<std::string>());
            }
        }
        for (const auto& conversation : conversations) {
            Case one;
            one.name = conversation["name"].get<std::string>();
            one.golden = rows["conversations"].at(one.name);
            request.conversation = conversation.dump();
            one.rendered = parsed.value().render(request);
            if (one.rendered.ok()) {
                for (const TextSpan& span : one.rendered.prompt().user_spans) {
                    one.user_spans.push_back({span.begin, span.end});
                }
                one.ours = tokenizer_->encode_prompt(one.rendered.prompt().text, one.user_spans);
            }
            cases_.push_back(std::move(one));
        }
    }

    std::optional<Tokenizer> tokenizer_;
    std::set<std::int32_t> added_;
};

}  // namespace

TEST_P(ChatIds, AreTheReferencesForEveryConversationThatIsNotListed) {
    std::size_t n_equal = 0;
    std::size_t n_refused = 0;
    for (const Case& one : cases_) {
        if (is_listed(one.name)) {
            continue;
        }
        if (one.golden.contains("error")) {
            EXPECT_FALSE(one.rendered.ok())
                << one.name << ": the reference refuses with " << one.golden["error"];
            n_refused += one.rendered.ok() ? 0 : 1;
            continue;
        }
        EXPECT_TRUE(one.rendered.ok())
            << one.name << ": " << template_test::text_or_error(one.rendered);
        const std::string found = difference(one.theirs(), one.ours, tokenizer());
        EXPECT_EQ(found, "") << one.name;
        n_equal += found.empty() ? 1 : 0;
    }
    std::cout << GetParam() << ": " << n_equal << " equal, " << n_refused << " refused by both, "
              << deviating().at(GetParam()).size() << " listed as different\n";
    EXPECT_EQ(n_equal + n_refused + deviating().at(GetParam()).size(), kConversations);
}

TEST_P(ChatIds, DifferInListedConversationsOnlyWhereTheRequestSpellsAnAddedToken) {
    std::size_t n_listed = 0;
    for (const Case& one : cases_) {
        if (!is_listed(one.name)) {
            continue;
        }
        ++n_listed;
        SCOPED_TRACE(GetParam() + " / " + one.name);
        ASSERT_TRUE(one.rendered.ok()) << template_test::text_or_error(one.rendered);
        ASSERT_TRUE(one.golden.contains("ids"));
        const std::string& text = one.rendered.prompt().text;
        // Both readings are of the same bytes, so places in one are places in the other.
        ASSERT_EQ(tokenizer().decode(one.ours), text);
        ASSERT_EQ(tokenizer().decode(one.theirs()), text);
        const auto ours = place(one.ours, tokenizer());
        const auto theirs = place(one.theirs(), tokenizer());
        ASSERT_EQ(ours.back().bytes.end, text.size());
        ASSERT_EQ(theirs.back().bytes.end, text.size());

        for (const PlacedToken& token : ours) {
            EXPECT_FALSE(is_added_inside(token, one.user_spans))
                << "in user text: " << print(token, tokenizer());
        }
        const auto places = disagreements(ours, theirs);
        EXPECT_FALSE(places.empty()) << "equal ids: strike it from the list";
        for (const ByteSpan& place : places) {
            const bool intended =
                std::any_of(theirs.begin(), theirs.end(), [&](const PlacedToken& token) {
                    return overlap(place, token.bytes) && is_added_inside(token, one.user_spans);
                });
            EXPECT_TRUE(intended) << "no added token of the request in <<"
                                  << text.substr(place.begin, place.end - place.begin)
                                  << ">> at byte " << place.begin;
        }
    }
    EXPECT_EQ(n_listed, deviating().at(GetParam()).size()) << "a listed name is not a conversation";
}

INSTANTIATE_TEST_SUITE_P(Tokenizers,
                         ChatIds,
                         testing::Values("gptoss", "qwen3", "deepseek_v3", "demo"),
                         [](const auto& named) { return named.param; });

}  // namespace terrace
