// What the tests of the template engine share: the reference clock, short ways to render.
#pragma once

#include <fstream>
#include <sstream>
#include <string>

#include "engine/text/template/chat_template.h"

namespace terrace::template_test {

/// The reference data was made at this time.
inline TemplateClock reference_clock() {
    return {2026, 1, 15, 9, 30, 0};
}

inline std::string read_file(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
}

/// Renders a template over the names of a JSON object. A template that does not parse comes back
/// as the failure of its parse.
inline RenderResult render_names(const std::string& source,
                                 const std::string& names = "{}",
                                 const TemplateLimits& limits = {}) {
    TemplateFailure failure;
    const auto parsed = ChatTemplate::parse(source, "test", &failure);
    return parsed.ok() ? parsed.value().render_names(names, reference_clock(), limits)
                       : RenderResult(failure);
}

/// The text, or "class: message" of the failure.
inline std::string text_or_error(const RenderResult& result) {
    return result.ok() ? result.prompt().text
                       : result.failure().error_class + ": " + result.failure().message;
}

}  // namespace terrace::template_test
