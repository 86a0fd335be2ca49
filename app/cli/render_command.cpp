// terrace-cli render: what the model would be given for a conversation.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/cli/command.h"
#include "app/core/json_text.h"
#include "app/core/model_location.h"
#include "app/core/prompt.h"
#include "engine/model/model_folder.h"
#include "engine/text/template/chat_template.h"

namespace terrace::cli {

namespace {

using Json = nlohmann::ordered_json;

std::string jsonText(const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json failureJson(const TemplateFailure& failure) {
    return {{"error",
             {{"class", failure.error_class},
              {"message", failure.message},
              {"line", failure.line},
              {"column", failure.column}}}};
}

/// A template and the special tokens it may print.
struct Source {
    ChatTemplate chatTemplate;
    std::vector<std::pair<std::string, std::string>> specialTokens;
};

class RenderCommand final : public Command {
public:
    [[nodiscard]] const char* name() const override { return "render"; }

    [[nodiscard]] const char* summary() const override {
        return "Messages through the model's chat template";
    }

    [[nodiscard]] const char* examples() const override {
        return "  terrace-cli render --messages conversation.json\n"
               "  terrace-cli render template.jinja --special-tokens tokens.json --jsonl < "
               "cases.jsonl";
    }

    void declare(CLI::App& command) override {
        command.add_option("model", model_,
                           "Model folder or a .jinja file; left out: the demo model");
        command.add_option("--messages", messages_,
                           "FILE with messages or a conversation; - for standard input");
        command.add_option("--special-tokens", specialTokens_,
                           "FILE.json: name to text, for a .jinja file");
        command.add_flag("--jsonl", jsonl_, "Each line of standard input is a conversation object");
        command.add_option("--now", now_, "The clock of strftime_now: 2026-01-15T09:30:00");
    }

    [[nodiscard]] Exit run(Terminal& terminal, StopOnInterrupt& /*interrupt*/) override {
        Result<TemplateClock> clock = parseClock();
        if (!clock) {
            return terminal.fail(clock.error());
        }
        if (jsonl_ && terminal.json()) {
            return terminal.fail(
                {ErrorCode::WrongUse, "--jsonl does not go with --json", "render", ""});
        }
        Result<Source> source = open();
        if (!source) {
            return terminal.fail(source.error());
        }
        const std::string argument = messages_ == "-" || jsonl_ ? "-" : "@" + messages_;
        Result<std::string> text = textArgument(argument);
        if (!text) {
            return terminal.fail(text.error());
        }
        return jsonl_ ? renderLines(*source, *text, *clock, terminal)
                      : renderOne(*source, *text, *clock, terminal);
    }

private:
    [[nodiscard]] Result<TemplateClock> parseClock() const {
        if (now_.empty()) {
            return TemplateClock::now();
        }
        TemplateClock c;
        int used = 0;
        const int fields = std::sscanf(now_.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d%n", &c.year, &c.month,
                                       &c.day, &c.hour, &c.minute, &c.second, &used);
        const bool legal = fields == 6 && static_cast<std::size_t>(used) == now_.size() &&
                           c.month >= 1 && c.month <= 12 && c.day >= 1 && c.day <= 31 &&
                           c.hour >= 0 && c.hour < 24 && c.minute >= 0 && c.minute < 60 &&
                           c.second >= 0 && c.second < 60;
        if (!legal) {
            return Error{ErrorCode::WrongUse,
                         "--now is \"" + now_ + "\"; expected a time such as 2026-01-15T09:30:00",
                         "", ""};
        }
        return c;
    }

    [[nodiscard]] Result<std::vector<std::pair<std::string, std::string>>> readTokens() const {
        std::vector<std::pair<std::string, std::string>> tokens;
        if (specialTokens_.empty()) {
            return tokens;
        }
        Result<std::string> text = textArgument("@" + specialTokens_);
        if (!text) {
            return std::move(text).error();
        }
        Result<Json> parsed = app::parseJson(*text, specialTokens_);
        if (!parsed) {
            return std::move(parsed).error();
        }
        const Json& json = *parsed;
        if (!json.is_object()) {
            return Error{ErrorCode::WrongUse, "expected a JSON object of names and texts",
                         specialTokens_, ""};
        }
        for (const auto& [key, value] : json.items()) {
            if (value.is_string()) {
                tokens.emplace_back(key, value.get<std::string>());
            }
        }
        return tokens;
    }

    [[nodiscard]] Result<Source> open() const {
        Result<std::filesystem::path> path = app::modelPath(model_);
        if (!path) {
            return std::move(path).error();
        }
        std::string text;
        std::string origin;
        Result<std::vector<std::pair<std::string, std::string>>> tokens = readTokens();
        if (!tokens) {
            return std::move(tokens).error();
        }
        if (path->extension() == ".jinja") {
            Result<std::string> file = textArgument("@" + path->string());
            if (!file) {
                return std::move(file).error();
            }
            text = std::move(file).value();
            origin = path->filename().string();
        } else {
            Result<ModelFolder> folder = open_model_folder(*path);
            if (!folder) {
                return std::move(folder).error();
            }
            if (folder->chat_template_text.empty()) {
                return Error{ErrorCode::Unsupported, "the folder has no chat template",
                             path->string(), ""};
            }
            text = folder->chat_template_text;
            origin = folder->chat_template_origin;
            if (specialTokens_.empty()) {
                tokens = folder->special_tokens;
            }
        }
        Result<ChatTemplate> parsed = ChatTemplate::parse(text, origin);
        if (!parsed) {
            return std::move(parsed).error();
        }
        return Source{std::move(parsed).value(), std::move(tokens).value()};
    }

    static RenderResult render(const Source& source,
                               std::string conversation,
                               const TemplateClock& clock) {
        RenderRequest request;
        request.conversation = std::move(conversation);
        request.special_tokens = source.specialTokens;
        request.clock = clock;
        return source.chatTemplate.render(request);
    }

    static Exit renderOne(const Source& source,
                          const std::string& text,
                          const TemplateClock& clock,
                          const Terminal& terminal) {
        Result<std::string> conversation = app::conversationText(text, app::Thinking::ModelDefault);
        if (!conversation) {
            return terminal.fail(conversation.error());
        }
        const RenderResult result = render(source, std::move(conversation).value(), clock);
        if (!result.ok()) {
            if (terminal.json()) {
                terminal.out(jsonText(failureJson(result.failure())) + "\n");
                return Exit::Failed;
            }
            return terminal.fail(result.error(source.chatTemplate.origin()));
        }
        terminal.out(terminal.json() ? jsonText({{"text", result.prompt().text}}) + "\n"
                                     : result.prompt().text + "\n");
        return Exit::Done;
    }

    static Exit renderLines(const Source& source,
                            const std::string& text,
                            const TemplateClock& clock,
                            const Terminal& terminal) {
        std::size_t at = 0;
        while (at < text.size()) {
            const std::size_t end = std::min(text.find('\n', at), text.size());
            const std::string line = text.substr(at, end - at);
            at = end + 1;
            if (line.empty()) {
                continue;
            }
            const RenderResult result = render(source, line, clock);
            terminal.out(jsonText(result.ok() ? Json{{"text", result.prompt().text}}
                                              : failureJson(result.failure())) +
                         "\n");
        }
        return Exit::Done;
    }

    std::string model_;
    std::string messages_ = "-";
    std::string specialTokens_;
    std::string now_;
    bool jsonl_ = false;
};

}  // namespace

std::unique_ptr<Command> makeRenderCommand() {
    return std::make_unique<RenderCommand>();
}

}  // namespace terrace::cli
