#include "engine/model/model_folder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/model/folder_facts.h"
#include "engine/model/json_text.h"
#include "engine/model/model_identity.h"
#include "engine/model/printable.h"
#include "engine/model/shard_names.h"
#include "engine/model/tokenizer_config.h"
#include "engine/text/template/chat_template.h"
#include "engine/text/tokenizer.h"

namespace terrace {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxConfigBytes = 8 << 20;

/// Opens one folder step by step; lives for one call of open_model_folder.
class FolderOpener {
public:
    explicit FolderOpener(fs::path path) { out_.path = std::move(path); }

    Result<ModelFolder> run() {
        for (Status (FolderOpener::*step)() :
             {&FolderOpener::list, &FolderOpener::read_config, &FolderOpener::read_optional_configs,
              &FolderOpener::open_weights, &FolderOpener::open_tokenizer,
              &FolderOpener::identify}) {
            if (Status done = (this->*step)(); !done) {
                return std::move(done).error().in(printable_path(out_.path));
            }
        }
        collect_stop_ids();
        open_template();
        finish_facts();
        return std::move(out_);
    }

private:
    Status list() {
        Result<FolderListing> listing = list_folder(out_.path);
        if (!listing) {
            return std::move(listing).error();
        }
        listing_ = std::move(*listing);
        std::string gone;
        for (const char* name : {"config.json", "tokenizer.json"}) {
            if (!listing_.has(name)) {
                gone += (gone.empty() ? "" : " and ") + std::string(name) + other_spelling(name);
            }
        }
        if (!gone.empty()) {
            return Error{ErrorCode::Incomplete,
                         "config.json and tokenizer.json were expected beside the weights; "
                         "missing: " +
                             gone,
                         "", "Download the missing files from the model's publisher."};
        }
        return {};
    }

    [[nodiscard]] std::string other_spelling(std::string_view wanted) const {
        for (const std::string& name : listing_.others) {
            const bool same = name != wanted && name.size() == wanted.size() &&
                              std::equal(name.begin(), name.end(), wanted.begin(),
                                         [](char a, char b) { return (a | 0x20) == (b | 0x20); });
            if (same) {
                return " (" + printable(name) + " differs in case only)";
            }
        }
        return "";
    }

    Status read_config() {
        Result<std::string> text = read_folder_text(out_.path / "config.json", kMaxConfigBytes);
        if (!text) {
            return std::move(text).error();
        }
        config_text_ = std::move(*text);
        Result<ModelConfig> config = parse_model_config(config_text_);
        if (!config) {
            return std::move(config).error();
        }
        out_.config = std::move(*config);
        out_.family = find_family(out_.config.model_type);
        return {};
    }

    /// Broken ones are named and left out: the model runs without them.
    Status read_optional_configs() {
        if (auto text = optional_text("generation_config.json")) {
            Result<GenerationConfig> generation = parse_generation_config(*text);
            if (generation) {
                out_.generation = std::move(*generation);
            } else {
                warn(generation.error().text());
            }
        }
        if (auto text = optional_text("tokenizer_config.json")) {
            Result<TokenizerConfig> parsed = parse_tokenizer_config(*text);
            if (parsed) {
                tokenizer_config_ = std::move(*parsed);
            } else {
                warn(Error(parsed.error()).in("tokenizer_config.json").text());
            }
        }
        out_.special_tokens = tokenizer_config_.special_tokens;
        return {};
    }

    std::optional<std::string> optional_text(const char* name) {
        if (!listing_.has(name)) {
            return std::nullopt;
        }
        Result<std::string> text = read_folder_text(out_.path / name, kMaxConfigBytes);
        if (!text) {
            warn(text.error().text());
            return std::nullopt;
        }
        return std::move(*text);
    }

    Status open_weights() {
        Result<ShardSet> shards = open_shards(out_.path);
        if (!shards) {
            return std::move(shards).error();
        }
        Result<Checkpoint> checkpoint =
            Checkpoint::bind(std::move(*shards), out_.config, *out_.family);
        if (!checkpoint) {
            return std::move(checkpoint).error();
        }
        out_.checkpoint = std::make_unique<Checkpoint>(std::move(*checkpoint));
        return {};
    }

    Status open_tokenizer() {
        const fs::path path = out_.path / "tokenizer.json";
        if (Status regular = check_regular_file(path); !regular) {
            return regular;
        }
        Result<Tokenizer> tokenizer = Tokenizer::from_file(path);
        if (!tokenizer) {
            Error error = std::move(tokenizer).error();
            const std::string whole = path.string();
            if (const std::size_t at = error.context.find(whole); at != std::string::npos) {
                error.context.replace(at, whole.size(), "tokenizer.json");
            }
            return error;
        }
        const auto n_ids = static_cast<std::int64_t>(tokenizer->n_ids());
        if (n_ids > out_.config.vocab_size) {
            return Error{ErrorCode::Corrupt,
                         "at most vocab_size " + std::to_string(out_.config.vocab_size) +
                             " ids were expected (config.json), the tokenizer has " +
                             std::to_string(n_ids),
                         "tokenizer.json",
                         "tokenizer.json and the weights belong to different models: download "
                         "both again."};
        }
        out_.tokenizer = std::make_unique<const Tokenizer>(std::move(*tokenizer));
        return {};
    }

