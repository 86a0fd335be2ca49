// The complete list of kernels: what a back end must be able to do, with every shape. This page is
// the porting guide. The bits of every result are fixed by docs/arithmetic.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/device/stream.h"
#include "engine/device/tensor.h"

namespace terrace {

/// One matrix product of a group.
struct MatmulJob {
    WeightMatrix weight;   ///< [rows, cols], WeightUse::RowDot
    ActivationRows input;  ///< [n, cols]; `values` for float weights, `q` for quantised ones
    std::span<const std::int32_t> rows;  ///< which input rows, in this order; empty = all
    float* out = nullptr;                ///< [rows.size() or n, weight.rows] f32
    std::int64_t out_stride = 0;
};

enum class Activation : std::uint8_t { SwiGlu, ClampedSwiGlu };

enum class RopePairs : std::uint8_t { Interleaved, HalfSplit };

/// Rotates `dims` numbers of every head of every row, in place.
struct RopeJob {
    float* x = nullptr;  ///< first number that is rotated of row 0, head 0
    std::int64_t row_stride = 0;
    std::int64_t head_stride = 0;
    std::int64_t n_rows = 0;
    std::int64_t n_heads = 1;
    std::int64_t dims = 0;
    RopePairs pairs = RopePairs::Interleaved;
    const float* cos = nullptr;               ///< [n_positions, dims / 2]
    const float* sin = nullptr;               ///< [n_positions, dims / 2]
    const std::int32_t* positions = nullptr;  ///< [n_rows]
};

/// The cache of one MLA layer (arithmetic.md 3).
/// Quantised: rows [capacity, row_bytes()] int8, the latent part padded to 64, then the rope part
/// padded to 64; scales [capacity, n_groups()] f32. Float session: values [capacity, latent +
/// rope].
struct MlaCache {
    std::int64_t capacity = 0;
    std::int64_t latent = 0;  ///< kv_lora_rank
    std::int64_t rope = 0;    ///< qk_rope_head_dim
    std::int8_t* rows = nullptr;
    float* scales = nullptr;
    float* values = nullptr;

    [[nodiscard]] std::int64_t row_bytes() const {
        return round_up(latent, kQuantGroup) + round_up(rope, kQuantGroup);
    }

    [[nodiscard]] std::int64_t n_groups() const { return row_bytes() / kQuantGroup; }
};

/// The index keys of one full layer. Quantised: keys in lanes of 16, so that scores need no
/// transpose: keys [ceil(capacity / 16)][padded dim / 4][16 keys][4] int8,
/// scales [ceil(capacity / 16)][padded dim / 64][16 keys] f32. Float session: values
/// [capacity, dim].
struct IndexCache {
    std::int64_t capacity = 0;
    std::int64_t dim = 0;  ///< index_head_dim
    std::int8_t* keys = nullptr;
    float* scales = nullptr;
    float* values = nullptr;
};

/// The positions that one row may see.
struct Selection {
    const std::int32_t* positions = nullptr;  ///< ascending; null: 0 .. count - 1
    std::int32_t count = 0;
};

/// Attention of n rows over one layer's cache, absorbed form.
struct MlaAttention {
    const MlaCache* cache = nullptr;
    std::int64_t n_rows = 0;
    std::int64_t n_heads = 0;
    const float* absorbed = nullptr;  ///< [n_rows, n_heads, latent] from absorb_query
    const float* q_rope = nullptr;    ///< rope part of head 0 of row 0, after rope
    std::int64_t q_row_stride = 0;
    std::int64_t q_head_stride = 0;
    float scale = 1.0f;
    std::span<const Selection> selections;  ///< [n_rows]
    float* out = nullptr;                   ///< z [n_rows, n_heads, latent]
};

/// Index scores of n rows, and the positions they choose.
struct IndexSelect {
    const IndexCache* cache = nullptr;
    std::int64_t n_rows = 0;
    std::int64_t n_heads = 0;
    const float* q = nullptr;             ///< [n_rows, n_heads, dim] after rope
    const float* head_weights = nullptr;  ///< [n_rows, n_heads], before the factor n_heads^-0.5
    std::int64_t weights_stride = 0;
    float head_scale = 1.0f;  ///< n_heads^-0.5, rounded once
    float key_scale = 1.0f;   ///< dim^-0.5, rounded once
    std::int64_t top_k = 0;
    std::int32_t* positions = nullptr;  ///< out [n_rows, top_k], ascending
    Selection* selections = nullptr;    ///< out [n_rows]; rows with p < top_k get 0 .. p
};

enum class Scoring : std::uint8_t { Sigmoid, SoftmaxThenTopK, TopKThenSoftmax };

/// How a router chooses (arithmetic.md 4).
struct RouterRule {
    Scoring scoring = Scoring::Sigmoid;
    std::int64_t n_experts = 0;
    std::int64_t top_k = 0;
    std::int64_t n_group = 1;
    std::int64_t topk_group = 1;
    bool norm_topk = true;
    float scaling = 1.0f;
};

/// One router call.
struct RouterJob {
    const float* weight = nullptr;  ///< [n_experts, width] f32
    const float* bias = nullptr;    ///< [n_experts] f32, correction bias; null = none
    ActivationRows input;           ///< [n, width], the float form is read
    std::int32_t* ids = nullptr;    ///< out [n, top_k], in order of choice
    float* gates = nullptr;         ///< out [n, top_k], the weights of the experts' outputs
};

/// Sums expert outputs in ascending expert id, adds the shared expert and the residual.
struct ExpertSum {
    std::int64_t n_rows = 0;
    std::int64_t top_k = 0;
    std::int64_t width = 0;
    const std::int32_t* ids = nullptr;  ///< [n_rows, top_k]
    const float* gates = nullptr;       ///< [n_rows, top_k]
    const float* outputs = nullptr;     ///< [n_outputs, width], in any order
    /// [n_rows, top_k]: which row of `outputs` is rank r of row n
    const std::int32_t* output_rows = nullptr;
    const float* shared = nullptr;  ///< [n_rows, width] or null
    float* residual = nullptr;      ///< [n_rows, width], added to
    std::int64_t residual_stride = 0;
};

/// All kernels of one device. Every op is called by the engine thread and works in stream order;
/// none returns an error: the stream keeps it. Pointers must stay valid until the stream is waited
/// for (the CPU returns when the work is done). NaN and infinity are reported to stream.faults()
/// at the sites of arithmetic.md 0 and count as +0 there.
class Ops {
public:
    virtual ~Ops() = default;

