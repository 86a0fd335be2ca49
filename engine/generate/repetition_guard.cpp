#include "engine/generate/repetition_guard.h"

#include <algorithm>

namespace terrace {

std::int64_t repeated_block(std::span<const std::int32_t> answer, RepetitionRule rule) {
    const auto n = static_cast<std::int64_t>(answer.size());
    for (std::int64_t block = 1; block <= rule.max_block_tokens; ++block) {
        const std::int64_t run = std::max(block * rule.min_repeats, rule.min_tokens);
        if (run > n) {
            continue;
        }
        const auto tail = answer.last(static_cast<std::size_t>(run));
        if (std::equal(tail.begin() + block, tail.end(), tail.begin())) {
            return block;
        }
    }
    return 0;
}

}  // namespace terrace
