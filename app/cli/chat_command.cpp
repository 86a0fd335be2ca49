// terrace-cli chat: a conversation on a terminal, with line editing and history.
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "app/cli/answer_writer.h"
#include "app/cli/command.h"
#include "app/cli/line_reader.h"
#include "app/cli/open_engine.h"
#include "app/core/json_text.h"
#include "app/core/model_location.h"
#include "app/core/run_report.h"
#include "engine/generate/repetition_guard.h"
#include "engine/support/file.h"

namespace terrace::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHelp =
    "/new            begin again\n"
    "/system TEXT    set the system prompt (empty: none) and begin again\n"
    "/set NAME VALUE temperature, top-k, top-p, min-p, repetition-penalty, frequency-penalty,\n"
    "                presence-penalty, seed, n, think\n"
    "/stats          numbers of the last answer\n"
    "/save FILE      the conversation as JSON\n"
    "/load FILE      go on with a saved conversation\n"
    "/stop           (while an answer runs: Ctrl-C) nothing is running here\n"
    "/help           this list; Ctrl-D ends\n";

/// The conversation and the settings while it runs.
class Conversation {
public:
    Conversation(Engine& engine,
                 AnswerOptions answer,
                 std::string system,
                 Terminal& terminal,
                 StopOnInterrupt& interrupt)
        : engine_(engine),
          answer_(std::move(answer)),
          system_(std::move(system)),
          terminal_(terminal),
          interrupt_(interrupt) {}

    /// Sends one user turn; false when the program should end with `status`.
    void send(const std::string& text) {
        messages_.push_back({{"role", "user"}, {"content", text}});
        app::PromptInput input;
        input.messages = conversation();
        input.thinking = answer_.thinking();
        Result<app::PreparedPrompt> prompt = app::preparePrompt(engine_.folder(), input);
        if (!prompt) {
            return refuse(prompt.error());
        }
        if (!warned_) {
            for (const std::string& warning : prompt->warnings) {
                terminal_.warn(warning);
            }
            warned_ = true;
        }
        Result<app::ResolvedSampling> sampling =
            app::resolveSampling(answer_.sampling, engine_.folder().generation);
        if (!sampling) {
            return refuse(sampling.error());
        }
        GenerateRequest request;
        request.prompt = prompt->ids;
        request.sampling = sampling->settings;
        request.max_new_tokens = answer_.n.value_or(-1);
        request.ignore_eos = answer_.ignoreEos;
        request.stop_strings = answer_.stop;
        AnswerWriter writer(terminal_);
        Result<GenerateResult> result =
            engine_.session().generate(request, &writer, interrupt_.newRequest());
        terminal_.endProgress();
        if (!result) {
            return refuse(result.error());
        }
        terminal_.out("\n");
        for (const std::string& warning : result->warnings) {
            terminal_.warn(warning);
        }
        messages_.push_back({{"role", "assistant"}, {"content", result->text}});
        summary_ = app::runSummary(*result, engine_);
        if (result->stop_reason == StopReason::Cancelled) {
            terminal_.note("(stopped; what was said so far is kept)");
        } else if (result->stop_reason == StopReason::Context) {
            terminal_.note("(the context is full; /new begins again)");
        }
        terminal_.detail(summary_);
    }

    /// A line that begins with a slash.
    void command(const std::string& line) {
        const std::size_t space = line.find(' ');
        const std::string name = line.substr(0, space);
        const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
        if (name == "/help") {
            terminal_.out(kHelp);
        } else if (name == "/new") {
            messages_ = Json::array();
        } else if (name == "/system") {
            system_ = rest;
            messages_ = Json::array();
        } else if (name == "/stats") {
            terminal_.out((summary_.empty() ? "no answer yet" : summary_) + "\n");
        } else if (name == "/stop") {
            terminal_.out("nothing is running; Ctrl-C stops an answer\n");
        } else if (name == "/save") {
            report(save(rest), "saved to " + rest);
        } else if (name == "/load") {
            report(load(rest), "loaded from " + rest);
        } else if (name == "/set") {
            report(set(rest), "set");
        } else {
            terminal_.warn("there is no command " + name + "; /help lists them");
        }
    }

private:
    [[nodiscard]] std::string conversation() const {
        Json all = Json::array();
        if (!system_.empty()) {
            all.push_back({{"role", "system"}, {"content", system_}});
        }
        for (const Json& message : messages_) {
            all.push_back(message);
        }
        return all.dump(-1, ' ', false, Json::error_handler_t::replace);
    }

    /// Takes the turn back, so that the next one does not build on a question without an answer.
    void refuse(const Error& error) {
        messages_.erase(messages_.size() - 1);
        static_cast<void>(terminal_.fail(error));
    }

    void report(const Status& status, const std::string& done) {
        if (status) {
            terminal_.note(done);
        } else {
            static_cast<void>(terminal_.fail(status.error()));
        }
    }

    [[nodiscard]] Status save(const std::string& path) const {
        if (path.empty()) {
            return Error{ErrorCode::WrongUse, "/save needs a file name", "", ""};
        }
        Result<AtomicFile> file = AtomicFile::create(path);
        if (!file) {
            return std::move(file).error();
        }
        const std::string text = Json{{"messages", Json::parse(conversation())}}.dump(1) + "\n";
        if (Status written = file->write(std::as_bytes(std::span(text))); !written) {
            return written;
        }
        return file->commit();
    }

