// One conversation with one model: prefill, decode with drafts, stop. The only caller of the
// decoder.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/decoder/decoder.h"
#include "engine/device/result.h"
#include "engine/generate/sampler.h"
#include "engine/text/tokenizer.h"

namespace terrace {

enum class StopReason : std::uint8_t { Eos, Stop, Length, Context, Cancelled };

/// "eos", "stop", "length", "context", "cancelled".
[[nodiscard]] const char* to_string(StopReason reason);

/// What a request is told while it runs. Called on the engine thread; must not block for long.
class GenerateObserver {
public:
    virtual ~GenerateObserver() = default;

    virtual void prefill_progress(std::int64_t /*tokens_done*/, std::int64_t /*tokens_total*/) {}

    /// A token of the answer, and the whole characters that became certain with it (may be empty).
    virtual void text(std::string_view /*piece*/, std::int32_t /*token*/) {}
};

/// One request.
struct GenerateRequest {
    std::vector<std::int32_t> prompt;
    SamplingSettings sampling;
    std::int64_t max_new_tokens = -1;  ///< -1: until a stop or the end of the context
    bool ignore_eos = false;
    std::vector<std::string> stop_strings;
};

/// One round of speculation: what was proposed and how much of it was right.
struct DraftRound {
    std::int64_t position = 0;  ///< index of the newest token when the drafts were made
    std::vector<std::int32_t> drafts;
    std::int64_t accepted = 0;
};

struct SpeculationStats {
    std::int64_t depth = 0;
    std::int64_t drafted = 0;
    std::int64_t accepted = 0;
    std::int64_t forwards = 0;  ///< main sweeps of the decode phase
};

/// One answer.
struct GenerateResult {
    std::vector<std::int32_t> ids;
    std::string text;
    StopReason stop_reason = StopReason::Length;
    std::uint64_t logits_hash = 0;  ///< FNV-1a 64 over the logits of every sampled position
    std::int64_t prompt_tokens = 0;
    std::int64_t reused_tokens = 0;
    double prefill_seconds = 0.0;
    double decode_seconds = 0.0;
    double first_token_seconds = 0.0;  ///< from the start of the request
    SpeculationStats speculation;
    std::vector<DraftRound> rounds;
    std::vector<std::string> warnings;
};

/// How a session is set up.
struct SessionOptions {
    std::int64_t chunk_rows = 512;
    std::int64_t draft_depth = 0;  ///< 0: no speculation
};

/// Owner: the engine; decoder and tokenizer must outlive it. Thread: engine. Failure: an Error
/// leaves the session usable; everything computed before the failing sweep is kept for reuse.
class Session {
public:
    Session(Decoder* decoder,
            const Tokenizer* tokenizer,
            std::vector<std::int32_t> stop_ids,
            SessionOptions options);

    /// Answers one prompt. Rows that the prompt shares with what the cache holds are reused: the
    /// bits are the same as if they were computed again.
    /// Errors: TooLarge when the prompt does not fit the context (both numbers), WrongUse for ids
    /// outside the vocabulary, and whatever the forward pass meets. A stop is a result.
    [[nodiscard]] Result<GenerateResult> generate(const GenerateRequest& request,
                                                  GenerateObserver* observer,
                                                  std::stop_token stop);

    /// Forgets the cache.
    void reset();

    [[nodiscard]] const std::vector<std::uint8_t>& candidates() const { return candidates_; }

private:
    struct Turn;

    [[nodiscard]] Status check(const GenerateRequest& request) const;
    [[nodiscard]] std::int64_t reusable_rows(const std::vector<std::int32_t>& prompt) const;
    [[nodiscard]] Status prefill(Turn& turn);
    [[nodiscard]] Status decode(Turn& turn);
    [[nodiscard]] Status feed_drafter(Turn& turn, std::int64_t first_row, std::int64_t n_rows);
    [[nodiscard]] Status propose(Turn& turn);
    [[nodiscard]] Status verify(Turn& turn);
    [[nodiscard]] Status compute_logits(std::int64_t first_row, std::int64_t n_rows);
    void take(Turn& turn, std::int32_t token, std::span<const float> logits);

    Decoder* decoder_;
    const Tokenizer* tokenizer_;
    std::vector<std::int32_t> stop_ids_;
    SessionOptions options_;
    std::vector<std::uint8_t> candidates_;  ///< [vocab] ids that may be drawn
    std::vector<float> logits_;             ///< [draft_depth + 1, vocab]

    // What the cache holds: tokens_[i] was (or may next be) eaten at position i.
    std::vector<std::int32_t> tokens_;
    std::int64_t n_rows_ = 0;      ///< main rows that are valid
    std::int64_t n_mtp_rows_ = 0;  ///< draft rows that are valid
};

}  // namespace terrace
