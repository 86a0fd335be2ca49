// A model's own chat template: Jinja text that turns a conversation into the one text the model
// reads. First step of the way of a token: messages -> prompt text -> tokenizer.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/device/result.h"
#include "engine/text/template/text_span.h"

namespace terrace {

namespace jinja {
struct TemplateTree;
}

/// Why a template was refused or a rendering failed. Lines and columns count from 1; 0 = unknown.
/// `error_class` is the name that the reference environment uses (TemplateSyntaxError,
/// UndefinedError, TemplateError for the template's own raise_exception ...); LimitError is ours.
struct TemplateFailure {
    std::string error_class;
    std::string message;
    std::size_t line = 0;
    std::size_t column = 0;
};

/// Bounds of one rendering: templates come from strangers.
struct TemplateLimits {
    std::size_t max_steps = 10'000'000;
    std::size_t max_output_bytes = std::size_t{64} << 20U;
    std::size_t max_memory_bytes = std::size_t{512} << 20U;
    std::size_t max_depth = 800;
};

/// What strftime_now sees: local time.
struct TemplateClock {
    int year = 1970;
    int month = 1;  ///< 1 to 12
    int day = 1;
    int hour = 0;
    int minute = 0;
    int second = 0;

    /// The system's local time.
    static TemplateClock now();
};

/// What to render. `conversation` is JSON text: an object {messages, tools, documents,
/// add_generation_prompt, continue_final_message, kwargs}; all but messages may be missing. The
/// order of keys matters.
struct RenderRequest {
    std::string conversation;
    std::vector<std::pair<std::string, std::string>> special_tokens;  ///< "bos_token" -> text
    TemplateClock clock;
    TemplateLimits limits;
};

/// The text for the tokenizer. `user_spans` are the byte ranges that came from the request
/// (messages, tools, documents, kwargs): no special token may be recognised inside them.
struct RenderedPrompt {
    std::string text;
    std::vector<TextSpan> user_spans;  ///< in order, apart from each other
};

/// A prompt or the reason why there is none. Value type.
class [[nodiscard]] RenderResult {
public:
    RenderResult(RenderedPrompt prompt) : state_(std::move(prompt)) {}

    RenderResult(TemplateFailure failure) : state_(std::move(failure)) {}

    [[nodiscard]] bool ok() const { return state_.index() == 0; }

    [[nodiscard]] const RenderedPrompt& prompt() const { return std::get<0>(state_); }

    [[nodiscard]] const TemplateFailure& failure() const { return std::get<1>(state_); }

    /// The failure as the engine's error; `origin` names the template.
    [[nodiscard]] Error error(const std::string& origin) const;

private:
    std::variant<RenderedPrompt, TemplateFailure> state_;
};

/// Inputs a template may take no notice of.
enum class TemplateInput { Tools, System, Reasoning };

/// A parsed template. Immutable after construction; thread-safe; owner: the model's text layer.
/// Errors carry line and column. Nothing is thrown.
class ChatTemplate {
public:
    /// `origin` names the template in errors (a file name). `failure`, when given, receives the
    /// parts of the error.
    static Result<ChatTemplate> parse(std::string_view source,
                                      const std::string& origin,
                                      TemplateFailure* failure = nullptr);

    ChatTemplate(ChatTemplate&&) noexcept;
    ChatTemplate& operator=(ChatTemplate&&) noexcept;
    ~ChatTemplate();

    [[nodiscard]] RenderResult render(const RenderRequest& request) const;

    /// Which of the given inputs leave the rendered text unchanged: rendered with and without.
    /// Empty when the request itself does not render.
    [[nodiscard]] std::vector<TemplateInput> ignored_inputs(const RenderRequest& request) const;

    /// Renders with the top-level names of a JSON object instead of a conversation, for tests of
    /// the language itself.
    [[nodiscard]] RenderResult render_names(std::string_view names_json,
                                            const TemplateClock& clock,
                                            const TemplateLimits& limits) const;

    [[nodiscard]] const std::string& origin() const { return origin_; }

private:
    ChatTemplate(std::unique_ptr<const jinja::TemplateTree> tree, std::string origin);
    std::unique_ptr<const jinja::TemplateTree> tree_;
    std::string origin_;
};

}  // namespace terrace
