#include "engine/text/template/conversation.h"

#include <algorithm>
#include <array>

#include "engine/text/template/characters.h"
#include "engine/text/template/text_operations.h"

namespace terrace::jinja {

namespace {

constexpr std::string_view kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";
constexpr std::array<std::string_view, 3> kReasoningKeys{"reasoning_content", "thinking",
                                                         "reasoning"};

bool is_plain_role(std::string_view role) {
    return !role.empty() && std::all_of(role.begin(), role.end(),
                                        [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
}

bool is_reasoning_key(const Value& key) {
    return std::find(kReasoningKeys.begin(), kReasoningKeys.end(), key.text().bytes) !=
           kReasoningKeys.end();
}

/// Templates build `<|` + role + `|>`, so a role that is a plain word counts as the template's.
void trust_plain_role(const Dict& message) {
    const Value* role = message.find("role");
    if (role != nullptr && role->is_string() && is_plain_role(role->text().bytes)) {
        role->as<Text>().user.clear();
    }
}

/// Drops null values and gives the reasoning all the names that templates know it by.
Value normalised(Runtime& rt, const Dict& message, std::optional<TemplateInput> without) {
    std::vector<std::pair<Value, Value>> kept;
    for (const auto& [key, value] : message.entries) {
        const bool left_out = without == TemplateInput::Reasoning && is_reasoning_key(key);
        if (!value.is(Kind::None) && !left_out) {
            kept.emplace_back(key, value);
        }
    }
    const Value* reasoning = nullptr;
    const auto find = [&kept](std::string_view name) -> const Value* {
        for (const auto& [key, value] : kept) {
            if (key.text().bytes == name) {
                return &value;
            }
        }
        return nullptr;
    };
    for (const std::string_view name : kReasoningKeys) {
        reasoning = reasoning == nullptr ? find(name) : reasoning;
    }
    const Value made = rt.new_dict();
    auto& out = made.as<Dict>();
    if (reasoning != nullptr && find("thinking") == nullptr) {
        out.set(rt, rt.literal("thinking"), *reasoning);
    }
    for (const auto& [key, value] : kept) {
        out.set(rt, key, value);
    }
    if (reasoning != nullptr && find("reasoning_content") == nullptr) {
        out.set(rt, rt.literal("reasoning_content"), *reasoning);
    }
    return made;
}

bool is_system(const Value& message) {
    if (!message.is(Kind::Dict)) {
        return false;
    }
    const Value* role = message.dict().find("role");
    return role != nullptr && role->is_string() &&
           (role->text().bytes == "system" || role->text().bytes == "developer");
}

Value normalised_messages(Runtime& rt,
                          const std::vector<Value>& messages,
                          std::optional<TemplateInput> without) {
    std::vector<Value> out;
    for (const Value& message : messages) {
        if (!message.is(Kind::Dict)) {
            out.push_back(message);
            continue;
        }
        trust_plain_role(message.dict());
        if (!(without == TemplateInput::System && is_system(message))) {
            out.push_back(normalised(rt, message.dict(), without));
        }
    }
    Value made = rt.list(std::move(out));
    made.origin = Origin::User;
    return made;
}

/// Appends the tag by which the end of the final message is found again.
Value tagged(Runtime& rt, const Value& text) {
    TextBuilder builder(rt);
    builder.add(text.text());
    builder.add(kContinueTag, Origin::User);
    return builder.take();
}

Value fail_no_text(Runtime& rt) {
    return rt.fail(kValueError,
                   "continue_final_message is set but we could not find any text to continue in "
                   "the final message!");
}

/// Tags the text of the last message; returns the text as it was.
Value tag_final_message(Runtime& rt, const Value& messages) {
    const auto& list = messages.items();
    if (list.empty() || !list.back().is(Kind::Dict)) {
        return fail_no_text(rt);
    }
    auto& message = list.back().as<Dict>();
    const Value* content = message.find("content");
    if (content == nullptr) {
        return fail_no_text(rt);
    }
    if (content->is_string()) {
        const Value text = *content;
        message.set(rt, rt.literal("content"), tagged(rt, text));
        return text;
    }
    if (!content->is(Kind::List)) {
        return fail_no_text(rt);
    }
    for (auto part = content->items().rbegin(); part != content->items().rend(); ++part) {
        const Value* text = part->is(Kind::Dict) ? part->dict().find("text") : nullptr;
        if (text != nullptr && text->is_string()) {
            const Value before = *text;
            part->as<Dict>().set(rt, rt.literal("text"), tagged(rt, before));
            return before;
        }
    }
    return fail_no_text(rt);
}

bool flag(const Dict& conversation, std::string_view name) {
    const Value* value = conversation.find(name);
    return value != nullptr && truthy(*value);
}

void add_names(Runtime& rt, const RenderRequest& request, const Dict& conversation, Dict& names) {
    const auto given = [&conversation](std::string_view name) {
        const Value* value = conversation.find(name);
        return value == nullptr ? Value::none() : *value;
    };
    names.set(rt, rt.literal("tools"), given("tools"));
    names.set(rt, rt.literal("documents"), given("documents"));
    names.set(rt, rt.literal("add_generation_prompt"),
              Value::boolean(flag(conversation, "add_generation_prompt")));
    for (const auto& [name, text] : request.special_tokens) {
        names.set(rt, rt.literal(name), rt.literal(text));
    }
    const Value kwargs = given("kwargs");
    if (kwargs.is(Kind::Dict)) {
        for (const auto& [key, value] : kwargs.dict().entries) {
            names.set(rt, key, value);
        }
    } else if (!kwargs.is(Kind::None)) {
        rt.fail(kValueError, "expected kwargs to be an object, found " + type_name(kwargs));
    }
}

}  // namespace

PreparedRequest prepare(Runtime& rt,
                        const RenderRequest& request,
                        std::optional<TemplateInput> without) {
    PreparedRequest prepared;
    const Value conversation = from_json(rt, request.conversation);
    if (rt.failed()) {
        return prepared;
    }
    const Value* messages =
        conversation.is(Kind::Dict) ? conversation.dict().find("messages") : nullptr;
    if (messages == nullptr || !messages->is(Kind::List)) {
        rt.fail(kValueError, "expected an object with a list of messages, found none");
        return prepared;
    }
    if (without == TemplateInput::Tools) {
        conversation.as<Dict>().set(rt, rt.literal("tools"), Value::none());
    }
    prepared.names = rt.new_dict();
    auto& names = prepared.names.as<Dict>();
    const Value list = normalised_messages(rt, messages->items(), without);
    names.set(rt, rt.literal("messages"), list);
    if (flag(conversation.dict(), "continue_final_message")) {
        if (flag(conversation.dict(), "add_generation_prompt")) {
            rt.fail(kValueError,
                    "continue_final_message and add_generation_prompt are not compatible.");
            return prepared;
        }
        prepared.continuation = Continuation{tag_final_message(rt, list)};
    }
    add_names(rt, request, conversation.dict(), names);
    return prepared;
}

bool gives_input(const RenderRequest& request, TemplateInput input) {
    Runtime rt(request.limits, request.clock);
    const Value conversation = from_json(rt, request.conversation);
    if (rt.failed() || !conversation.is(Kind::Dict)) {
        return false;
    }
    if (input == TemplateInput::Tools) {
        return flag(conversation.dict(), "tools");
    }
    const Value* messages = conversation.dict().find("messages");
    if (messages == nullptr || !messages->is(Kind::List)) {
        return false;
    }
    const auto& list = messages->items();
    return std::any_of(list.begin(), list.end(), [input](const Value& message) {
        if (input == TemplateInput::System || !message.is(Kind::Dict)) {
            return is_system(message);
        }
        const auto& entries = message.dict().entries;
        return std::any_of(entries.begin(), entries.end(), [](const auto& entry) {
            return is_reasoning_key(entry.first) && truthy(entry.second);
        });
    });
}

void cut_at_continuation(Runtime& rt, const Continuation& continuation, RenderedPrompt& prompt) {
    const std::string_view tag = kContinueTag.substr(0, kContinueTag.size() - 1);
    const Value wanted = strip(rt, continuation.final_text.text(), Sides::Both, nullptr);
    const std::size_t place = prompt.text.rfind(tag);
    if (place == std::string::npos || prompt.text.find(wanted.text().bytes) == std::string::npos) {
        rt.fail(kValueError,
                "continue_final_message is set but the final message does not appear in the chat "
                "after applying the chat template! This can happen if the chat template deletes "
                "portions of the final message. Please verify the chat template and final message "
                "in your chat to ensure they are compatible.");
        return;
    }
    std::size_t end = place;
    // Without the space behind the tag, the template has trimmed the message: so do we.
    if (!std::string_view(prompt.text).substr(place).starts_with(kContinueTag)) {
        while (end > 0) {
            const CodePoint point = decode_before(prompt.text, end);
            if (!is_space(point.value)) {
                break;
            }
            end -= point.n_bytes;
        }
    }
    prompt.text.resize(end);
    std::erase_if(prompt.user_spans, [end](const TextSpan& span) { return span.begin >= end; });
    if (!prompt.user_spans.empty()) {
        prompt.user_spans.back().end = std::min(prompt.user_spans.back().end, end);
    }
}

}  // namespace terrace::jinja
