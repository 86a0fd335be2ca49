// tokenizer_config.json and the chat template files: named special tokens and template text.
// Internal to engine/model.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/device/result.h"
#include "engine/model/shard_names.h"

namespace terrace {

struct TokenizerConfig {
    /// "eos_token" -> text, in the file's order
    std::vector<std::pair<std::string, std::string>> special_tokens;
    std::string chat_template;  ///< empty: none

    /// The text of one named token; empty when there is none.
    [[nodiscard]] std::string token(std::string_view name) const;
};

/// Errors do not name the file.
[[nodiscard]] Result<TokenizerConfig> parse_tokenizer_config(std::string_view text);

/// The template of a folder and the name of its file.
struct ChatTemplateSource {
    std::string text;
    std::string origin;  ///< "chat_template.jinja", or the JSON file it stands in
};

/// chat_template.jinja, else chat_template.json, else what tokenizer_config.json says. Files that
/// cannot be read are named in `warnings`.
[[nodiscard]] ChatTemplateSource read_chat_template(const std::filesystem::path& folder,
                                                    const FolderListing& listing,
                                                    const TokenizerConfig& config,
                                                    std::vector<std::string>& warnings);

}  // namespace terrace
