// From what a user wrote to the token ids that a model is given.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/device/result.h"
#include "engine/model/model_folder.h"

namespace terrace::app {

enum class Thinking { ModelDefault, On, Off };

/// One prompt in one of four forms; exactly one of the first four members is set.
struct PromptInput {
    std::optional<std::string> text;      ///< one user turn
    std::optional<std::string> messages;  ///< JSON: an array of messages or a conversation object
    std::optional<std::string> verbatim;  ///< no template, special tokens recognised
    std::optional<std::vector<std::int32_t>> ids;
    std::string system;  ///< with `text`; empty: none
    Thinking thinking = Thinking::ModelDefault;
};

/// What the model is given, and what a user should know about it.
struct PreparedPrompt {
    std::vector<std::int32_t> ids;
    std::string text;  ///< the rendered prompt; empty for ids
    std::vector<std::string> warnings;
};

/// The conversation object of one user turn, as the template engine takes it.
[[nodiscard]] std::string conversationOf(const PromptInput& input);

/// A conversation object from what a user gives: an array of messages or an object. Asks for a
/// generation prompt unless the object says otherwise. Errors: WrongUse.
[[nodiscard]] Result<std::string> conversationText(const std::string& text, Thinking thinking);

/// Renders and tokenises. Text that came from a person is never read as special tokens.
/// Errors: a template that fails (line and column), JSON that is no conversation, no template.
[[nodiscard]] Result<PreparedPrompt> preparePrompt(const ModelFolder& folder,
                                                   const PromptInput& input);

}  // namespace terrace::app
