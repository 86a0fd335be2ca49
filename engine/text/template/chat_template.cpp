#include "engine/text/template/chat_template.h"

#include <ctime>
#include <exception>
#include <new>
#include <optional>

#include "engine/text/template/characters.h"
#include "engine/text/template/conversation.h"
#include "engine/text/template/evaluator.h"
#include "engine/text/template/parser.h"

namespace terrace {

namespace {

/// The longest published template has 17 kB.
constexpr std::size_t kMaxSourceBytes = std::size_t{1} << 20U;

TemplateFailure refused(const char* error_class, std::string message) {
    return {error_class, std::move(message), 1, 1};
}

std::unique_ptr<const jinja::TemplateTree> compile(std::string_view source,
                                                   TemplateFailure& failure) {
    if (source.size() > kMaxSourceBytes) {
        failure = refused(jinja::kLimitError, "expected a template of at most " +
                                                  std::to_string(kMaxSourceBytes) +
                                                  " bytes, found " + std::to_string(source.size()));
        return nullptr;
    }
    if (!jinja::is_valid_utf8(source)) {
        failure = refused(jinja::kSyntaxError, "expected UTF-8 text, found bytes that are not");
        return nullptr;
    }
    jinja::Parser parser(jinja::tokenize(source));
    auto tree = parser.run();
    failure = parser.failure();
    return tree;
}

ErrorCode code_of(const TemplateFailure& failure) {
    const std::string& name = failure.error_class;
    if (name == jinja::kLimitError) {
        return ErrorCode::TooLarge;
    }
    if (name == "MemoryError") {
        return ErrorCode::OutOfMemory;
    }
    const bool of_template =
        name == jinja::kSyntaxError || name == jinja::kAssertionError || name == "SyntaxError";
    return of_template ? ErrorCode::Unsupported : ErrorCode::WrongUse;
}

Error to_error(const TemplateFailure& failure, const std::string& origin) {
    Error error;
    error.code = code_of(failure);
    error.message = "the chat template cannot be used: ";
    if (failure.line != 0) {
        error.message += "line " + std::to_string(failure.line) + ", column " +
                         std::to_string(failure.column) + ": ";
    }
    error.message += failure.message + " (" + failure.error_class + ")";
    error.context = origin;
    error.next_step =
        error.code == ErrorCode::WrongUse
            ? "Change the conversation so that the template accepts it, or use another template"
            : "Use another template for this model";
    return error;
}

RenderedPrompt prompt_of(const jinja::TextBuilder& output) {
    return {output.bytes(), output.user()};
}

TemplateFailure memory_failure() {
    return {"MemoryError", "there is not enough memory for the template", 0, 0};
}

TemplateFailure unexpected_failure(const std::exception& error) {
    return {"RuntimeError", std::string("the template failed: ") + error.what(), 0, 0};
}

RenderResult render_variation(const jinja::TemplateTree& tree,
                              const RenderRequest& request,
                              std::optional<TemplateInput> without) {
    try {
        jinja::Runtime rt(request.limits, request.clock);
        const jinja::PreparedRequest prepared = jinja::prepare(rt, request, without);
        if (rt.failed()) {
            return rt.failure();
        }
        jinja::Evaluator evaluator(rt, tree, prepared.names);
        evaluator.run();
        if (rt.failed()) {
            return rt.failure();
        }
        RenderedPrompt prompt = prompt_of(evaluator.output());
        if (prepared.continuation) {
            rt.position = {};
            jinja::cut_at_continuation(rt, *prepared.continuation, prompt);
        }
        if (rt.failed()) {
            return rt.failure();
        }
        return prompt;
    } catch (const std::bad_alloc&) {
        return memory_failure();
    } catch (const std::exception& error) {
        return unexpected_failure(error);
    }
}

}  // namespace

TemplateClock TemplateClock::now() {
    const std::time_t seconds = std::time(nullptr);
    std::tm local{};
    localtime_r(&seconds, &local);
    return {local.tm_year + 1900, local.tm_mon + 1, local.tm_mday,
            local.tm_hour,        local.tm_min,     local.tm_sec};
}

Error RenderResult::error(const std::string& origin) const {
    return to_error(failure(), origin);
}

ChatTemplate::ChatTemplate(std::unique_ptr<const jinja::TemplateTree> tree, std::string origin)
    : tree_(std::move(tree)), origin_(std::move(origin)) {}

ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::parse(std::string_view source,
                                         const std::string& origin,
                                         TemplateFailure* failure) {
    TemplateFailure found;
    std::unique_ptr<const jinja::TemplateTree> tree;
    try {
        tree = compile(source, found);
    } catch (const std::bad_alloc&) {
        found = memory_failure();
    } catch (const std::exception& error) {
        found = unexpected_failure(error);
    }
    if (tree != nullptr) {
        return ChatTemplate(std::move(tree), origin);
    }
    if (failure != nullptr) {
        *failure = found;
    }
    return to_error(found, origin);
}

RenderResult ChatTemplate::render(const RenderRequest& request) const {
    return render_variation(*tree_, request, std::nullopt);
}

std::vector<TemplateInput> ChatTemplate::ignored_inputs(const RenderRequest& request) const {
    std::vector<TemplateInput> ignored;
    const RenderResult whole = render(request);
    if (!whole.ok()) {
        return ignored;
    }
    for (const TemplateInput input :
         {TemplateInput::Tools, TemplateInput::System, TemplateInput::Reasoning}) {
        if (!jinja::gives_input(request, input)) {
            continue;
        }
        const RenderResult less = render_variation(*tree_, request, input);
        if (less.ok() && less.prompt().text == whole.prompt().text) {
            ignored.push_back(input);
        }
    }
    return ignored;
}

RenderResult ChatTemplate::render_names(std::string_view names_json,
                                        const TemplateClock& clock,
                                        const TemplateLimits& limits) const {
    try {
        jinja::Runtime rt(limits, clock);
        const jinja::Value names = jinja::from_json(rt, names_json);
        if (!rt.failed() && !names.is(jinja::Kind::Dict)) {
            rt.fail(jinja::kValueError, "expected a JSON object of names");
        }
        if (rt.failed()) {
            return rt.failure();
        }
        jinja::Evaluator evaluator(rt, *tree_, names);
        evaluator.run();
        if (rt.failed()) {
            return rt.failure();
        }
        return prompt_of(evaluator.output());
    } catch (const std::bad_alloc&) {
        return memory_failure();
    } catch (const std::exception& error) {
        return unexpected_failure(error);
    }
}

}  // namespace terrace
