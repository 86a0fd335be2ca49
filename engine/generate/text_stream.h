// Turns accepted token ids into the text a reader sees: whole characters, special tokens hidden,
// stop strings found wherever they begin.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/text/tokenizer.h"
#include "engine/text/tokenizer_stream.h"

namespace terrace {

/// Text of one answer. Bytes that may be the beginning of a stop string are held back until it is
/// clear that they are not. Owner: one answer. Thread: one.
class TextStream {
public:
    TextStream(const Tokenizer& tokenizer, std::vector<std::string> stop_strings);

    /// The text that became certain with this token. Sets stopped() when a stop string is complete:
    /// then the text ends before it.
    [[nodiscard]] std::string push(std::int32_t id);

    /// What was held back, at the end of the answer. Empty after a stop string.
    [[nodiscard]] std::string finish();

    [[nodiscard]] bool stopped() const { return stopped_; }

private:
    enum class End : std::uint8_t { NotYet, Reached };

    std::string release(End end);

    StreamDecoder decoder_;
    const Tokenizer* tokenizer_;
    std::vector<std::string> stop_strings_;
    std::string held_;
    bool stopped_ = false;
};

}  // namespace terrace
