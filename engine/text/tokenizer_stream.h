// The text of an answer while it is made: whole characters only. Stands between the sampler and
// whoever shows text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/text/tokenizer.h"

namespace terrace {

/// Turns ids into text one by one. Owned by the request it belongs to; one thread; reads the
/// tokenizer, which must outlive it; cannot fail. The pieces joined, with the end that finish()
/// gives, equal Tokenizer::decode of all ids.
class StreamDecoder {
public:
    explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

    /// The text that is certain after this id: a character is held back until its last byte has
    /// come; bytes that can no longer become a character give U+FFFD, one per maximal ill-formed
    /// part.
    std::string push(std::int32_t id);

    /// What is left at the end of the answer (U+FFFD for an unfinished character); starts afresh.
    std::string finish();

    /// Bytes of an unfinished character, held back.
    [[nodiscard]] std::string_view held() const { return held_; }

private:
    const Tokenizer* tokenizer_;
    std::string held_;
};

}  // namespace terrace
