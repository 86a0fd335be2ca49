// A byte range of a rendered prompt; the tokenizer reads such ranges raw.
#pragma once

#include <cstddef>

namespace terrace {

/// Bytes [begin, end) of a text. Value type.
struct TextSpan {
    std::size_t begin = 0;
    std::size_t end = 0;

    bool operator==(const TextSpan&) const = default;
};

}  // namespace terrace
