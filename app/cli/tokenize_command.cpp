// terrace-cli tokenize: text to token ids and back.
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "app/cli/command.h"
#include "app/core/model_location.h"
#include "engine/model/model_folder.h"
#include "engine/text/tokenizer.h"
#include "engine/text/utf8.h"

namespace terrace::cli {

namespace {

using Json = nlohmann::ordered_json;

std::string jsonText(const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

class TokenizeCommand final : public Command {
public:
    [[nodiscard]] const char* name() const override { return "tokenize"; }

    [[nodiscard]] const char* summary() const override { return "Text to token ids, and back"; }

    [[nodiscard]] const char* examples() const override {
        return "  terrace-cli tokenize --text \"Hello, world\" --pieces\n"
               "  terrace-cli tokenize tokenizer.json --decode --text \"72,101\"";
    }

    void declare(CLI::App& command) override {
        command.add_option("model", model_,
                           "Model folder or tokenizer.json; left out: the demo model");
        command.add_option("--text", text_,
                           "TEXT, @FILE or -; with --decode: ids 1,2,3. Default -");
        command.add_flag("--decode", decode_, "Ids to text");
        command.add_flag("--pieces", pieces_, "One piece a line: id, then its text as JSON");
        command
            .add_option("--mode", mode_,
                        "raw: no added token, plain: all but special ones, special: all")
            ->check(CLI::IsMember({"raw", "plain", "special"}));
        command.add_flag("--jsonl", jsonl_,
                         "Each input line is a JSON string (with --decode an array of ids)");
    }

    [[nodiscard]] Exit run(Terminal& terminal, StopOnInterrupt& /*interrupt*/) override {
        if (decode_ && pieces_) {
            return terminal.fail(
                {ErrorCode::WrongUse, "--decode and --pieces do not go together", "tokenize", ""});
        }
        if (jsonl_ && (pieces_ || terminal.json())) {
            return terminal.fail({ErrorCode::WrongUse,
                                  "--jsonl goes with neither --pieces nor --json", "tokenize", ""});
        }
        Result<Tokenizer> tokenizer = open();
        if (!tokenizer) {
            return terminal.fail(tokenizer.error());
        }
        Result<std::string> text = textArgument(text_);
        if (!text) {
            return terminal.fail(text.error());
        }
        if (jsonl_) {
            return runLines(*tokenizer, *text, terminal);
        }
        return decode_ ? runDecode(*tokenizer, *text, terminal)
                       : runEncode(*tokenizer, *text, terminal);
    }

private:
    [[nodiscard]] Result<Tokenizer> open() const {
        Result<std::filesystem::path> path = app::modelPath(model_);
        if (!path) {
            return std::move(path).error();
        }
        if (path->extension() == ".json" && path->filename() != "config.json") {
            return Tokenizer::from_file(*path);
        }
        Result<std::filesystem::path> folder = find_model_folder(*path);
        if (!folder) {
            return std::move(folder).error();
        }
        return Tokenizer::from_file(*folder / "tokenizer.json");
    }

    [[nodiscard]] AddedTokens mode() const {
        return mode_ == "raw"     ? AddedTokens::Raw
               : mode_ == "plain" ? AddedTokens::Plain
                                  : AddedTokens::Special;
    }

    Exit runEncode(const Tokenizer& tokenizer,
                   const std::string& text,
                   const Terminal& terminal) const {
        std::size_t replaced = 0;
        const std::string clean = to_valid_utf8(text, &replaced);
        if (replaced > 0) {
            terminal.warn(std::to_string(replaced) +
                          " byte sequences are not UTF-8 and were read as U+FFFD");
        }
        const std::vector<std::int32_t> ids = tokenizer.encode(clean, mode());
        if (terminal.json()) {
            Json pieces = Json::array();
            for (const std::int32_t id : ids) {
                pieces.push_back(std::string(tokenizer.piece_bytes(id)));
            }
            terminal.out(jsonText({{"ids", ids}, {"pieces", pieces}, {"mode", mode_}}) + "\n");
            return Exit::Done;
        }
        std::string out;
        for (const std::int32_t id : ids) {
            if (pieces_) {
                out += std::to_string(id) + "\t" +
                       jsonText(Json(std::string(tokenizer.piece_bytes(id)))) + "\n";
            } else {
                out += (out.empty() ? "" : ",") + std::to_string(id);
            }
        }
        terminal.out(pieces_ ? out : out + "\n");
        return Exit::Done;
    }

    static Result<std::vector<std::int32_t>> idsOf(const std::string& text) {
        const std::string array = text.find('[') == std::string::npos ? "[" + text + "]" : text;
        const Json json = Json::parse(array, nullptr, false);
        std::vector<std::int32_t> ids;
        bool good = json.is_array();
        for (std::size_t i = 0; good && i < json.size(); ++i) {
            good = json[i].is_number_integer() && json[i] >= 0 && json[i] <= 0x7fffffff;
            if (good) {
                ids.push_back(json[i].get<std::int32_t>());
            }
        }
        if (!good) {
            return Error{ErrorCode::WrongUse, "expected token ids such as 1,2,3",
                         "tokenize --decode", ""};
        }
        return ids;
    }

    static Exit runDecode(const Tokenizer& tokenizer,
                          const std::string& text,
                          const Terminal& terminal) {
        Result<std::vector<std::int32_t>> ids = idsOf(text);
        if (!ids) {
            return terminal.fail(ids.error());
        }
        for (const std::int32_t id : *ids) {
            if (!tokenizer.is_defined(id)) {
                return terminal.fail(
                    {ErrorCode::WrongUse,
                     "token id " + std::to_string(id) + " is not defined by this tokenizer",
                     "tokenize --decode", ""});
            }
        }
        const std::string decoded = tokenizer.decode(*ids);
        terminal.out(terminal.json() ? jsonText({{"text", decoded}}) + "\n" : decoded + "\n");
        return Exit::Done;
    }

    Exit runLines(const Tokenizer& tokenizer,
                  const std::string& text,
                  const Terminal& terminal) const {
        std::string out;
        std::size_t at = 0;
        for (std::int64_t line = 1; at < text.size(); ++line) {
            const std::size_t end = std::min(text.find('\n', at), text.size());
            const std::string entry = text.substr(at, end - at);
            at = end + 1;
            if (entry.empty()) {
                continue;
            }
            const Json json = Json::parse(entry, nullptr, false);
            if (decode_ ? !json.is_array() : !json.is_string()) {
                return terminal.fail(
                    {ErrorCode::WrongUse,
                     decode_ ? "expected a JSON array of ids" : "expected a JSON string",
                     "line " + std::to_string(line), ""});
            }
            if (decode_) {
                Result<std::vector<std::int32_t>> ids = idsOf(entry);
                if (!ids) {
                    return terminal.fail(std::move(ids).error().in("line " + std::to_string(line)));
                }
                out += jsonText(Json(tokenizer.decode(*ids))) + "\n";
            } else {
                out += jsonText(Json(tokenizer.encode(json.get<std::string>(), mode()))) + "\n";
            }
        }
        terminal.out(out);
        return Exit::Done;
    }

    std::string model_;
    std::string text_ = "-";
    std::string mode_ = "raw";
    bool decode_ = false;
    bool pieces_ = false;
    bool jsonl_ = false;
};

}  // namespace

std::unique_ptr<Command> makeTokenizeCommand() {
    return std::make_unique<TokenizeCommand>();
}

}  // namespace terrace::cli
