// terrace-cli make-model: seeded synthetic models of any shape and size.
#include <nlohmann/json.hpp>

#include "app/cli/command.h"
#include "app/core/size_text.h"
#include "app/core/synthetic_model.h"

namespace terrace::cli {

namespace {

/// A dimension that a user may change: option, field, meaning.
struct Dimension {
    const char* option;
    std::int64_t app::SyntheticSpec::*field;
    const char* help;
};

constexpr Dimension kDimensions[] = {
    {"--hidden-size", &app::SyntheticSpec::hidden_size, "Width of the residual stream"},
    {"--layers", &app::SyntheticSpec::num_hidden_layers, "Layers, without the draft layer"},
    {"--dense-layers", &app::SyntheticSpec::first_k_dense_replace,
     "Layers without experts, at the front"},
    {"--mtp", &app::SyntheticSpec::num_nextn_predict_layers, "Draft layers: 0 or 1"},
    {"--heads", &app::SyntheticSpec::num_attention_heads, "Attention heads"},
    {"--q-lora-rank", &app::SyntheticSpec::q_lora_rank, "Width of the query latent"},
    {"--kv-lora-rank", &app::SyntheticSpec::kv_lora_rank, "Width of the cached latent"},
    {"--qk-nope-head-dim", &app::SyntheticSpec::qk_nope_head_dim, "Query width without rope"},
    {"--qk-rope-head-dim", &app::SyntheticSpec::qk_rope_head_dim, "Query width with rope"},
    {"--v-head-dim", &app::SyntheticSpec::v_head_dim, "Value width"},
    {"--intermediate-size", &app::SyntheticSpec::intermediate_size, "Width of a dense layer"},
    {"--expert-width", &app::SyntheticSpec::moe_intermediate_size, "Width of an expert"},
    {"--n-experts", &app::SyntheticSpec::n_routed_experts, "Experts of a layer"},
    {"--experts-per-token", &app::SyntheticSpec::num_experts_per_tok, "Experts a token uses"},
    {"--shared-experts", &app::SyntheticSpec::n_shared_experts, "Shared experts: 0 or more"},
    {"--vocab-size", &app::SyntheticSpec::vocab_size, "Token ids"},
    {"--index-heads", &app::SyntheticSpec::index_n_heads, "Heads of the indexer"},
    {"--index-head-dim", &app::SyntheticSpec::index_head_dim, "Width of an index head"},
    {"--index-topk", &app::SyntheticSpec::index_topk, "Positions a row may choose"},
    {"--index-every", &app::SyntheticSpec::index_topk_freq, "Every n-th layer has an indexer"},
    {"--max-positions", &app::SyntheticSpec::max_position_embeddings, "Largest context"},
};

class MakeModelCommand final : public Command {
public:
    [[nodiscard]] const char* name() const override { return "make-model"; }

    [[nodiscard]] const char* summary() const override {
        return "A seeded synthetic model of any shape and size";
    }

    [[nodiscard]] const char* examples() const override {
        return "  terrace-cli make-model /tmp/glm-2g --preset glm-2g\n"
               "  terrace-cli make-model /tmp/zipf --n-experts 64 --routing zipf:1.1 --seed 7";
    }

    void declare(CLI::App& command) override {
        command.add_option("out", out_, "Folder to make; must not exist or be empty")->required();
        command.add_option("--preset", preset_,
                           "tiny, wide-tiny or glm-2g; other options change it");
        values_.resize(std::size(kDimensions));
        for (std::size_t i = 0; i < values_.size(); ++i) {
            command.add_option(kDimensions[i].option, values_[i], kDimensions[i].help)
                ->group("Shape");
        }
        command.add_option("--seed", seed_, "Any text")->group("Weights");
        command
            .add_option("--kind", kind_, "int4, int8, int3, int2 or float: how matrices are stored")
            ->check(CLI::IsMember({"int4", "int8", "int3", "int2", "float"}))
            ->group("Weights");
        command
            .add_option("--group", groups_,
                        "Scale groups of int4, 0 for a whole row; several are mixed")
            ->delimiter(',')
            ->check(CLI::IsMember({0, 16, 32, 64, 128, 256}))
            ->group("Weights");
        command.add_option("--routing", routing_, "uniform or zipf:S")->group("Routing");
        command
            .add_option("--routing-overlap", overlap_,
                        "Share of experts that consecutive tokens have in common")
            ->check(CLI::Range(0.0, 0.95))
            ->group("Routing");
    }