    [[nodiscard]] Status load(const std::string& path) {
        Result<std::string> text = textArgument("@" + path);
        if (!text) {
            return std::move(text).error();
        }
        Result<Json> parsed = app::parseJson(*text, path);
        if (!parsed) {
            return std::move(parsed).error();
        }
        Json json = std::move(parsed).value();
        if (json.is_object() && json.contains("messages")) {
            json = Json(json["messages"]);
        }
        if (!json.is_array()) {
            return Error{ErrorCode::WrongUse, "expected JSON with messages", path, ""};
        }
        system_.clear();
        messages_ = Json::array();
        for (const Json& message : json) {
            if (!message.is_object() || !message.contains("role") || !message.contains("content")) {
                return Error{ErrorCode::WrongUse, "expected messages with role and content", path,
                             ""};
            }
            if (message["role"] == "system" && messages_.empty() &&
                message["content"].is_string()) {
                system_ = message["content"].get<std::string>();
            } else {
                messages_.push_back(message);
            }
        }
        return {};
    }

    [[nodiscard]] Status set(const std::string& text) {
        const std::size_t space = text.find(' ');
        const std::string name = text.substr(0, space);
        const std::string value = space == std::string::npos ? "" : text.substr(space + 1);
        if (name == "think" && (value == "on" || value == "off")) {
            answer_.think = value;
            return {};
        }
        char* end = nullptr;
        const double number = std::strtod(value.c_str(), &end);
        if (value.empty() || *end != '\0') {
            return Error{ErrorCode::WrongUse, "/set " + name + " needs a number (think: on or off)",
                         "", "See /help"};
        }
        app::SamplingChoice choice = answer_.sampling;
        if (name == "temperature") {
            choice.temperature = number;
        } else if (name == "top-k") {
            choice.topK = static_cast<std::int32_t>(number);
        } else if (name == "top-p") {
            choice.topP = number;
        } else if (name == "min-p") {
            choice.minP = number;
        } else if (name == "repetition-penalty") {
            choice.repetitionPenalty = number;
        } else if (name == "frequency-penalty") {
            choice.frequencyPenalty = number;
        } else if (name == "presence-penalty") {
            choice.presencePenalty = number;
        } else if (name == "seed" && number >= 0) {
            choice.seed = static_cast<std::uint64_t>(number);
        } else if (name == "n" && number >= 1) {
            answer_.n = static_cast<std::int64_t>(number);
        } else {
            return Error{ErrorCode::WrongUse, "there is no setting \"" + name + "\" for " + value,
                         "", "See /help"};
        }
        Result<app::ResolvedSampling> legal =
            app::resolveSampling(choice, engine_.folder().generation);
        if (!legal) {
            return std::move(legal).error();
        }
        answer_.sampling = choice;
        return {};
    }

    Engine& engine_;
    AnswerOptions answer_;
    std::string system_;
    Terminal& terminal_;
    StopOnInterrupt& interrupt_;
    Json messages_ = Json::array();
    std::string summary_;
    bool warned_ = false;
};

class ChatCommand final : public Command {
public:
    [[nodiscard]] const char* name() const override { return "chat"; }

    [[nodiscard]] const char* summary() const override { return "A conversation"; }

    [[nodiscard]] const char* examples() const override {
        return "  terrace-cli chat\n  terrace-cli chat ~/models/GLM-5.2 --ram 16G --system \"Be "
               "brief.\"";
    }

    void declare(CLI::App& command) override {
        model_.add(command);
        answer_.add(command);
        command.add_option("--system", system_, "System prompt: TEXT or @FILE");
    }

    [[nodiscard]] Exit run(Terminal& terminal, StopOnInterrupt& interrupt) override {
        if (terminal.json()) {
            return terminal.fail({ErrorCode::WrongUse, "a conversation has no --json form", "chat",
                                  "Use run --json"});
        }
        for (Status status : {model_.resolve(), answer_.resolve()}) {
            if (!status) {
                return terminal.fail(status.error());
            }
        }
        Result<std::string> system = textArgument(system_);
        if (!system) {
            return terminal.fail(system.error());
        }
        Result<std::unique_ptr<Engine>> engine = openEngine(model_, terminal, interrupt);
        if (!engine) {
            return terminal.fail(engine.error());
        }
        Conversation conversation(**engine, answer_, *system, terminal, interrupt);
        LineReader reader(app::dataFolder() / "chat-history");
        terminal.note("Type a message; /help lists commands, Ctrl-D ends.");
        while (std::optional<std::string> line = reader.read("> ")) {
            if (line->empty()) {
                continue;
            }
            if (line->front() == '/') {
                conversation.command(*line);
            } else {
                conversation.send(*line);
            }
        }
        return Exit::Done;
    }

private:
    ModelOptions model_;
    AnswerOptions answer_;
    std::string system_;
};

}  // namespace

std::unique_ptr<Command> makeChatCommand() {
    return std::make_unique<ChatCommand>();
}

}  // namespace terrace::cli
