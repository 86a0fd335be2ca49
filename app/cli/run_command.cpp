// terrace-cli run: one prompt, one answer, streamed.
#include <charconv>

#include "app/cli/answer_writer.h"
#include "app/cli/command.h"
#include "app/cli/dump_file.h"
#include "app/cli/open_engine.h"
#include "app/core/run_report.h"
#include "engine/support/file.h"

namespace terrace::cli {

namespace {

Result<std::vector<std::int32_t>> parseIds(const std::string& text) {
    std::vector<std::int32_t> ids;
    std::size_t at = 0;
    while (at < text.size()) {
        const std::size_t end = std::min(text.find(',', at), text.size());
        std::size_t first = at;
        while (first < end && text[first] == ' ') {
            ++first;
        }
        std::int32_t id = 0;
        const auto [stop, error] = std::from_chars(text.data() + first, text.data() + end, id);
        if (error != std::errc() || stop != text.data() + end || id < 0) {
            return Error{ErrorCode::WrongUse,
                         "--ids holds \"" + text.substr(at, end - at) +
                             "\"; expected numbers with commas between, such as 1,2,3",
                         "", ""};
        }
        ids.push_back(id);
        at = end + 1;
    }
    return ids;
}

class RunCommand final : public Command {
public:
    [[nodiscard]] const char* name() const override { return "run"; }

    [[nodiscard]] const char* summary() const override {
        return "One prompt, one answer, streamed";
    }

    [[nodiscard]] const char* examples() const override {
        return "  terrace-cli run --prompt \"What is Terrace?\"\n"
               "  terrace-cli run ~/models/GLM-5.2 --ram 16G --prompt @question.txt --json";
    }

    void declare(CLI::App& command) override {
        model_.add(command);
        answer_.add(command);
        const std::string group = "Prompt";
        command.add_option("--prompt", prompt_, "TEXT, @FILE or - for standard input")
            ->group(group);
        command.add_option("--system", system_, "System prompt: TEXT or @FILE")->group(group);
        command.add_option("--messages", messages_, "A whole conversation from a JSON file")
            ->group(group);
        command.add_option("--ids", ids_, "Token ids 1,2,3; nothing is added")->group(group);
        command.add_flag("--verbatim", verbatim_, "The prompt as it stands: no chat template")
            ->group(group);
        command.add_option("--dump", dump_, "Write logits, hidden states and routes to this file");
    }

    [[nodiscard]] Exit run(Terminal& terminal, StopOnInterrupt& interrupt) override {
        Result<app::PromptInput> input = promptInput();
        if (!input) {
            return terminal.fail(input.error());
        }
        for (Status status : {model_.resolve(), answer_.resolve()}) {
            if (!status) {
                return terminal.fail(status.error());
            }
        }
        if (!dump_.empty()) {
            // Now rather than after a long answer: can the file be written at all?
            if (Result<AtomicFile> file = AtomicFile::create(dump_); !file) {
                return terminal.fail(file.error());
            }
        }
        Result<std::unique_ptr<Engine>> engine = openEngine(model_, terminal, interrupt);
        if (!engine) {
            return terminal.fail(engine.error());
        }
        const std::int64_t vocabulary = (*engine)->folder().config.vocab_size;
        for (const auto& [id, bias] : answer_.sampling.logitBias) {
            if (id >= vocabulary) {
                return terminal.fail({ErrorCode::WrongUse,
                                      "--logit-bias names token " + std::to_string(id) +
                                          "; the vocabulary ends at " +
                                          std::to_string(vocabulary - 1),
                                      "run", ""});
            }
        }
        return answer(**engine, *input, terminal, interrupt);
    }

private:
    Result<app::PromptInput> promptInput() {
        const int given = (prompt_ ? 1 : 0) + (messages_.empty() ? 0 : 1) + (ids_.empty() ? 0 : 1);
        if (given != 1) {
            return Error{ErrorCode::WrongUse,
                         given == 0 ? "there is no prompt" : "there is more than one prompt", "run",
                         "Give exactly one of --prompt, --messages and --ids"};
        }
        app::PromptInput input;
        input.thinking = answer_.thinking();
        const bool templated = prompt_ && !verbatim_;
        if ((!system_.empty() && !templated) || (verbatim_ && !prompt_) ||
            (!answer_.think.empty() && !templated && messages_.empty())) {
            return Error{
                ErrorCode::WrongUse,
                "--system and --think go with a templated prompt, --verbatim with --prompt", "run",
                ""};
        }
        if (!ids_.empty()) {
            Result<std::vector<std::int32_t>> ids = parseIds(ids_);
            if (!ids) {
                return std::move(ids).error();
            }
            input.ids = std::move(ids).value();
            return input;
        }
        Result<std::string> text = textArgument(prompt_ ? *prompt_ : "@" + messages_);
        if (!text) {
            return std::move(text).error();
        }
        Result<std::string> system = textArgument(system_);
        if (!system) {
            return std::move(system).error();
        }
        input.system = std::move(system).value();
        (prompt_ ? (verbatim_ ? input.verbatim : input.text) : input.messages) =
            std::move(text).value();
        return input;
    }

