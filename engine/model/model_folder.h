// Opening a model folder: from a path that a user gave to config, tokenizer, template and a
// checked checkpoint. Reads headers and small files only, and never writes into the folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/result.h"
#include "engine/model/checkpoint.h"
#include "engine/model/family.h"
#include "engine/model/model_config.h"

namespace terrace {

class ChatTemplate;
class Tokenizer;

/// How many matrices of one format there are.
struct FormatCount {
    Storage storage = Storage::F32;
    std::int32_t group = 0;
    std::int64_t n_tensors = 0;
    std::int64_t bytes = 0;  ///< payload and scales, in the files
};

/// Bytes in the files by what they are for; payload and scales.
struct FolderSizes {
    std::int64_t embedding_and_head = 0;
    std::int64_t attention = 0;
    std::int64_t indexer = 0;
    std::int64_t dense_mlp = 0;
    std::int64_t shared_experts = 0;
    std::int64_t routed_experts = 0;
    std::int64_t router_and_norms = 0;
    std::int64_t mtp = 0;  ///< everything of the MTP layer, its experts too
    std::int64_t total = 0;
    std::int64_t one_expert = 0;  ///< the first routed expert: gate, up, down
};

/// What a user may want to know about a folder before loading it.
struct FolderFacts {
    std::string family;  ///< display name
    std::int64_t n_layers = 0;
    std::int64_t n_sparse_layers = 0;
    std::int64_t n_experts_per_layer = 0;
    std::int64_t n_experts_per_token = 0;
    std::int64_t n_parameters = 0;
    std::int64_t n_tensors = 0;
    std::int64_t n_files = 0;
    std::int64_t max_context_tokens = 0;
    FolderKind kind = FolderKind::Float;
    bool has_mtp = false;
    bool has_indexer = false;
    bool has_chat_template = false;  ///< one that parses
    std::vector<FormatCount> formats;
    FolderSizes sizes;
    std::vector<std::string> warnings;  ///< sentences, free of control characters
};

/// An opened model folder. Owner: whoever opened it, usually the session; outlives every Weights
/// and expert store made from it. Immutable after construction; thread-safe. Move-only.
struct ModelFolder {
    ModelFolder();
    ModelFolder(ModelFolder&&) noexcept;
    ModelFolder& operator=(ModelFolder&&) noexcept;
    ~ModelFolder();

    std::filesystem::path path;
    ModelConfig config;
    GenerationConfig generation;
    const Family* family = nullptr;
    std::unique_ptr<const Tokenizer> tokenizer;
    /// Ids that end an answer: config, generation_config and tokenizer_config's eos_token.
    std::vector<std::int32_t> stop_ids;
    /// tokenizer_config's named tokens for the template: "bos_token" -> text, in the file's order.
    std::vector<std::pair<std::string, std::string>> special_tokens;
    std::string chat_template_text;                     ///< empty: the folder has none
    std::string chat_template_origin;                   ///< the file it came from
    std::unique_ptr<const ChatTemplate> chat_template;  ///< null: use the built-in one
    std::unique_ptr<Checkpoint> checkpoint;
    FolderFacts facts;
    /// 16 hex digits, the same for every copy of the folder: see model_identity.h.
    std::string identity;
};

/// Opens the model that `given` means: the folder itself, any file in it, or a parent with one
/// model at most three levels down (a hub cache root among them).
/// Errors name file, tensor, key, what was expected and found, and what to do.
[[nodiscard]] Result<ModelFolder> open_model_folder(const std::filesystem::path& given);

/// Only the search: which folder `given` means. Errors: NotFound, or WrongUse naming both when
/// there are two models.
[[nodiscard]] Result<std::filesystem::path> find_model_folder(const std::filesystem::path& given);

}  // namespace terrace
