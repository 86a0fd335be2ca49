#include "app/core/json_text.h"

#include <algorithm>

namespace terrace::app {

namespace {

constexpr int kDeepest = 200;

/// Deepest nesting of brackets outside of strings.
int nestingOf(std::string_view text) {
    int depth = 0;
    int deepest = 0;
    bool inString = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (inString) {
            i += c == '\\' ? 1 : 0;
            inString = c != '"';
        } else if (c == '"') {
            inString = true;
        } else if (c == '[' || c == '{') {
            deepest = std::max(deepest, ++depth);
        } else if (c == ']' || c == '}') {
            --depth;
        }
    }
    return deepest;
}

}  // namespace

Result<nlohmann::ordered_json> parseJson(std::string_view text, const std::string& what) {
    if (const int depth = nestingOf(text); depth > kDeepest) {
        return Error{ErrorCode::WrongUse,
                     "the JSON nests " + std::to_string(depth) + " deep; at most " +
                         std::to_string(kDeepest) + " is read",
                     what, ""};
    }
    nlohmann::ordered_json json = nlohmann::ordered_json::parse(text, nullptr, false);
    if (json.is_discarded()) {
        return Error{ErrorCode::WrongUse, "not valid JSON", what, ""};
    }
    return json;
}

}  // namespace terrace::app
