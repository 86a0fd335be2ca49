// A template that takes no notice of tools, a system message or reasoning must not do so in
// silence: the engine finds out by rendering with and without.
#include <gtest/gtest.h>

#include "tests/engine/text_template/test_support.h"

namespace terrace {

namespace {

std::vector<TemplateInput> ignored(const std::string& source, const std::string& conversation) {
    const auto parsed = ChatTemplate::parse(source, "t");
    RenderRequest request;
    request.conversation = conversation;
    return parsed.value().ignored_inputs(request);
}

std::string demo() {
    return template_test::read_file(std::string(TERRACE_SOURCE_DIR) +
                                    "/tests/data/templates/terrace-demo.jinja");
}

}  // namespace

TEST(IgnoredInputs, TheDemoTemplateIgnoresToolsAndUsesTheSystemMessage) {
    EXPECT_EQ(ignored(demo(), R"({"messages": [{"role": "system", "content": "s"},
                                               {"role": "user", "content": "u"}],
                                  "tools": [{"function": {"name": "f"}}]})"),
              std::vector{TemplateInput::Tools});
}

TEST(IgnoredInputs, ReasoningOfPastTurnsIsIgnoredByTheDemoTemplateAndOfTheLastOneNot) {
    EXPECT_EQ(ignored(demo(), R"({"messages": [{"role": "user", "content": "u"},
                        {"role": "assistant", "content": "a", "reasoning": "r"},
                        {"role": "user", "content": "v"}]})"),
              std::vector{TemplateInput::Reasoning});
    EXPECT_TRUE(ignored(demo(), R"({"messages": [{"role": "user", "content": "u"},
                        {"role": "assistant", "content": "a", "reasoning": "r"}]})")
                    .empty());
}

TEST(IgnoredInputs, ATemplateOfUserTurnsOnlyIgnoresTheSystemMessage) {
    const std::string source =
        "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}{{ tools }}";
    EXPECT_EQ(ignored(source, R"({"messages": [{"role": "system", "content": "s"},
                                               {"role": "user", "content": "u"}],
                                  "tools": [{}]})"),
              std::vector{TemplateInput::System});
}

TEST(IgnoredInputs, NothingIsSaidOfInputsThatWereNotGivenOrOfRequestsThatFail) {
    EXPECT_TRUE(
        ignored("x", R"({"messages": [{"role": "user", "content": "u"}], "tools": []})").empty());
    EXPECT_TRUE(
        ignored("{{ raise_exception('no') }}", R"({"messages": [], "tools": [{}]})").empty());
}

}  // namespace terrace
