#include "app/core/prompt.h"

#include <nlohmann/json.hpp>

#include "app/core/json_text.h"
#include "engine/text/template/chat_template.h"
#include "engine/text/tokenizer.h"
#include "engine/text/utf8.h"

namespace terrace::app {

namespace {

using Json = nlohmann::ordered_json;

/// Valid UTF-8; says once when something had to be replaced.
std::string cleanText(const std::string& text,
                      const char* what,
                      std::vector<std::string>& warnings) {
    std::size_t replaced = 0;
    std::string clean = to_valid_utf8(text, &replaced);
    if (replaced > 0) {
        warnings.push_back(std::string(what) + ": " + std::to_string(replaced) +
                           " byte sequences are not UTF-8 and were read as U+FFFD");
    }
    return clean;
}

const char* inputName(TemplateInput input) {
    switch (input) {
        case TemplateInput::Tools:
            return "tools";
        case TemplateInput::System:
            return "the system message";
        case TemplateInput::Reasoning:
            return "reasoning";
    }
    return "an input";
}

Result<PreparedPrompt> renderConversation(const ModelFolder& folder, std::string conversation) {
    if (folder.chat_template == nullptr) {
        return Error{ErrorCode::Unsupported, "this model has no chat template that can be used",
                     folder.path.filename().string(),
                     "Use --verbatim to give the text as it stands"};
    }
    RenderRequest request;
    request.conversation = std::move(conversation);
    request.special_tokens = folder.special_tokens;
    request.clock = TemplateClock::now();
    const RenderResult rendered = folder.chat_template->render(request);
    if (!rendered.ok()) {
        return rendered.error(folder.chat_template_origin);
    }
    PreparedPrompt out;
    std::vector<ByteSpan> raw;
    for (const TextSpan& span : rendered.prompt().user_spans) {
        raw.push_back({span.begin, span.end});
    }
    out.text = rendered.prompt().text;
    out.ids = folder.tokenizer->encode_prompt(out.text, raw);
    for (const TemplateInput input : folder.chat_template->ignored_inputs(request)) {
        out.warnings.push_back(std::string("the model's chat template takes no notice of ") +
                               inputName(input));
    }
    return out;
}

}  // namespace

Result<std::string> conversationText(const std::string& text, Thinking thinking) {
    Result<Json> parsed = parseJson(text, "messages");
    if (!parsed) {
        return std::move(parsed).error();
    }
    Json json = std::move(parsed).value();
    if (json.is_array()) {
        json = Json{{"messages", json}};
    }
    if (!json.is_object() || !json.contains("messages") || !json["messages"].is_array()) {
        return Error{ErrorCode::WrongUse,
                     "expected an array of messages, or an object with \"messages\"", "",
                     R"(For example [{"role": "user", "content": "Hello"}])"};
    }
    if (!json.contains("add_generation_prompt") && !json.contains("continue_final_message")) {
        json["add_generation_prompt"] = true;
    }
    if (thinking != Thinking::ModelDefault) {
        json["kwargs"]["enable_thinking"] = thinking == Thinking::On;
    }
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string conversationOf(const PromptInput& input) {
    Json conversation;
    conversation["messages"] = Json::array();
    if (!input.system.empty()) {
        conversation["messages"].push_back({{"role", "system"}, {"content", input.system}});
    }
    conversation["messages"].push_back({{"role", "user"}, {"content", input.text.value_or("")}});
    conversation["add_generation_prompt"] = true;
    if (input.thinking != Thinking::ModelDefault) {
        conversation["kwargs"]["enable_thinking"] = input.thinking == Thinking::On;
    }
    return conversation.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<PreparedPrompt> preparePrompt(const ModelFolder& folder, const PromptInput& input) {
    if (input.ids) {
        return PreparedPrompt{*input.ids, "", {}};
    }
    std::vector<std::string> warnings;
    Result<PreparedPrompt> prepared = Error{};
    if (input.verbatim) {
        PreparedPrompt out;
        out.text = cleanText(*input.verbatim, "prompt", warnings);
        out.ids = folder.tokenizer->encode(out.text, AddedTokens::Special);
        prepared = std::move(out);
    } else if (input.messages) {
        Result<std::string> conversation =
            conversationText(cleanText(*input.messages, "messages", warnings), input.thinking);
        if (!conversation) {
            return std::move(conversation).error();
        }
        prepared = renderConversation(folder, std::move(conversation).value());
    } else {
        PromptInput clean = input;
        clean.text = cleanText(input.text.value_or(""), "prompt", warnings);
        clean.system = cleanText(input.system, "system prompt", warnings);
        prepared = renderConversation(folder, conversationOf(clean));
    }
    if (prepared) {
        prepared->warnings.insert(prepared->warnings.begin(), warnings.begin(), warnings.end());
    }
    return prepared;
}

}  // namespace terrace::app
