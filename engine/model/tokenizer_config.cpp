#include "engine/model/tokenizer_config.h"

#include <exception>
#include <string_view>

#include "engine/model/json_text.h"
#include "engine/model/printable.h"

namespace terrace {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kMaxTemplateBytes = 4 << 20;

bool ends_with(std::string_view text, std::string_view end) {
    return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

/// A token is a text, or an object with its text under `content`.
std::string token_text(const ordered_json& value) {
    if (value.is_string()) {
        return value.get<std::string>();
    }
    if (value.is_object()) {
        const auto content = value.find("content");
        if (content != value.end() && content->is_string()) {
            return content->get<std::string>();
        }
    }
    return {};
}

/// One text, or a list of {name, template} of which "default" is meant.
std::string template_text(const ordered_json& value) {
    if (value.is_string()) {
        return value.get<std::string>();
    }
    if (!value.is_array()) {
        return {};
    }
    std::string first;
    for (const ordered_json& entry : value) {
        if (!entry.is_object() || !entry.contains("template") || !entry["template"].is_string()) {
            continue;
        }
        std::string text = entry["template"].get<std::string>();
        if (entry.value("name", ordered_json()) == "default") {
            return text;
        }
        first = first.empty() ? std::move(text) : first;
    }
    return first;
}

TokenizerConfig read_config(const ordered_json& config) {
    TokenizerConfig out;
    for (const auto& [key, value] : config.items()) {
        if (ends_with(key, "_token")) {
            std::string text = token_text(value);
            if (!text.empty()) {
                out.special_tokens.emplace_back(key, std::move(text));
            }
        } else if (key == "chat_template") {
            out.chat_template = template_text(value);
        }
    }
    return out;
}

}  // namespace

std::string TokenizerConfig::token(std::string_view name) const {
    for (const auto& [key, text] : special_tokens) {
        if (key == name) {
            return text;
        }
    }
    return {};
}

Result<TokenizerConfig> parse_tokenizer_config(std::string_view text) {
    Result<ordered_json> parsed = parse_ordered_json(text);
    if (!parsed) {
        return std::move(parsed).error();
    }
    if (!parsed->is_object()) {
        return Error{ErrorCode::Corrupt, "an object was expected", "", "Download the file again."};
    }
    try {
        return read_config(*parsed);
    } catch (const std::exception& e) {
        return Error{ErrorCode::Corrupt,
                     std::string("the file cannot be read: ") + printable(e.what()), "",
                     "Download the file again."};
    }
}

ChatTemplateSource read_chat_template(const std::filesystem::path& folder,
                                      const FolderListing& listing,
                                      const TokenizerConfig& config,
                                      std::vector<std::string>& warnings) {
    for (const char* name : {"chat_template.jinja", "chat_template.json"}) {
        if (!listing.has(name)) {
            continue;
        }
        Result<std::string> text = read_folder_text(folder / name, kMaxTemplateBytes);
        if (!text) {
            warnings.push_back(text.error().text());
            continue;
        }
        if (std::string_view(name) == "chat_template.jinja") {
            return {std::move(*text), name};
        }
        const Result<TokenizerConfig> parsed = parse_tokenizer_config(*text);
        if (!parsed) {
            warnings.push_back(Error(parsed.error()).in(name).text());
        } else if (!parsed->chat_template.empty()) {
            return {parsed->chat_template, name};
        }
    }
    return {config.chat_template,
            config.chat_template.empty() ? "" : "chat_template of tokenizer_config.json"};
}

}  // namespace terrace
