// See tokenizer_stream.h.
#include "engine/text/tokenizer_stream.h"

#include <utility>

#include "engine/text/utf8.h"

namespace terrace {

std::string StreamDecoder::push(std::int32_t id) {
    held_.append(tokenizer_->piece_bytes(id));
    const std::size_t n_certain = held_.size() - unfinished_utf8_tail(held_);
    std::string out = to_valid_utf8(std::string_view(held_).substr(0, n_certain));
    held_.erase(0, n_certain);
    return out;
}

std::string StreamDecoder::finish() {
    return to_valid_utf8(std::exchange(held_, {}));
}

}  // namespace terrace
