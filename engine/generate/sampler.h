// Turns logits into a token id (docs/arithmetic.md 5). Host, binary64.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace terrace {

/// How the next token is drawn. The defaults change nothing but the temperature.
struct SamplingSettings {
    double temperature = 1.0;  ///< below 2^-10: the largest logit, nothing else
    std::int32_t top_k = 0;    ///< 0 = all
    double top_p = 1.0;
    double min_p = 0.0;
    double repetition_penalty = 1.0;
    double frequency_penalty = 0.0;
    double presence_penalty = 0.0;
    std::int32_t penalty_window = 0;  ///< last n context tokens that are penalised; 0 = all
    std::vector<std::pair<std::int32_t, double>> logit_bias;
    std::uint64_t seed = 0;
};

/// Draws the winner of the exponential race. A pure function of its arguments but for scratch
/// memory, so the same (logits, index, context) always gives the same token.
/// Owner: the session. Thread: one.
class Sampler {
public:
    /// `candidates` [vocab]: non-zero for ids that the tokenizer defines; others can never be
    /// drawn.
    Sampler(SamplingSettings settings, std::vector<std::uint8_t> candidates);

    /// The token at index `index` (= number of tokens before it).
    ///   logits   [vocab] f32
    ///   context  every token before it, drafts included
    [[nodiscard]] std::int32_t draw(std::span<const float> logits,
                                    std::int64_t index,
                                    std::span<const std::int32_t> context);

    [[nodiscard]] const SamplingSettings& settings() const { return settings_; }

private:
    struct Candidate {
        double logit;
        double p;
        std::int32_t id;
    };

    void collect(std::span<const float> logits, std::span<const std::int32_t> context);
    void keep_probable();
    void keep_mass();
    [[nodiscard]] std::int32_t race(std::int64_t index) const;

    SamplingSettings settings_;
    std::vector<std::uint8_t> candidates_;
    std::vector<double> adjusted_;
    std::vector<Candidate> ranked_;
};

}  // namespace terrace
