// Writes every intermediate of a run as one safetensors file, for comparison with other programs.
#pragma once

#include <span>
#include <stop_token>
#include <string>

#include "engine/engine.h"

namespace terrace::cli {

/// Runs `tokens` once more from position 0 and writes the arrays of docs/cli.md to `path`.
/// Errors: TooLarge over 2 GiB (with the size), TooLarge when a position does not fit the context,
/// Io.
[[nodiscard]] Status writeDump(Engine& engine,
                               const SamplingSettings& sampling,
                               std::span<const std::int32_t> tokens,
                               const std::string& path,
                               std::stop_token stop);

}  // namespace terrace::cli
