// One answer as the JSON object of `run --json` (docs/cli.md).
#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"

namespace terrace::app {

/// What the report needs beside the answer itself.
struct RunContext {
    const Engine* engine = nullptr;
    std::vector<std::int32_t> promptIds;
    std::uint64_t seed = 0;
    std::vector<std::string> warnings;
};

/// One line of JSON, without the newline.
[[nodiscard]] std::string runReport(const GenerateResult& answer, const RunContext& context);

/// One line for people: tokens, rates, speculation, hits.
[[nodiscard]] std::string runSummary(const GenerateResult& answer, const Engine& engine);

}  // namespace terrace::app
