// Templates come from strangers: whatever they ask for, a rendering ends soon, within its memory,
// and never deeper than the stack.
#include <gtest/gtest.h>

#include <chrono>

#include "tests/engine/text_template/test_support.h"

namespace terrace {

namespace {

using template_test::render_names;

std::string repeated(const std::string& part, std::size_t times) {
    std::string out;
    for (std::size_t i = 0; i < times; ++i) {
        out += part;
    }
    return out;
}

void expect_limit(const std::string& source, const std::string& names = "{}") {
    const auto start = std::chrono::steady_clock::now();
    const RenderResult result = render_names(source, names);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    ASSERT_FALSE(result.ok()) << source.substr(0, 200);
    EXPECT_EQ(result.failure().error_class, "LimitError")
        << source.substr(0, 200) << ": " << result.failure().message;
    EXPECT_EQ(result.error("t").code, ErrorCode::TooLarge);
    // Generous: the point is seconds, not hours, also with sanitizers on a busy machine.
    EXPECT_LT(took.count(), 60.0) << source.substr(0, 200);
}

}  // namespace

TEST(TemplateLimits, DeepSourcesAreRefusedByTheParser) {
    constexpr std::size_t kMany = 20'000;
    expect_limit("{{ " + repeated("(", kMany) + "1" + repeated(")", kMany) + " }}");
    expect_limit("{{ " + repeated("[", kMany) + repeated("]", kMany) + " }}");
    expect_limit("{{ " + repeated("{1:", kMany) + "1" + repeated("}", kMany) + " }}");
    expect_limit("{{ " + repeated("-", kMany) + "1 }}");
    expect_limit("{{ " + repeated("not ", kMany) + "1 }}");
    expect_limit("{{ x" + repeated(".a", kMany) + " }}");
    expect_limit("{{ x" + repeated("[0]", kMany) + " }}");
    expect_limit("{{ x" + repeated("()", kMany) + " }}");
    expect_limit("{{ x" + repeated("|string", kMany) + " }}");
    expect_limit("{{ x" + repeated(" is defined", 1) + repeated("|list", kMany) + " }}");
    expect_limit("{{ 1" + repeated(" if 1 else 1", kMany) + " }}");
    expect_limit(repeated("{% if 1 %}", kMany) + repeated("{% endif %}", kMany));
    expect_limit(repeated("{% for a in [1] %}", kMany) + repeated("{% endfor %}", kMany));
    expect_limit("{% set x" + repeated("|string", kMany) + " %}{% endset %}");
}

TEST(TemplateLimits, LongFlatSourcesAreFine) {
    constexpr std::size_t kMany = 5'000;
    EXPECT_TRUE(render_names("{{ 1" + repeated(" + 1", kMany) + " }}").ok());
    EXPECT_TRUE(render_names("{{ 'a'" + repeated(" ~ 'a'", kMany) + " }}").ok());
    EXPECT_TRUE(render_names("{{ 0" + repeated(" or 0", kMany) + " }}").ok());
    EXPECT_TRUE(render_names(repeated("{% if 1 %}a{% endif %}", kMany)).ok());
    EXPECT_TRUE(render_names("{% if 0 %}" + repeated("{% elif 0 %}", kMany) + "{% endif %}").ok());
}

TEST(TemplateLimits, EndlessRecursionEnds) {
    expect_limit("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}");
    expect_limit("{% macro m() %}{% if 1 %}{{ [m()] | list }}{% endif %}{% endmacro %}{{ m() }}");
    expect_limit("{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}");
    expect_limit("{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}");
}

TEST(TemplateLimits, WorkIsBounded) {
    expect_limit(
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}");
    expect_limit("{% for a in range(100000) %}{{ range(100000) | sum }}{% endfor %}");
    expect_limit(
        "{% set a = 'a' * 1000000 %}{% for i in range(100000) %}{{ a.count('b') }}{% endfor %}");
    expect_limit(
        "{% set a = 'a' * 300000 %}{% for i in range(100000) %}"
        "{{ (a ~ 'b') in (a ~ a) }}{% endfor %}");
    expect_limit(
        "{% set ns = namespace(x=[1]) %}{% for i in range(100) %}"
        "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x == [ns.x] }}{{ ns.x }}");
}

TEST(TemplateLimits, MemoryAndOutputAreBounded) {
    expect_limit("{{ 'a' * 100000000000 }}");
    expect_limit("{{ [1] * 100000000000 }}");
    expect_limit(
        "{% set ns = namespace(x='ab') %}{% for i in range(100) %}"
        "{% set ns.x = ns.x + ns.x %}{% endfor %}");
    expect_limit(
        "{% set ns = namespace(x=[1]) %}{% for i in range(100) %}"
        "{% set ns.x = ns.x + ns.x %}{% endfor %}");
    expect_limit("{% set a = 'a' * 100000 %}{{ a.replace('a', a) }}");
    expect_limit("{% set a = 'a' * 1000000 %}{% for i in range(1000) %}{{ a }}{% endfor %}");
    expect_limit("{{ 'a'.center(100000000000) }}");
    expect_limit("{{ '%999999999d' % 1 }}");
    expect_limit("{{ '{:999999999}'.format(1) }}");
}

TEST(TemplateLimits, DeepValuesAreRefusedWhenWalked) {
    const std::string deep =
        "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}"
        "{% set ns.x = [ns.x] %}{% endfor %}";
    expect_limit(deep + "{{ ns.x }}");
    expect_limit(deep + "{{ ns.x | tojson }}");
    expect_limit(deep + "{{ ns.x == [ns.x] }}");
    expect_limit(deep + "{{ [ns.x, [ns.x]] | sort }}");
    expect_limit(
        "{% set ns = namespace(x=(1,)) %}{% for i in range(100000) %}"
        "{% set ns.x = (ns.x,) %}{% endfor %}{{ {ns.x: 1} }}");
    expect_limit(
        "{% set ns = namespace(x=[1]) %}{% for i in range(100000) %}"
        "{% set ns.x = ns.x | select %}{% endfor %}{{ ns.x | list }}");
    expect_limit("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}");
    expect_limit("{{ x }}", "{\"x\": " + repeated("[", 100000) + repeated("]", 100000) + "}");
}

TEST(TemplateLimits, ALongConversationStaysFarFromTheLimits) {
    const auto parsed =
        ChatTemplate::parse(template_test::read_file(std::string(TERRACE_SOURCE_DIR) +
                                                     "/tests/data/templates/terrace-demo.jinja"),
                            "demo");
    ASSERT_TRUE(parsed.ok());
    std::string messages;
    for (int i = 0; i < 2000; ++i) {
        messages += std::string(i == 0 ? "" : ",") + R"({"role": "user", "content": ")" +
                    repeated("word ", 100) + R"("},{"role": "assistant", "content": "answer"})";
    }
    RenderRequest request;
    request.conversation = "{\"messages\": [" + messages + "], \"add_generation_prompt\": true}";
    request.limits.max_steps = 1'000'000;
    const RenderResult result = parsed.value().render(request);
    ASSERT_TRUE(result.ok()) << result.failure().message;
    EXPECT_GT(result.prompt().text.size(), 1'000'000U);
}

}  // namespace terrace
