#include "engine/decoder/attention_block.h"

#include <array>

#include "engine/decoder/row_views.h"

namespace terrace {

std::optional<Yarn> yarn_of(const RopeParameters& rope) {
    if (rope.rope_type != RopeType::Yarn) {
        return std::nullopt;
    }
    Yarn yarn;
    yarn.factor = rope.factor;
    yarn.original_positions = static_cast<double>(rope.original_max_position_embeddings);
    yarn.beta_fast = rope.beta_fast;
    yarn.beta_slow = rope.beta_slow;
    yarn.mscale = rope.mscale;
    yarn.mscale_all_dim = rope.mscale_all_dim;
    return yarn;
}

AttentionShape attention_shape(const ModelConfig& config, double latent_eps) {
    AttentionShape s;
    s.n_heads = config.num_attention_heads;
    s.nope = config.qk_nope_head_dim;
    s.rope = config.qk_rope_head_dim;
    s.latent = config.kv_lora_rank;
    s.v_dim = config.v_head_dim;
    s.index_heads = config.index_n_heads;
    s.index_dim = config.index_head_dim;
    s.index_topk = config.index_topk;
    s.pairs = config.rope_interleave ? RopePairs::Interleaved : RopePairs::HalfSplit;
    s.index_pairs = config.indexer_rope_interleave ? RopePairs::Interleaved : RopePairs::HalfSplit;
    s.eps = static_cast<float>(config.rms_norm_eps);
    s.latent_eps = static_cast<float>(latent_eps);
    s.softmax_scale = attention_scale(config.qk_head_dim(), yarn_of(config.rope_parameters));
    if (s.index_topk > 0) {
        s.index_key_scale = attention_scale(s.index_dim);
        s.index_head_scale = attention_scale(s.index_heads);
    }
    return s;
}

void select_all(const RowBatch& batch, std::span<Selection> selections) {
    for (std::int64_t r = 0; r < batch.n_rows; ++r) {
        selections[static_cast<std::size_t>(r)] = Selection{nullptr, batch.positions[r] + 1};
    }
}

void AttentionBlock::run(const LayerWeights& weights,
                         const KvCache& cache,
                         std::int64_t layer,
                         const RowBatch& batch,
                         SelectionSource source,
                         ActivationSet& a,
                         std::span<Selection> selections) const {
    const AttentionWeights& w = weights.attention;
    const std::int64_t n = batch.n_rows;
    const RowScope scope{batch.positions, static_cast<std::int32_t>(layer)};
    const FloatRows hidden = first_rows(a.hidden, n);
    const FloatRows kv = first_rows(a.kv, n);
    const FloatRows q = first_rows(a.q, n);
    const std::int64_t head_width = shape_.nope + shape_.rope;
    const MlaCache& rows = cache.attention(layer);

    ops_->rms_norm(hidden, w.input_norm, shape_.eps, first_rows(a.normed, n), scope);
    const IndexerWeights* indexer =
        source == SelectionSource::Layer && weights.indexer ? &*weights.indexer : nullptr;
    project_inputs(w, indexer, batch, a, scope);

    const FloatRows latent{kv.data, n, shape_.latent, kv.stride};
    const FloatRows key{kv.data + shape_.latent, n, shape_.rope, kv.stride};
    ops_->rms_norm(latent, w.kv_a_norm, shape_.latent_eps, in_place(latent), scope);
    rotate(kv, shape_.latent, 1, 0, batch, shape_.pairs);
    rotate(q, shape_.nope, shape_.n_heads, head_width, batch, shape_.pairs);
    ops_->write_mla_cache(rows, latent, key, scope);

    if (source == SelectionSource::Layer) {
        if (indexer != nullptr) {
            select(*indexer, cache.index(layer), batch, a, selections, scope);
        } else if (shape_.index_topk == 0) {
            select_all(batch, selections);
        }
    }

    const FloatRows q_nope{q.data, n, shape_.nope, q.stride};
    ops_->absorb_query(w.k_heads, q_nope, head_width, a.absorbed.data, scope);
    MlaAttention job;
    job.cache = &rows;
    job.n_rows = n;
    job.n_heads = shape_.n_heads;
    job.absorbed = a.absorbed.data;
    job.q_rope = q.data + shape_.nope;
    job.q_row_stride = q.stride;
    job.q_head_stride = head_width;
    job.scale = shape_.softmax_scale;
    job.selections = selections.first(static_cast<std::size_t>(n));
    job.out = a.z.data;
    ops_->mla_attention(job, scope);
    const ActivationRows values = first_rows(a.values, n);
    ops_->project_values(w.v_heads, a.z.data, values, scope);

    const FloatRows out = first_rows(a.block_out, n);
    const MatmulJob project = matmul_job(w.o, values, out);
    ops_->matmul({&project, 1});
    ops_->add(hidden, out);
}

/// Everything that is multiplied with the layer's normed input, then what hangs on the q latent.
void AttentionBlock::project_inputs(const AttentionWeights& w,
                                    const IndexerWeights* indexer,
                                    const RowBatch& batch,
                                    ActivationSet& a,
                                    RowScope scope) const {
    const std::int64_t n = batch.n_rows;
    const ActivationRows x = first_rows(a.normed, n);
    std::array<MatmulJob, 4> from_input{matmul_job(w.q_a, x, first_rows(a.q_latent_raw, n)),
                                        matmul_job(w.kv_a, x, first_rows(a.kv, n)),
                                        {},
                                        {}};
    std::size_t n_jobs = 2;
    if (indexer != nullptr) {
        from_input[2] = matmul_job(indexer->wk, x, first_rows(a.index_k, n));
        from_input[3] = matmul_job(indexer->weights_proj, x, first_rows(a.index_weights, n));
        n_jobs = 4;
    }
    ops_->matmul({from_input.data(), n_jobs});

    const ActivationRows r = first_rows(a.q_latent, n);
    ops_->rms_norm(first_rows(a.q_latent_raw, n), w.q_a_norm, shape_.latent_eps, r, scope);
    std::array<MatmulJob, 2> from_latent{matmul_job(w.q_b, r, first_rows(a.q, n)), {}};
    // Index queries are only needed once some row sees more positions than it may choose.
    const bool scores = indexer != nullptr && batch.first_position + n > shape_.index_topk;
    if (scores) {
        from_latent[1] = matmul_job(indexer->wq_b, r, first_rows(a.index_q, n));
    }
    ops_->matmul({from_latent.data(), scores ? std::size_t{2} : std::size_t{1}});
}

void AttentionBlock::select(const IndexerWeights& indexer,
                            const IndexCache& cache,
                            const RowBatch& batch,
                            ActivationSet& a,
                            std::span<Selection> selections,
                            RowScope scope) const {
    const std::int64_t n = batch.n_rows;
    const FloatRows k = first_rows(a.index_k, n);
    ops_->layer_norm(k, indexer.k_norm, indexer.k_norm_bias, 1e-6F);
    rotate(k, 0, 1, 0, batch, shape_.index_pairs);
    ops_->write_index_cache(cache, k, scope);
    if (batch.first_position + n <= shape_.index_topk) {
        select_all(batch, selections);
        return;
    }
    // A stopped or failed op writes nothing: what it leaves behind must still be in range.
    select_all(batch, selections);
    const FloatRows q = first_rows(a.index_q, n);
    rotate(q, 0, shape_.index_heads, shape_.index_dim, batch, shape_.index_pairs);
    IndexSelect job;
    job.cache = &cache;
    job.n_rows = n;
    job.n_heads = shape_.index_heads;
    job.q = q.data;
    job.head_weights = a.index_weights.data;
    job.weights_stride = a.index_weights.stride;
    job.head_scale = shape_.index_head_scale;
    job.key_scale = shape_.index_key_scale;
    job.top_k = shape_.index_topk;
    job.positions = a.selected;
    job.selections = selections.data();
    ops_->index_select(job, scope);
}

void AttentionBlock::rotate(FloatRows x,
                            std::int64_t first,
                            std::int64_t n_heads,
                            std::int64_t head_stride,
                            const RowBatch& batch,
                            RopePairs pairs) const {
    RopeJob job;
    job.x = x.data + first;
    job.row_stride = x.stride;
    job.head_stride = head_stride;
    job.n_rows = x.n_rows;
    job.n_heads = n_heads;
    job.dims = shape_.rope;
    job.pairs = pairs;
    job.cos = rope_->cos.data();
    job.sin = rope_->sin.data();
    job.positions = batch.positions;
    ops_->rope(job);
}

}  // namespace terrace