    Status identify() {
        Result<std::string> identity = model_identity(config_text_, out_.checkpoint->files());
        if (!identity) {
            return std::move(identity).error();
        }
        out_.identity = std::move(*identity);
        return {};
    }

    void collect_stop_ids() {
        const auto add = [&](std::int64_t id, const char* file) {
            if (id >= out_.config.vocab_size) {
                warn(std::string(file) + ": eos_token_id " + std::to_string(id) +
                     " can never be produced: vocab_size is " +
                     std::to_string(out_.config.vocab_size));
                return;
            }
            const auto token = static_cast<std::int32_t>(id);
            if (std::find(out_.stop_ids.begin(), out_.stop_ids.end(), token) ==
                out_.stop_ids.end()) {
                out_.stop_ids.push_back(token);
            }
        };
        for (const std::int64_t id : out_.config.eos_token_id) {
            add(id, "config.json");
        }
        for (const std::int64_t id : out_.generation.eos_token_id) {
            add(id, "generation_config.json");
        }
        const std::string eos = tokenizer_config_.token("eos_token");
        if (const auto id = out_.tokenizer->id_of(eos); !eos.empty() && id) {
            add(*id, "tokenizer_config.json");
        }
        if (out_.stop_ids.empty()) {
            warn(
                "no token ends an answer: config.json, generation_config.json and "
                "tokenizer_config.json name no eos token; answers stop at their length limit");
        }
    }

    /// A template that cannot render the plainest conversation is reported and not used, unless
    /// it refuses by itself: then its message is the user's business.
    void open_template() {
        ChatTemplateSource source =
            read_chat_template(out_.path, listing_, tokenizer_config_, template_warnings_);
        for (std::string& warning : template_warnings_) {
            warn(std::move(warning));
        }
        out_.chat_template_text = std::move(source.text);
        out_.chat_template_origin = std::move(source.origin);
        if (out_.chat_template_text.empty()) {
            return;
        }
        Result<ChatTemplate> parsed =
            ChatTemplate::parse(out_.chat_template_text, out_.chat_template_origin);
        if (!parsed) {
            warn(parsed.error().text() + " (text can still be given as it stands: --verbatim)");
            return;
        }
        RenderRequest request;
        request.conversation =
            R"({"messages":[{"role":"user","content":"Hello"}],"add_generation_prompt":true})";
        request.special_tokens = out_.special_tokens;
        request.clock = TemplateClock::now();
        request.limits = {500'000, std::size_t{1} << 20U, std::size_t{16} << 20U, 400};
        const RenderResult rendered = parsed->render(request);
        if (!rendered.ok()) {
            const bool own_refusal = rendered.failure().error_class == "TemplateError";
            warn(rendered.error(out_.chat_template_origin).text() +
                 (own_refusal ? "" : " (text can still be given as it stands: --verbatim)"));
            if (!own_refusal) {
                return;
            }
        }
        out_.chat_template = std::make_unique<const ChatTemplate>(std::move(*parsed));
    }

    void finish_facts() {
        FolderFacts& facts = out_.facts;
        facts.family = std::string(out_.family->display_name);
        facts.has_chat_template = out_.chat_template != nullptr;
        count_facts(out_.config, *out_.checkpoint, facts);
        const ModelFolder& opened = out_;
        for (const std::vector<std::string>* list :
             {&opened.config.warnings, &opened.generation.warnings,
              &opened.checkpoint->warnings()}) {
            facts.warnings.insert(facts.warnings.end(), list->begin(), list->end());
        }
        for (const std::string& warning : out_.tokenizer->warnings()) {
            facts.warnings.push_back("tokenizer.json: " + printable(warning, 500));
        }
    }

    void warn(const std::string& text) { out_.facts.warnings.push_back(printable(text, 1000)); }

    FolderListing listing_;
    std::string config_text_;
    TokenizerConfig tokenizer_config_;
    std::vector<std::string> template_warnings_;
    ModelFolder out_;
};

}  // namespace

ModelFolder::ModelFolder() = default;
ModelFolder::ModelFolder(ModelFolder&&) noexcept = default;
ModelFolder& ModelFolder::operator=(ModelFolder&&) noexcept = default;
ModelFolder::~ModelFolder() = default;

Result<ModelFolder> open_model_folder(const fs::path& given) {
    Result<fs::path> folder = find_model_folder(given);
    if (!folder) {
        return std::move(folder).error();
    }
    return FolderOpener(std::move(*folder)).run();
}

}  // namespace terrace
