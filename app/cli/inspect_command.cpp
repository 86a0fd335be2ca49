// terrace-cli inspect: what a folder is. Reads headers only.
#include <nlohmann/json.hpp>

#include "app/cli/command.h"
#include "app/core/model_location.h"
#include "app/core/size_text.h"
#include "engine/model/model_folder.h"

namespace terrace::cli {

namespace {

using Json = nlohmann::ordered_json;

Json report(const ModelFolder& folder) {
    const FolderFacts& f = folder.facts;
    Json json;
    json["path"] = folder.path.string();
    json["model_type"] = folder.config.model_type;
    json["family"] = f.family;
    json["identity"] = folder.identity;
    json["kind"] = f.kind == FolderKind::Container ? "container" : "float";
    json["layers"] = f.n_layers;
    json["sparse_layers"] = f.n_sparse_layers;
    json["experts_per_layer"] = f.n_experts_per_layer;
    json["experts_per_token"] = f.n_experts_per_token;
    json["parameters"] = f.n_parameters;
    json["tensors"] = f.n_tensors;
    json["files"] = f.n_files;
    json["max_context"] = f.max_context_tokens;
    json["has_mtp"] = f.has_mtp;
    json["has_indexer"] = f.has_indexer;
    json["has_chat_template"] = f.has_chat_template;
    json["stop_ids"] = folder.stop_ids;
    json["formats"] = Json::array();
    for (const FormatCount& count : f.formats) {
        json["formats"].push_back({{"format", to_string(count.storage)},
                                   {"group", count.group},
                                   {"tensors", count.n_tensors},
                                   {"bytes", count.bytes}});
    }
    const FolderSizes& s = f.sizes;
    json["bytes"] = {{"embedding_and_head", s.embedding_and_head},
                     {"attention", s.attention},
                     {"indexer", s.indexer},
                     {"dense_mlp", s.dense_mlp},
                     {"shared_experts", s.shared_experts},
                     {"routed_experts", s.routed_experts},
                     {"router_and_norms", s.router_and_norms},
                     {"mtp", s.mtp},
                     {"total", s.total},
                     {"one_expert", s.one_expert}};
    json["warnings"] = f.warnings;
    return json;
}

std::string describe(const ModelFolder& folder) {
    const FolderFacts& f = folder.facts;
    const auto line = [](const std::string& name, const std::string& value) {
        std::string out = name + ":";
        out.resize(std::max<std::size_t>(out.size() + 1, 18), ' ');
        return out + value + "\n";
    };
    const auto yes = [](bool value) { return std::string(value ? "yes" : "no"); };
    std::string out;
    out += line("folder", folder.path.string());
    out += line("family", f.family + " (" + folder.config.model_type + ")");
    out += line("identity", folder.identity);
    out += line("parameters", std::to_string(f.n_parameters));
    out += line("layers", std::to_string(f.n_layers) + ", of which " +
                              std::to_string(f.n_sparse_layers) + " with " +
                              std::to_string(f.n_experts_per_layer) + " experts, " +
                              std::to_string(f.n_experts_per_token) + " a token");
    out += line("size", app::formatSize(f.sizes.total) + " in " + std::to_string(f.n_files) +
                            " files, " + std::to_string(f.n_tensors) + " tensors");
    out += line("routed experts", app::formatSize(f.sizes.routed_experts) + ", one is " +
                                      app::formatSize(f.sizes.one_expert));
    for (const FormatCount& count : f.formats) {
        out +=
            line("format",
                 std::string(to_string(count.storage)) +
                     (count.group > 0 ? " groups of " + std::to_string(count.group) : "") + ", " +
                     std::to_string(count.n_tensors) + " tensors, " + app::formatSize(count.bytes));
    }
    out += line("draft layer", yes(f.has_mtp));
    out += line("indexer", yes(f.has_indexer));
    out += line("chat template", yes(f.has_chat_template));
    out += line("context", "up to " + std::to_string(f.max_context_tokens) + " positions");
    return out;
}

class InspectCommand final : public Command {
public:
    [[nodiscard]] const char* name() const override { return "inspect"; }

    [[nodiscard]] const char* summary() const override {
        return "What a folder is: family, formats, sizes, what is missing";
    }

    [[nodiscard]] const char* examples() const override {
        return "  terrace-cli inspect\n  terrace-cli inspect ~/models/GLM-5.2 --json";
    }

    void declare(CLI::App& command) override {
        command.add_option("model", model_,
                           "Model folder, or a file in it; left out: the demo model");
    }

    [[nodiscard]] Exit run(Terminal& terminal, StopOnInterrupt& /*interrupt*/) override {
        Result<std::filesystem::path> path = app::modelPath(model_);
        if (!path) {
            return terminal.fail(path.error());
        }
        Result<ModelFolder> folder = open_model_folder(*path);
        if (!folder) {
            return terminal.fail(folder.error());
        }
        if (terminal.json()) {
            terminal.out(report(*folder).dump(-1, ' ', false, Json::error_handler_t::replace) +
                         "\n");
        } else {
            terminal.out(describe(*folder));
        }
        for (const std::string& warning : folder->facts.warnings) {
            terminal.warn(warning);
        }
        return Exit::Done;
    }

private:
    std::string model_;
};

}  // namespace

std::unique_ptr<Command> makeInspectCommand() {
    return std::make_unique<InspectCommand>();
}

}  // namespace terrace::cli
