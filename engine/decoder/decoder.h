// The forward pass: token ids in, hidden states and logits out. Every step is idempotent: run it
// again from the same inputs and it writes the same cache rows and the same numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>

#include "engine/decoder/activations.h"
#include "engine/decoder/attention_block.h"
#include "engine/decoder/kv_cache.h"
#include "engine/decoder/moe_block.h"
#include "engine/decoder/step_observer.h"
#include "engine/decoder/weights.h"

namespace terrace {

/// What the decoder is built with.
struct DecoderOptions {
    SessionKind kind = SessionKind::Quantised;
    std::int64_t context = 0;          ///< positions of the cache
    std::int64_t max_rows = 0;         ///< rows of one sweep
    std::optional<double> latent_eps;  ///< of the two latent norms; empty: rms_norm_eps
    bool use_mtp = false;              ///< a cache layer for the draft head is wanted
};

/// The whole model on one device. Owner: the engine; weights, store, ops and stream must outlive
/// it. Thread: engine. Failure: Result; after an error or a stop the rows of that sweep are not
/// valid and everything before them is.
class Decoder {
public:
    [[nodiscard]] static Result<std::unique_ptr<Decoder>> create(const ModelConfig& config,
                                                                 const DecoderOptions& options,
                                                                 const DecoderWeights& weights,
                                                                 ExpertStore& store,
                                                                 Ops& ops,
                                                                 Stream& stream,
                                                                 Device& device);

    /// The cache that `create` would allocate.
    [[nodiscard]] static CacheShape cache_shape(const ModelConfig& config,
                                                const DecoderOptions& options);

    /// Sweeps rows through all layers; afterwards final_rows() holds their final-normed hidden
    /// states. ids.size() <= max_rows; first_position + ids.size() <= context.
    [[nodiscard]] Status step(std::span<const std::int32_t> ids,
                              std::int32_t first_position,
                              StepObserver* observer,
                              std::stop_token stop);

    /// logits [n, vocab_size] of final rows first .. first + n of the last step.
    [[nodiscard]] Status logits(std::int64_t first, FloatRows out, std::int32_t first_position);

    /// Final-normed rows of the last step [n, H].
    [[nodiscard]] const ActivationRows& final_rows() const { return activations_.set.final; }

    [[nodiscard]] bool has_mtp() const { return weights_->mtp.has_value() && options_.use_mtp; }

    /// Feeds known rows to the draft layer: row i stands at first_position + i, eats next_ids[i]
    /// and `hidden` row i (final-normed). Afterwards mtp_rows() holds z of every row.
    [[nodiscard]] Status mtp_feed(std::span<const std::int32_t> next_ids,
                                  std::int32_t first_position,
                                  FloatRows hidden,
                                  std::stop_token stop);

    /// Row of mtp_rows() that the last fed row is: where a chain begins.
    [[nodiscard]] std::int64_t chain_row() const { return chain_row_; }

    /// One chained draft row after mtp_feed: eats `draft` and z of the row before it. `depth` >= 1
    /// counts the rows after the last fed one.
    [[nodiscard]] Status mtp_chain(std::int32_t draft, std::int64_t depth, std::stop_token stop);

    /// z of the rows of the last mtp call [n, H].
    [[nodiscard]] const ActivationRows& mtp_rows() const { return activations_.set.mtp_out; }

    /// Logits of the draft head for row `row` of the last mtp call. out [1, vocab_size].
    [[nodiscard]] Status mtp_logits(std::int64_t row, FloatRows out);

    [[nodiscard]] const ModelConfig& config() const { return config_; }

    [[nodiscard]] std::int64_t context() const { return options_.context; }

    [[nodiscard]] std::int64_t max_rows() const { return options_.max_rows; }

private:
    Decoder(const ModelConfig& config,
            const DecoderOptions& options,
            const DecoderWeights& weights,
            RopeTable rope,
            KvCache cache,
            Activations activations,
            ExpertStore& store,
            Ops& ops,
            Stream& stream);

    RowBatch begin_rows(std::int64_t n, std::int32_t first_position, std::stop_token stop);
    Status run_layers(const RowBatch& batch, StepObserver* observer, std::stop_token stop);
    Status mtp_layer(std::span<const std::int32_t> ids,
                     const RowBatch& batch,
                     FloatRows hidden,
                     SelectionSource source,
                     std::stop_token stop);
    /// What the device has to say: a stop, an error, or a numeric fault.
    Status check_stream(const char* doing);

    ModelConfig config_;
    DecoderOptions options_;
    const DecoderWeights* weights_;
    RopeTable rope_;
    KvCache cache_;
    Activations activations_;
    Ops* ops_;
    Stream* stream_;
    AttentionBlock attention_;
    MoeBlock moe_;
    std::int64_t clock_tokens_ = 0;
    // Step 0 of the draft chain: its position, and what it may see.
    std::int32_t chain_position_ = 0;
    std::int64_t chain_row_ = 0;  ///< its row of mtp_rows()
    std::vector<std::int32_t> chain_selected_;
    bool chain_sees_all_ = true;
};

}  // namespace terrace
