// Refusals: what is wrong is named with its class, line and column, at load where it can be seen
// there, and no prompt is printed in part.
#include <gtest/gtest.h>

#include <array>

#include "tests/engine/text_template/test_support.h"

namespace terrace {

namespace {

using template_test::render_names;

struct Refusal {
    const char* source;
    const char* error_class;
    std::size_t line;
    std::size_t column;
};

constexpr std::array<Refusal, 12> kAtLoad{{
    {"a\n  {% nosuch %}", "TemplateSyntaxError", 2, 6},
    {"{{ 1 + }}", "TemplateSyntaxError", 1, 8},
    {"é {{ a b }}", "TemplateSyntaxError", 1, 8},
    {"{% if a %}\n", "TemplateSyntaxError", 1, 11},
    {"{{ 'abc }}", "TemplateSyntaxError", 1, 4},
    {"{{ (1] }}", "TemplateSyntaxError", 1, 6},
    {"\n{# x", "TemplateSyntaxError", 2, 3},
    {"x\n{{ 'a' |\n nosuch }}", "TemplateAssertionError", 3, 2},
    {"{{ a is nosuch }}", "TemplateAssertionError", 1, 9},
    {"{% break %}", "SyntaxError", 1, 4},
    {"{{ 'a\\ud800' }}", "TemplateSyntaxError", 1, 4},
    {"{% autoescape true %}{% endautoescape %}", "TemplateSyntaxError", 1, 4},
}};

constexpr std::array<Refusal, 10> kAtRender{{
    {"{{ x.y }}", "UndefinedError", 1, 6},
    {"a\n\n {{ 1 +\n 'a' }}", "TypeError", 3, 5},
    {"{% set l = [1] %}\n{{ l.append(2) }}", "SecurityError", 2, 12},
    {"{{ 1 / 0 }}", "ZeroDivisionError", 1, 4},
    {"{% for a in none %}{% endfor %}", "TypeError", 1, 4},
    {"{% if true %}{{ 'a' | nosuch }}{% endif %}", "TemplateRuntimeError", 1, 23},
    {"{{ [1, 2] | map('string') | tojson }}", "TypeError", 1, 29},
    {"{% macro m(a) %}\n{{ a.b.c }}{% endmacro %}{{ m({}) }}", "UndefinedError", 2, 8},
    {"{{ 'x' | random }}", "TemplateRuntimeError", 1, 10},
    {"{{ 'x'.casefold() }}", "TemplateRuntimeError", 1, 16},
}};

}  // namespace

TEST(TemplateErrors, WhatCannotBeParsedIsRefusedAtLoadWithLineAndColumn) {
    for (const Refusal& wanted : kAtLoad) {
        TemplateFailure failure;
        const auto parsed =
            ChatTemplate::parse(wanted.source, "model/chat_template.jinja", &failure);
        ASSERT_FALSE(parsed.ok()) << wanted.source;
        EXPECT_EQ(failure.error_class, wanted.error_class) << wanted.source;
        EXPECT_EQ(failure.line, wanted.line) << wanted.source;
        EXPECT_EQ(failure.column, wanted.column) << wanted.source;
        EXPECT_FALSE(failure.message.empty());
        EXPECT_EQ(parsed.error().context, "model/chat_template.jinja");
        EXPECT_EQ(parsed.error().code, ErrorCode::Unsupported);
        const std::string place = "line " + std::to_string(wanted.line) + ", column " +
                                  std::to_string(wanted.column) + ": ";
        EXPECT_NE(parsed.error().message.find(place), std::string::npos) << parsed.error().text();
        EXPECT_FALSE(parsed.error().next_step.empty());
    }
}

TEST(TemplateErrors, WhatFailsWhileRenderingNamesItsPlaceAndPrintsNothing) {
    for (const Refusal& wanted : kAtRender) {
        const RenderResult result = render_names(wanted.source);
        ASSERT_FALSE(result.ok()) << wanted.source;
        EXPECT_EQ(result.failure().error_class, wanted.error_class)
            << wanted.source << ": " << result.failure().message;
        EXPECT_EQ(result.failure().line, wanted.line) << wanted.source;
        EXPECT_EQ(result.failure().column, wanted.column) << wanted.source;
        EXPECT_EQ(result.error("t").code, ErrorCode::WrongUse);
    }
}

TEST(TemplateErrors, RequestsThatAreNotConversationsAreRefused) {
    const auto parsed = ChatTemplate::parse("{{ messages }}", "t");
    ASSERT_TRUE(parsed.ok());
    for (const char* conversation :
         {"", "[]", "{}", "{\"messages\": 1}", "{\"messages\": [}", "{\"messages\": [\"\\ud800\"]}",
          "{\"messages\": [], \"kwargs\": 3}"}) {
        RenderRequest request;
        request.conversation = conversation;
        const RenderResult result = parsed.value().render(request);
        ASSERT_FALSE(result.ok()) << conversation;
        EXPECT_EQ(result.failure().error_class, "ValueError") << conversation;
    }
}

TEST(TemplateErrors, ContinuingNeedsATextAndNoGenerationPrompt) {
    const auto parsed =
        ChatTemplate::parse("{% for m in messages %}{{ m.content }}{% endfor %}", "t");
    ASSERT_TRUE(parsed.ok());
    for (const char* conversation :
         {R"({"messages": [], "continue_final_message": true})",
          R"({"messages": [{"role": "a"}], "continue_final_message": true})",
          R"({"messages": [{"content": [{"x": 1}]}], "continue_final_message": true})",
          R"({"messages": [{"content": "x"}], "continue_final_message": true,
              "add_generation_prompt": true})"}) {
        RenderRequest request;
        request.conversation = conversation;
        const RenderResult result = parsed.value().render(request);
        ASSERT_FALSE(result.ok()) << conversation;
        EXPECT_EQ(result.failure().error_class, "ValueError") << conversation;
    }
}

TEST(TemplateErrors, SourcesThatAreNotTextAreRefused) {
    EXPECT_FALSE(ChatTemplate::parse("a\xff", "t").ok());
    EXPECT_FALSE(ChatTemplate::parse(std::string((1U << 20U) + 1, 'a'), "t").ok());
    EXPECT_TRUE(ChatTemplate::parse(std::string(1U << 20U, 'a'), "t").ok());
}

}  // namespace terrace
