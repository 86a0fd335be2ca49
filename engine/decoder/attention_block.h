// Multi-head latent attention with the sparse-attention indexer: the first half of every layer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/decoder/activations.h"
#include "engine/decoder/weights.h"
#include "engine/device/ops.h"
#include "engine/device/rope_table.h"
#include "engine/model/model_config.h"

namespace terrace {

/// Numbers of the attention block that do not change while a model is open.
struct AttentionShape {
    std::int64_t n_heads = 0;
    std::int64_t nope = 0;
    std::int64_t rope = 0;
    std::int64_t latent = 0;
    std::int64_t v_dim = 0;
    std::int64_t index_heads = 0;
    std::int64_t index_dim = 0;
    std::int64_t index_topk = 0;  ///< 0: the model has no indexer, every position is seen
    RopePairs pairs = RopePairs::Interleaved;
    RopePairs index_pairs = RopePairs::Interleaved;
    float eps = 1e-5F;         ///< rms_norm_eps
    float latent_eps = 1e-5F;  ///< of q_a_layernorm and kv_a_layernorm
    float softmax_scale = 1.0F;
    float index_key_scale = 1.0F;   ///< index_head_dim^-0.5
    float index_head_scale = 1.0F;  ///< index_n_heads^-0.5
};

/// The stretching of positions that config.json asks for, if it does.
[[nodiscard]] std::optional<Yarn> yarn_of(const RopeParameters& rope);

/// The numbers for one model.
[[nodiscard]] AttentionShape attention_shape(const ModelConfig& config, double latent_eps);

/// The rows of one sweep.
struct RowBatch {
    std::int64_t n_rows = 0;
    std::int32_t first_position = 0;
    const std::int32_t* positions = nullptr;  ///< [n_rows] first_position, first_position + 1, ...
    std::int64_t clock_tokens = 0;  ///< tokens this engine has processed, these rows included
};

/// Where the selection of a layer comes from.
enum class SelectionSource : std::uint8_t {
    Layer,  ///< the layer's own indexer, or the selection of the last full layer
    Given,  ///< as it stands in `selections`: drafts beyond the first
};

/// Attention of one layer: list of ops, no state. Owner: the decoder. Thread: engine.
class AttentionBlock {
public:
    AttentionBlock(AttentionShape shape, const RopeTable* rope, Ops* ops)
        : shape_(shape), rope_(rope), ops_(ops) {}

    /// hidden += attention(norm(hidden)) for the rows of the batch.
    ///   layer       its number, for faults and the cache
    ///   selections  [n_rows] in and out: what each row may see
    void run(const LayerWeights& weights,
             const KvCache& cache,
             std::int64_t layer,
             const RowBatch& batch,
             SelectionSource source,
             ActivationSet& a,
             std::span<Selection> selections) const;

    [[nodiscard]] const AttentionShape& shape() const { return shape_; }

private:
    void project_inputs(const AttentionWeights& w,
                        const IndexerWeights* indexer,
                        const RowBatch& batch,
                        ActivationSet& a,
                        RowScope scope) const;
    void select(const IndexerWeights& indexer,
                const IndexCache& cache,
                const RowBatch& batch,
                ActivationSet& a,
                std::span<Selection> selections,
                RowScope scope) const;
    void rotate(FloatRows x,
                std::int64_t first,
                std::int64_t n_heads,
                std::int64_t head_stride,
                const RowBatch& batch,
                RopePairs pairs) const;

    AttentionShape shape_;
    const RopeTable* rope_;
    Ops* ops_;
};

/// Every row of the batch may see all positions up to its own.
void select_all(const RowBatch& batch, std::span<Selection> selections);

}  // namespace terrace
