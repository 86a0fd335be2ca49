// An answer on the terminal while it is made.
#pragma once

#include "app/cli/terminal.h"
#include "engine/generate/session.h"

namespace terrace::cli {

/// Streams the text to stdout (unless the result is JSON) and prompt progress to stderr. Owner: one
/// request.
class AnswerWriter final : public GenerateObserver {
public:
    explicit AnswerWriter(Terminal& terminal) : terminal_(terminal) {}

    void prefill_progress(std::int64_t done, std::int64_t total) override {
        // Short prompts are read before a line could be seen.
        if (total > 256) {
            terminal_.progress("reading the prompt", done, total, "tokens");
        }
    }

    void text(std::string_view piece, std::int32_t /*token*/) override {
        terminal_.endProgress();
        if (!terminal_.json()) {
            terminal_.out(piece);
        }
    }

private:
    Terminal& terminal_;
};

}  // namespace terrace::cli