    [[nodiscard]] Exit run(Terminal& terminal, StopOnInterrupt& interrupt) override {
        Result<app::SyntheticSpec> spec = specOf();
        if (!spec) {
            return terminal.fail(spec.error());
        }
        const auto progress = [&](std::int64_t done, std::int64_t total) {
            terminal.progress("writing weights", done >> 20, std::max<std::int64_t>(total >> 20, 1),
                              "MiB");
            written_ = done;
        };
        const Status made = app::writeSyntheticModel(*spec, out_, progress, interrupt.newRequest());
        terminal.endProgress();
        if (!made) {
            return terminal.fail(made.error());
        }
        if (terminal.json()) {
            const nlohmann::ordered_json json{{"folder", out_}, {"bytes", written_}};
            terminal.out(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
                         "\n");
        } else {
            terminal.out(out_ + ": " + app::formatSize(written_) + " of weights\n");
        }
        return Exit::Done;
    }

private:
    [[nodiscard]] Result<app::SyntheticSpec> specOf() const {
        std::optional<app::SyntheticSpec> spec =
            app::syntheticPreset(preset_.empty() ? "tiny" : preset_);
        if (!spec) {
            std::string known;
            for (const std::string& each : app::syntheticPresetNames()) {
                known += (known.empty() ? "" : ", ") + each;
            }
            return Error{ErrorCode::WrongUse, "there is no preset \"" + preset_ + "\"",
                         "make-model", "Known: " + known};
        }
        for (std::size_t i = 0; i < values_.size(); ++i) {
            if (values_[i]) {
                (*spec).*(kDimensions[i].field) = *values_[i];
            }
        }
        if (!seed_.empty()) {
            spec->seed = seed_;
        }
        if (!groups_.empty()) {
            spec->groups = groups_;
        }
        spec->kind = kind_ == "int8"    ? WeightKind::Int8
                     : kind_ == "int3"  ? WeightKind::Int3
                     : kind_ == "int2"  ? WeightKind::Int2
                     : kind_ == "float" ? WeightKind::Float32
                                        : WeightKind::Int4;
        if (routing_.rfind("zipf:", 0) == 0) {
            char* end = nullptr;
            spec->routing.zipfExponent = std::strtod(routing_.c_str() + 5, &end);
            if (*end != '\0' ||
                !(spec->routing.zipfExponent > 0 && spec->routing.zipfExponent <= 3)) {
                return Error{ErrorCode::WrongUse,
                             "--routing is \"" + routing_ + "\"; expected zipf:S with S up to 3",
                             "", ""};
            }
        } else if (routing_ != "uniform") {
            return Error{ErrorCode::WrongUse,
                         "--routing is \"" + routing_ + "\"; expected uniform or zipf:S", "", ""};
        }
        spec->routing.overlap = overlap_;
        return *spec;
    }

    std::string out_;
    std::string preset_;
    std::vector<std::optional<std::int64_t>> values_;
    std::string seed_;
    std::string kind_ = "int4";
    std::vector<std::int32_t> groups_;
    std::string routing_ = "uniform";
    std::optional<double> overlap_;
    std::int64_t written_ = 0;
};

}  // namespace

std::unique_ptr<Command> makeMakeModelCommand() {
    return std::make_unique<MakeModelCommand>();
}

}  // namespace terrace::cli
