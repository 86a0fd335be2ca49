// Prepares a request for the template: what the reference environment does to messages before it
// renders, and the names a template is given.
#pragma once

#include <optional>
#include <string>

#include "engine/text/template/operations.h"

namespace terrace::jinja {

/// How the last message is to be continued: its own text, to be found again in the prompt.
struct Continuation {
    Value final_text;
};

struct PreparedRequest {
    Value names;  ///< a Dict: messages, tools, documents, special tokens, kwargs ...
    std::optional<Continuation> continuation;
};

/// Reads the request; `without` leaves one kind of input out. After a failure the result is empty.
PreparedRequest prepare(Runtime& rt,
                        const RenderRequest& request,
                        std::optional<TemplateInput> without);

/// Whether the request gives this input at all. Expects the JSON of a conversation.
bool gives_input(const RenderRequest& request, TemplateInput input);

/// Cuts the prompt behind the final message, where generation is to continue.
void cut_at_continuation(Runtime& rt, const Continuation& continuation, RenderedPrompt& prompt);

}  // namespace terrace::jinja