    /// Name for reports: "cpu avx512".
    [[nodiscard]] virtual const char* name() const = 0;

    /// Bytes that `pack` writes for a matrix; a multiple of 64.
    [[nodiscard]] virtual std::int64_t packed_bytes(WeightFormat format,
                                                    WeightUse use,
                                                    std::int64_t rows,
                                                    std::int64_t cols) const = 0;

    /// Rewrites a raw matrix in the kernels' layout. `out` is aligned to 64 and packed_bytes long.
    /// Thread-safe: the expert reader packs on its own threads.
    virtual void pack(const RawMatrix& raw, WeightUse use, std::byte* out) const = 0;

    /// out[i] = row ids[i] of the table as float (value * scale, one rounding). out [n, cols].
    virtual void embed(const RawMatrix& table,
                       std::span<const std::int32_t> ids,
                       FloatRows out) = 0;

    /// RMSNorm of every row; fills out.values and, unless null, the quantised form.
    ///   x [n, width], weight [width]; out.values may be x itself
    virtual void rms_norm(
        FloatRows x, const float* weight, float eps, const ActivationRows& out, RowScope scope) = 0;

    /// LayerNorm of every row, in place. x [n, width], weight and bias [width].
    virtual void layer_norm(FloatRows x, const float* weight, const float* bias, float eps) = 0;

    /// quantise8 of x.values into x.q, x.scales, x.sums.
    virtual void quantise(const ActivationRows& x, RowScope scope) = 0;

    /// Row dots (quantised weights) or dot32 (float weights) of a group of independent products.
    virtual void matmul(std::span<const MatmulJob> jobs) = 0;

    /// act(gate) * up into out.values and, unless null, the quantised form. [n, width] each.
    virtual void swiglu(FloatRows gate,
                        FloatRows up,
                        Activation activation,
                        const ActivationRows& out,
                        RowScope scope) = 0;

    virtual void rope(const RopeJob& job) = 0;

    /// Writes rows of the latent part [n, latent] (after its norm) and the key [n, rope] (after
    /// rope) at scope.positions.
    virtual void write_mla_cache(const MlaCache& cache,
                                 FloatRows latent,
                                 FloatRows key,
                                 RowScope scope) = 0;

    /// Writes index keys [n, dim] (after norm and rope) at scope.positions.
    virtual void write_index_cache(const IndexCache& cache, FloatRows keys, RowScope scope) = 0;

    /// qa = column sum of q_nope over the K rows of each head.
    ///   k [n_heads] matrices [nope, latent] of WeightUse::ColumnSum
    ///   q first nope number of head 0 of row 0; strides in numbers
    ///   out [n_rows, n_heads, latent]
    virtual void absorb_query(const HeadMatrices& k,
                              FloatRows q,
                              std::int64_t q_head_stride,
                              float* out,
                              RowScope scope) = 0;

    virtual void mla_attention(const MlaAttention& job, RowScope scope) = 0;

    /// V_h z of every head: z [n_rows, n_heads, latent] -> out.values [n_rows, n_heads * v_dim],
    /// quantised as well unless out.q is null (groups run over all heads, for o_proj).
    ///   v [n_heads] matrices [v_dim, latent] of WeightUse::RowDot
    virtual void project_values(const HeadMatrices& v,
                                const float* z,
                                const ActivationRows& out,
                                RowScope scope) = 0;

    virtual void index_select(const IndexSelect& job, RowScope scope) = 0;

    virtual void route(const RouterJob& job, const RouterRule& rule, RowScope scope) = 0;

    virtual void sum_experts(const ExpertSum& job) = 0;

    /// residual += y. [n, width] each.
    virtual void add(FloatRows residual, FloatRows y) = 0;

    /// Reports NaN and infinity of the final logits (FaultSite::Logits).
    virtual void check_logits(FloatRows logits, RowScope scope) = 0;
};

}  // namespace terrace
