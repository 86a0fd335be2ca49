// The template engine against what the reference environment renders: published templates over
// conversations, and small expressions. The data is other people's and read from its own folder.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/engine/text_template/test_support.h"

namespace terrace {

namespace {

using template_test::read_file;
using Json = nlohmann::ordered_json;

const std::string kFolder = std::string(TERRACE_ORACLE_DIR) + "/templates/";

bool has_reference(const std::string& file) {
    return std::filesystem::exists(kFolder + file);
}

Json read_json(const std::string& file) {
    return Json::parse(read_file(kFolder + file));
}

/// Where the golden is an error, ours must be one; from raise_exception with its text and line.
std::string compare(const Json& golden, const RenderResult& ours) {
    if (golden.contains("text")) {
        if (!ours.ok()) {
            return "we fail with " + template_test::text_or_error(ours);
        }
        const auto expected = golden["text"].get<std::string>();
        if (expected == ours.prompt().text) {
            return "";
        }
        std::size_t at = 0;
        while (at < expected.size() && at < ours.prompt().text.size() &&
               expected[at] == ours.prompt().text[at]) {
            ++at;
        }
        const std::size_t from = at < 30 ? 0 : at - 30;
        return "texts differ at byte " + std::to_string(at) + ": expected <<" +
               expected.substr(from, 90) + ">> found <<" + ours.prompt().text.substr(from, 90) +
               ">>";
    }
    if (ours.ok()) {
        return "the reference refuses with " + golden["message"].get<std::string>();
    }
    if (golden["error"] == "TemplateError" &&
        (ours.failure().error_class != "TemplateError" ||
         ours.failure().message != golden["message"].get<std::string>() ||
         ours.failure().line != golden["line"].get<std::size_t>())) {
        return "expected " + golden.dump() + " found " + template_test::text_or_error(ours) +
               " line " + std::to_string(ours.failure().line);
    }
    return "";
}

}  // namespace

TEST(TemplateGolden, EveryPublishedTemplateRendersEveryConversationAsTheReferenceDoes) {
    if (!has_reference("conversations.json")) {
        GTEST_SKIP() << "skipped 1860 golden renderings: no reference data in " << kFolder;
    }
    const Json conversations = read_json("conversations.json");
    std::size_t n_pairs = 0;
    std::size_t n_errors = 0;
    std::size_t n_same_class = 0;
    const Json templates = read_json("templates.json");
    for (const auto& entry : templates) {
        const auto name = entry["name"].get<std::string>();
        auto parsed = ChatTemplate::parse(read_file(kFolder + name + ".jinja"), name);
        ASSERT_TRUE(parsed.ok()) << name << ": " << parsed.error().text();
        const Json golden = read_json(name + ".golden.json")["results"];
        for (const auto& conversation : conversations) {
            RenderRequest request;
            request.conversation = conversation.dump();
            request.clock = template_test::reference_clock();
            for (const auto& [key, value] : entry["special_tokens"].items()) {
                request.special_tokens.emplace_back(key, value.get<std::string>());
            }
            const auto title = conversation["name"].get<std::string>();
            const RenderResult ours = parsed.value().render(request);
            const Json& wanted = golden[title];
            EXPECT_EQ(compare(wanted, ours), "") << name << " / " << title;
            ++n_pairs;
            if (wanted.contains("error")) {
                ++n_errors;
                const bool same = !ours.ok() && ours.failure().error_class == wanted["error"];
                n_same_class += same ? 1 : 0;
                EXPECT_TRUE(same) << name << " / " << title << ": " << wanted.dump() << " ours "
                                  << template_test::text_or_error(ours);
            }
        }
    }
    EXPECT_EQ(n_pairs, 1860U);
    EXPECT_EQ(n_errors, 200U);
    EXPECT_EQ(n_same_class, n_errors);
}

TEST(TemplateGolden, EveryExpressionCaseGivesTheReferencesTextOrError) {
    if (!has_reference("expressions.json")) {
        GTEST_SKIP() << "skipped 485 expression cases: no reference data in " << kFolder;
    }
    std::size_t n_cases = 0;
    std::size_t n_same_message = 0;
    std::size_t n_errors = 0;
    const Json cases = read_json("expressions.json")["cases"];
    for (const auto& item : cases) {
        const auto source = item["template"].get<std::string>();
        const std::string names = item.contains("context") ? item["context"].dump() : "{}";
        TemplateFailure failure;
        const auto parsed = ChatTemplate::parse(source, "case", &failure);
        const RenderResult ours = template_test::render_names(source, names);
        EXPECT_EQ(compare(item, ours), "") << source << " over " << names;
        ++n_cases;
        if (!item.contains("error") || ours.ok()) {
            continue;
        }
        ++n_errors;
        EXPECT_EQ(parsed.ok(), item["when"] == "render") << source;
        EXPECT_EQ(ours.failure().error_class, item["error"].get<std::string>()) << source;
        if (item["error"] != "SyntaxError") {
            EXPECT_EQ(ours.failure().line, item["line"].get<std::size_t>()) << source;
        }
        EXPECT_GT(ours.failure().column, 0U) << source;
        const bool same_message = ours.failure().message == item["message"].get<std::string>();
        n_same_message += same_message ? 1 : 0;
        if (!same_message) {
            std::cout << "other words for " << source << ": " << item["message"] << " / "
                      << ours.failure().message << "\n";
        }
    }
    EXPECT_EQ(n_cases, 485U);
    std::cout << n_same_message << " of " << n_errors << " error messages are word for word\n";
}

}  // namespace terrace
