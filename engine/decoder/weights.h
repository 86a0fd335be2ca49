// The dense weights of a model, resident and packed for the kernels: everything but the experts.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <vector>

#include "engine/decoder/kv_cache.h"
#include "engine/device/device.h"
#include "engine/device/ops.h"
#include "engine/model/model_folder.h"

namespace terrace {

/// Attention weights of one layer. Shapes as models publish them: [out, in].
struct AttentionWeights {
    const float* input_norm = nullptr;  ///< [H]
    WeightMatrix q_a;                   ///< [q_lora_rank, H]
    const float* q_a_norm = nullptr;    ///< [q_lora_rank]
    WeightMatrix q_b;                   ///< [heads * (nope + rope), q_lora_rank]
    WeightMatrix kv_a;                  ///< [kv_lora_rank + rope, H]
    const float* kv_a_norm = nullptr;   ///< [kv_lora_rank]
    HeadMatrices k_heads;               ///< K rows of kv_b: [nope, kv_lora_rank] each, ColumnSum
    HeadMatrices v_heads;               ///< V rows of kv_b: [v_head_dim, kv_lora_rank] each
    WeightMatrix o;                     ///< [H, heads * v_head_dim]
};

/// The lightning indexer of a full layer.
struct IndexerWeights {
    WeightMatrix wq_b;                   ///< [index_n_heads * index_head_dim, q_lora_rank]
    WeightMatrix wk;                     ///< [index_head_dim, H]
    WeightMatrix weights_proj;           ///< [index_n_heads, H]
    const float* k_norm = nullptr;       ///< [index_head_dim]
    const float* k_norm_bias = nullptr;  ///< [index_head_dim]
};

/// A gated feed-forward network: a dense layer's, or the shared expert's.
struct FeedForwardWeights {
    WeightMatrix gate;  ///< [inner, H]
    WeightMatrix up;    ///< [inner, H]
    WeightMatrix down;  ///< [H, inner]
};

struct LayerWeights {
    AttentionWeights attention;
    std::optional<IndexerWeights> indexer;
    const float* post_attention_norm = nullptr;      ///< [H]
    std::optional<FeedForwardWeights> feed_forward;  ///< dense FFN or shared expert
    const float* router = nullptr;       ///< [n_routed_experts, H]; null in a dense layer
    const float* router_bias = nullptr;  ///< [n_routed_experts] or null

    [[nodiscard]] bool sparse() const { return router != nullptr; }
};

/// What the draft layer has besides an ordinary sparse layer.
struct MtpWeights {
    const float* embedding_norm = nullptr;  ///< enorm [H]
    const float* hidden_norm = nullptr;     ///< hnorm [H]
    WeightMatrix eh_proj;                   ///< [H, 2H]
    const float* output_norm = nullptr;     ///< shared_head.norm [H]
    RawMatrix embedding;                    ///< its own table, or the model's
    WeightMatrix head;                      ///< its own head, or lm_head
};

/// How loading goes on; called on the loading thread.
using LoadProgress = std::function<void(std::int64_t bytes_done, std::int64_t bytes_total)>;

/// Everything dense. Owner: the engine; read by the decoder. Thread: immutable once loaded.
class DecoderWeights {
public:
    /// Reads and packs every dense tensor of `folder`.
    /// Errors: a tensor that is missing, cannot be read or has illegal scales; a stop.
    [[nodiscard]] static Result<DecoderWeights> load(const ModelFolder& folder,
                                                     SessionKind kind,
                                                     const Ops& ops,
                                                     Device& device,
                                                     const LoadProgress& progress,
                                                     std::stop_token stop);

    /// Bytes that `load` will keep, to within the rounding of small allocations.
    [[nodiscard]] static std::int64_t bytes_needed(const ModelFolder& folder,
                                                   SessionKind kind,
                                                   const Ops& ops);

    RawMatrix embedding;                ///< [vocab_size, H], as stored
    const float* final_norm = nullptr;  ///< [H]
    WeightMatrix lm_head;               ///< [vocab_size, H]
    std::vector<LayerWeights> layers;   ///< main layers, then the MTP layer if the model has one
    std::optional<MtpWeights> mtp;

    [[nodiscard]] std::int64_t bytes() const { return bytes_; }

private:
    friend class WeightLoader;
    std::vector<Buffer> memory_;
    std::int64_t bytes_ = 0;
};

}  // namespace terrace
