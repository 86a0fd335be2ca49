// Notices an answer that says the same block of tokens over and over, so that a person is asked.
#pragma once

#include <cstdint>
#include <span>

namespace terrace {

/// When a repetition counts as a loop.
struct RepetitionRule {
    std::int64_t max_block_tokens = 64;  ///< longest block that is looked for
    std::int64_t min_repeats = 16;       ///< how often it must stand in a row
    std::int64_t min_tokens = 256;       ///< and how long the whole run must be
};

/// Length of the shortest block of tokens that `answer` ends with often enough, or 0. Pure.
[[nodiscard]] std::int64_t repeated_block(std::span<const std::int32_t> answer,
                                          RepetitionRule rule = {});

}  // namespace terrace
