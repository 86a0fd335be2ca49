// Sampling settings as a user chose them, over what the model's publisher recommends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/result.h"
#include "engine/generate/sampler.h"
#include "engine/model/model_config.h"

namespace terrace::app {

/// What the user said; empty = not said.
struct SamplingChoice {
    std::optional<double> temperature;
    std::optional<std::int32_t> topK;
    std::optional<double> topP;
    std::optional<double> minP;
    std::optional<double> repetitionPenalty;
    std::optional<double> frequencyPenalty;
    std::optional<double> presencePenalty;
    std::vector<std::pair<std::int32_t, double>> logitBias;
    std::optional<std::uint64_t> seed;
};

/// The settings of a request and a line about where they come from.
struct ResolvedSampling {
    SamplingSettings settings;
    std::string origin;
};

/// Without any choice of the user generation_config.json decides. A seed that was not chosen is
/// drawn. Errors: WrongUse for a value out of range, naming it.
[[nodiscard]] Result<ResolvedSampling> resolveSampling(const SamplingChoice& choice,
                                                       const GenerationConfig& model);

}  // namespace terrace::app