    Exit answer(Engine& engine,
                const app::PromptInput& input,
                Terminal& terminal,
                StopOnInterrupt& interrupt) {
        Result<app::PreparedPrompt> prompt = app::preparePrompt(engine.folder(), input);
        if (!prompt) {
            return terminal.fail(prompt.error());
        }
        Result<app::ResolvedSampling> sampling =
            app::resolveSampling(answer_.sampling, engine.folder().generation);
        if (!sampling) {
            return terminal.fail(sampling.error());
        }
        terminal.detail(sampling->origin);
        for (const std::string& warning : prompt->warnings) {
            terminal.warn(warning);
        }
        GenerateRequest request;
        request.prompt = prompt->ids;
        request.sampling = sampling->settings;
        request.max_new_tokens = answer_.n.value_or(-1);
        request.ignore_eos = answer_.ignoreEos;
        request.stop_strings = answer_.stop;
        AnswerWriter writer(terminal);
        Result<GenerateResult> result =
            engine.session().generate(request, &writer, interrupt.newRequest());
        terminal.endProgress();
        if (!result) {
            return terminal.fail(result.error());
        }
        if (!terminal.json()) {
            terminal.out("\n");
        }
        std::vector<std::string> warnings = engine.folder().facts.warnings;
        warnings.insert(warnings.end(), prompt->warnings.begin(), prompt->warnings.end());
        warnings.insert(warnings.end(), result->warnings.begin(), result->warnings.end());
        for (const std::string& warning : result->warnings) {
            terminal.warn(warning);
        }
        if (!dump_.empty() && result->stop_reason != StopReason::Cancelled) {
            std::vector<std::int32_t> tokens = request.prompt;
            tokens.insert(tokens.end(), result->ids.begin(), result->ids.end());
            const Status written =
                writeDump(engine, request.sampling, tokens, dump_, interrupt.newRequest());
            if (!written) {
                return terminal.fail(written.error());
            }
        }
        report(engine, request, *result, warnings, terminal);
        return result->stop_reason == StopReason::Cancelled ? Exit::Stopped : Exit::Done;
    }

    void report(const Engine& engine,
                const GenerateRequest& request,
                const GenerateResult& result,
                const std::vector<std::string>& warnings,
                const Terminal& terminal) const {
        if (terminal.json()) {
            const app::RunContext context{&engine, request.prompt, request.sampling.seed, warnings};
            terminal.out(app::runReport(result, context) + "\n");
            return;
        }
        if (request.sampling.temperature > 0 && !answer_.sampling.seed) {
            // Without it the same answer could not be had again.
            terminal.note("seed " + std::to_string(request.sampling.seed));
        }
        terminal.detail(app::runSummary(result, engine));
    }

    ModelOptions model_;
    AnswerOptions answer_;
    std::optional<std::string> prompt_;
    std::string system_;
    std::string messages_;
    std::string ids_;
    bool verbatim_ = false;
    std::string dump_;
};

}  // namespace

std::unique_ptr<Command> makeRunCommand() {
    return std::make_unique<RunCommand>();
}

}  // namespace terrace::cli
