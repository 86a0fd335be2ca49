// Thirty features that published chat templates rely on, each as a small template whose text was
// confirmed with the reference environment; and failures at load with their place.
#include <gtest/gtest.h>

#include <array>

#include "tests/engine/text_template/test_support.h"

namespace terrace {

namespace {

using template_test::render_names;
using template_test::text_or_error;

struct Feature {
    const char* name;
    const char* source;
    const char* names;
    const char* text;
};

constexpr const char* kMessages =
    R"({"messages": [{"role": "system", "content": " Be brief. "},
        {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "<think>a</think>b"},
        {"role": "user", "content": "é?"}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters":
        {"properties": {"b": {"type": "string"}, "a": {"type": ["null", "x"]}}}}}]})";

const std::array<Feature, 31> kFeatures{{
    {"slice from the second message", "{% for m in messages[1:] %}{{ m.role[0] }}{% endfor %}",
     kMessages, "uau"},
    {"slice backwards", "{{ messages[::-1][0].content }}", kMessages, "é?"},
    {"namespace kept across turns",
     "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}"
     "{{ ns.n }}",
     kMessages, "4"},
    {"set inside a turn is local",
     "{% set x = 1 %}{% for m in messages %}{% set x = 2 %}{% endfor %}{{ x }}", kMessages, "1"},
    {"macro with a default",
     "{% macro turn(role, end='.') %}[{{ role }}{{ end }}{% endmacro %}{{ turn('u') }}"
     "{{ turn('a', end='!') }}",
     "{}", "[u.[a!"},
    {"macro that calls itself",
     "{% macro walk(t) %}{% for k, v in t.items() %}{{ k }}{% if v is mapping %}({{ walk(v) }})"
     "{% endif %}{% endfor %}{% endmacro %}{{ walk(tools[0]) }}",
     kMessages, "typefunction(nameparameters(properties(b(type)a(type))))"},
    {"test: defined", "{{ tools is defined }} {{ docs is defined }}", kMessages, "True False"},
    {"test: string and mapping",
     "{{ messages[0].content is string }} {{ messages[0] is mapping }} {{ 1 is not string }}",
     kMessages, "True True True"},
    {"loop variables",
     "{% for m in messages %}{{ loop.index0 }}{{ 'F' if loop.first }}{{ 'L' if loop.last }}"
     "{% endfor %}",
     kMessages, "0F123L"},
    {"previous item",
     "{% for m in messages %}{{ loop.previtem.role[0] if loop.previtem is defined else '-' }}"
     "{% endfor %}",
     kMessages, "-sua"},
    {"loop with a condition",
     "{% for m in messages if m.role == 'user' %}{{ m.content }};{% endfor %}", kMessages,
     "Hi;é?;"},
    {"break", "{% for m in messages %}{{ m.role }}{% break %}{% endfor %}", kMessages, "system"},
    {"for over pairs", "{% for k, v in messages[0].items() %}{{ k }}:{{ v | length }} {% endfor %}",
     kMessages, "role:6 content:11 "},
    {"tojson keeps the order of keys", "{{ tools[0].function.parameters.properties | tojson }}",
     kMessages, R"({"b": {"type": "string"}, "a": {"type": ["null", "x"]}})"},
    {"tojson with indent", "{{ {'a': [1, {}], 'b': none} | tojson(indent=2) }}", "{}",
     "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": null\n}"},
    {"selectattr", "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
     kMessages, "2"},
    {"map and join", "{{ messages | map(attribute='role') | join('+') }}", kMessages,
     "system+user+assistant+user"},
    {"default of a missing name", "{{ x | default('d') }}{{ none | default('e', true) }}", "{}",
     "de"},
    {"dictsort", "{% for k, v in {'b': 1, 'a': 2} | dictsort %}{{ k }}{{ v }}{% endfor %}", "{}",
     "a2b1"},
    {"split to drop reasoning", "{{ messages[2].content.split('</think>')[-1] }}", kMessages, "b"},
    {"strip, lstrip, rstrip",
     "[{{ messages[0].content.strip() }}][{{ 'xa'.lstrip('x') }}][{{ 'a\n\n'.rstrip('\n') }}]",
     kMessages, "[Be brief.][a][a]"},
    {"startswith and endswith", "{{ 'tool_x'.startswith('tool') and 'tool_x'.endswith('_x') }}",
     "{}", "True"},
    {"in a list and in a text", "{{ 'a' in ['a'] }} {{ '</think>' in messages[2].content }}",
     kMessages, "True True"},
    {"joining with ~", "{{ 'n=' ~ 1 ~ none }}", "{}", "n=1None"},
    {"condition without else", "[{{ 'x' if false }}]", "{}", "[]"},
    {"white space control", "a\n  {%- if true %}\n b\n  {%- endif -%}\n c", "{}", "a bc"},
    {"blocks on their own line leave no line", "a\n  {% if true %}\nb\n  {% endif %}\nc", "{}",
     "a\nb\nc"},
    {"raw and comments", "{% raw %}{{ x }}{% endraw %}{# {{ y }} #}", "{}", "{{ x }}"},
    {"set block and filter block",
     "{% set x %}a{{ 1 }}{% endset %}{% filter upper %}{{ x }}b{% endfilter %}", "{}", "A1B"},
    {"the date", "{{ strftime_now('%d %B %Y') }}", "{}", "15 January 2026"},
    {"generation marks", "{% generation %}a{% endgeneration %}b", "{}", "ab"},
}};

}  // namespace

TEST(TemplateFeatures, EachFeatureOfPublishedTemplatesRendersAsTheReferenceDoes) {
    for (const Feature& feature : kFeatures) {
        EXPECT_EQ(text_or_error(render_names(feature.source, feature.names)), feature.text)
            << feature.name;
    }
}

TEST(TemplateFeatures, RaiseExceptionRefusesWithTheTemplatesOwnWordsAndItsLine) {
    const RenderResult result = render_names(
        "a\n{% if true %}\n  {{ raise_exception('no ' ~ 1) }}"
        "\n{% endif %}");
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.failure().error_class, "TemplateError");
    EXPECT_EQ(result.failure().message, "no 1");
    EXPECT_EQ(result.failure().line, 3U);
}

TEST(TemplateFeatures, UnboundedIntegersStopAt128BitsAndSayso) {
    EXPECT_EQ(text_or_error(render_names("{{ 10 ** 38 }}")),
              "100000000000000000000000000000000000000");
    const RenderResult result = render_names("{{ 10 ** 39 }}");
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.failure().error_class, "OverflowError");
}

}  // namespace terrace
