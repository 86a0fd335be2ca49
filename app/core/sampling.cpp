#include "app/core/sampling.h"

#include <cmath>
#include <random>

namespace terrace::app {

namespace {

Status inRange(const char* name, double value, double low, double high) {
    if (std::isfinite(value) && value >= low && value <= high) {
        return {};
    }
    return Error{ErrorCode::WrongUse,
                 std::string(name) + " is " + std::to_string(value) + "; expected " +
                     std::to_string(low) + " to " + std::to_string(high),
                 "", ""};
}

std::uint64_t drawSeed() {
    std::random_device device;
    // 53 bits, so that the seed survives a trip through JSON readers that know only doubles.
    return ((std::uint64_t{device()} << 32) | device()) & ((std::uint64_t{1} << 53) - 1);
}

}  // namespace

Result<ResolvedSampling> resolveSampling(const SamplingChoice& choice,
                                         const GenerationConfig& model) {
    ResolvedSampling out;
    SamplingSettings& s = out.settings;
    const bool chosen = choice.temperature || choice.topK || choice.topP || choice.minP ||
                        choice.repetitionPenalty || choice.frequencyPenalty ||
                        choice.presencePenalty;
    if (chosen) {
        out.origin = "sampling as chosen";
    } else {
        out.origin = "sampling as the model's generation_config.json recommends";
        s.temperature = model.do_sample.value_or(true) ? model.temperature.value_or(1.0) : 0.0;
        s.top_p = model.top_p.value_or(1.0);
        s.top_k = static_cast<std::int32_t>(model.top_k.value_or(0));
        s.min_p = model.min_p.value_or(0.0);
        s.repetition_penalty = model.repetition_penalty.value_or(1.0);
    }
    s.temperature = choice.temperature.value_or(s.temperature);
    s.top_k = choice.topK.value_or(s.top_k);
    s.top_p = choice.topP.value_or(s.top_p);
    s.min_p = choice.minP.value_or(s.min_p);
    s.repetition_penalty = choice.repetitionPenalty.value_or(s.repetition_penalty);
    s.frequency_penalty = choice.frequencyPenalty.value_or(0.0);
    s.presence_penalty = choice.presencePenalty.value_or(0.0);
    s.logit_bias = choice.logitBias;
    s.seed = choice.seed ? *choice.seed : drawSeed();
    for (const Status& status :
         {inRange("temperature", s.temperature, 0.0, 100.0), inRange("top-k", s.top_k, 0.0, 1e9),
          inRange("top-p", s.top_p, 0.0, 1.0), inRange("min-p", s.min_p, 0.0, 1.0),
          inRange("repetition penalty", s.repetition_penalty, 0.01, 100.0),
          inRange("frequency penalty", s.frequency_penalty, -100.0, 100.0),
          inRange("presence penalty", s.presence_penalty, -100.0, 100.0)}) {
        if (!status) {
            return status.error();
        }
    }
    return out;
}

}  // namespace terrace::app
