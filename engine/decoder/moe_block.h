// The feed-forward half of a layer: a dense network, or the router, its experts and the shared one.
#pragma once

#include <cstdint>
#include <stop_token>
#include <vector>

#include "engine/decoder/activations.h"
#include "engine/decoder/attention_block.h"
#include "engine/decoder/weights.h"
#include "engine/device/ops.h"
#include "engine/experts/expert_store.h"

namespace terrace {

/// Feed-forward of one layer. Experts come from the store as leases, in whatever order they are
/// ready; the sum is always in ascending expert id. Owner: the decoder. Thread: engine.
class MoeBlock {
public:
    MoeBlock(const ModelConfig& config, ExpertStore* store, Ops* ops);

    /// hidden += feed_forward(norm(hidden)) for the rows of the batch.
    /// Errors: an expert that cannot be read; a stop.
    [[nodiscard]] Status run(const LayerWeights& weights,
                             std::int64_t layer,
                             const RowBatch& batch,
                             ActivationSet& a,
                             std::stop_token stop);

    [[nodiscard]] const RouterRule& rule() const { return rule_; }

private:
    void run_dense(const FeedForwardWeights& weights,
                   const RowBatch& batch,
                   ActivationSet& a,
                   RowScope scope);
    void group_rows_by_expert(const RowBatch& batch, const ActivationSet& a);
    /// Computes one batch of leases, and with it the shared expert when that is still to be done.
    void run_experts(std::span<const ExpertLease> leases,
                     const FeedForwardWeights* shared,
                     const RowBatch& batch,
                     ActivationSet& a,
                     RowScope scope);

    RouterRule rule_;
    float eps_;
    std::int64_t inner_width_;
    std::int64_t shared_width_;
    ExpertStore* store_;
    Ops* ops_;

    // Demand of the layer in hand; kept to save allocations.
    std::vector<Demand> demand_;
    std::vector<std::int32_t> first_pair_;  ///< [n_experts + 1] where an expert's rows begin
    std::vector<std::int32_t> pair_rows_;   ///< [n * k] batch row of each pair, grouped by expert
    std::vector<MatmulJob> jobs_;
};

}  // namespace terrace
