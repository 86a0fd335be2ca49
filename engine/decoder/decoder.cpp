#include "engine/decoder/decoder.h"

#include <algorithm>
#include <numeric>

#include "engine/decoder/row_views.h"

namespace terrace {

namespace {

const char* site_name(FaultSite site) {
    switch (site) {
        case FaultSite::Quantise:
            return "an activation (site quantise)";
        case FaultSite::Router:
            return "a router logit (site router)";
        case FaultSite::Indexer:
            return "an index score (site indexer)";
        case FaultSite::Score:
            return "an attention score (site score)";
        case FaultSite::Logits:
            return "a final logit (site logits)";
    }
    return "a value";
}

Error numeric_fault(const NumericFault& fault, std::int64_t n_layers) {
    const bool after_layers = fault.layer >= n_layers;
    const std::string where =
        after_layers ? "after the last layer" : "in layer " + std::to_string(fault.layer);
    return Error{
        ErrorCode::NumericFault,
        std::string(site_name(fault.site)) + " " + where + " at position " +
            std::to_string(fault.position) + " is not a number or infinite; expected finite values",
        "",
        "No token was taken from it. Check the model with `terrace-cli inspect`; a damaged "
        "download is the usual reason"};
}

}  // namespace

CacheShape Decoder::cache_shape(const ModelConfig& config, const DecoderOptions& options) {
    CacheShape shape;
    shape.kind = options.kind;
    shape.capacity = options.context;
    shape.latent = config.kv_lora_rank;
    shape.rope = config.qk_rope_head_dim;
    shape.index_dim = config.index_head_dim;
    for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
        shape.layers.push_back({config.owns_indexer(layer)});
    }
    if (options.use_mtp) {
        shape.layers.push_back({config.index_topk > 0});
    }
    return shape;
}

Result<std::unique_ptr<Decoder>> Decoder::create(const ModelConfig& config,
                                                 const DecoderOptions& options,
                                                 const DecoderWeights& weights,
                                                 ExpertStore& store,
                                                 Ops& ops,
                                                 Stream& stream,
                                                 Device& device) {
    Result<KvCache> cache = KvCache::create(cache_shape(config, options), device);
    if (!cache) {
        return std::move(cache).error();
    }
    Result<Activations> activations =
        Activations::create(config, options.kind, options.max_rows, device);
    if (!activations) {
        return std::move(activations).error();
    }
    Result<RopeTable> rope =
        RopeTable::make(config.rope_parameters.rope_theta, config.qk_rope_head_dim, options.context,
                        yarn_of(config.rope_parameters));
    if (!rope) {
        return std::move(rope).error();
    }
    return std::unique_ptr<Decoder>(
        new Decoder(config, options, weights, std::move(rope).value(), std::move(cache).value(),
                    std::move(activations).value(), store, ops, stream));
}

Decoder::Decoder(const ModelConfig& config,
                 const DecoderOptions& options,
                 const DecoderWeights& weights,
                 RopeTable rope,
                 KvCache cache,
                 Activations activations,
                 ExpertStore& store,
                 Ops& ops,
                 Stream& stream)
    : config_(config),
      options_(options),
      weights_(&weights),
      rope_(std::move(rope)),
      cache_(std::move(cache)),
      activations_(std::move(activations)),
      ops_(&ops),
      stream_(&stream),
      attention_(
          attention_shape(config, options.latent_eps.value_or(config.rms_norm_eps)), &rope_, &ops),
      moe_(config, &store, &ops) {}

RowBatch Decoder::begin_rows(std::int64_t n, std::int32_t first_position, std::stop_token stop) {
    CHECK(n >= 1 && n <= options_.max_rows && first_position + n <= options_.context);
    stream_->set_stop(std::move(stop));
    stream_->faults().clear();
    std::int32_t* positions = activations_.set.positions;
    std::iota(positions, positions + n, first_position);
    clock_tokens_ += n;
    return RowBatch{n, first_position, positions, clock_tokens_};
}

Status Decoder::step(std::span<const std::int32_t> ids,
                     std::int32_t first_position,
                     StepObserver* observer,
                     std::stop_token stop) {
    const auto n = static_cast<std::int64_t>(ids.size());
    const RowBatch batch = begin_rows(n, first_position, stop);
    ActivationSet& a = activations_.set;
    ops_->embed(weights_->embedding, ids, first_rows(a.hidden, n));
    if (observer != nullptr) {
        observer->hidden(0, first_position, first_rows(a.hidden, n));
    }
    if (Status layers = run_layers(batch, observer, stop); !layers) {
        return layers;
    }
    const auto after_layers = static_cast<std::int32_t>(config_.num_hidden_layers);
    ops_->rms_norm(first_rows(a.hidden, n), weights_->final_norm,
                   static_cast<float>(config_.rms_norm_eps), first_rows(a.final, n),
                   {batch.positions, after_layers});
    if (observer != nullptr) {
        observer->final_norm(first_position, float_form(first_rows(a.final, n)));
    }
    return check_stream("forward pass");
}

Status Decoder::run_layers(const RowBatch& batch, StepObserver* observer, std::stop_token stop) {
    ActivationSet& a = activations_.set;
    const auto n = static_cast<std::size_t>(batch.n_rows);
    for (std::int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
        const LayerWeights& weights = weights_->layers[static_cast<std::size_t>(layer)];
        attention_.run(weights, cache_, layer, batch, SelectionSource::Layer, a,
                       activations_.selections);
        if (Status moe = moe_.run(weights, layer, batch, a, stop); !moe) {
            return moe;
        }
        if (stop.stop_requested()) {
            return check_stream("forward pass");
        }
        if (observer == nullptr) {
            continue;
        }
        observer->hidden(layer + 1, batch.first_position, first_rows(a.hidden, batch.n_rows));
        if (weights.indexer) {
            observer->selection(layer, batch.first_position,
                                std::span(activations_.selections).first(n));
        }
        if (weights.sparse()) {
            observer->routing(layer, batch.first_position, batch.n_rows, moe_.rule().top_k,
                              a.expert_ids, a.expert_gates);
        }
    }
    return {};
}

Status Decoder::logits(std::int64_t first, FloatRows out, std::int32_t first_position) {
    const ActivationRows rows = activations_.set.final.rows(first, out.n_rows);
    const MatmulJob job = matmul_job(weights_->lm_head, rows, out);
    ops_->matmul({&job, 1});
    std::int32_t* positions = activations_.set.positions;
    std::iota(positions, positions + out.n_rows, first_position);
    ops_->check_logits(out, {positions, static_cast<std::int32_t>(config_.num_hidden_layers)});
    return check_stream("logits");
}

Status Decoder::mtp_layer(std::span<const std::int32_t> ids,
                          const RowBatch& batch,
                          FloatRows hidden,
                          SelectionSource source,
                          std::stop_token stop) {
    const MtpWeights& w = *weights_->mtp;
    const auto eps = static_cast<float>(config_.rms_norm_eps);
    const std::int64_t n = batch.n_rows;
    const std::int64_t layer = config_.num_hidden_layers;
    const RowScope scope{batch.positions, static_cast<std::int32_t>(layer)};
    ActivationSet& a = activations_.set;
    const std::int64_t width = a.hidden.width;
    const ActivationRows input = first_rows(a.mtp_input, n);
    const FloatRows embedding{input.values, n, width, input.stride};
    const FloatRows previous{input.values + width, n, width, input.stride};
    ops_->embed(w.embedding, ids, embedding);
    ops_->rms_norm(embedding, w.embedding_norm, eps, in_place(embedding), scope);
    ops_->rms_norm(hidden, w.hidden_norm, eps, in_place(previous), scope);
    if (input.q != nullptr) {
        ops_->quantise(input, scope);
    }
    const MatmulJob project = matmul_job(w.eh_proj, input, first_rows(a.hidden, n));
    ops_->matmul({&project, 1});
    attention_.run(weights_->layers[static_cast<std::size_t>(layer)], cache_, layer, batch, source,
                   a, activations_.selections);
    if (Status moe =
            moe_.run(weights_->layers[static_cast<std::size_t>(layer)], layer, batch, a, stop);
        !moe) {
        return moe;
    }
    ops_->rms_norm(first_rows(a.hidden, n), w.output_norm, eps, first_rows(a.mtp_out, n), scope);
    return check_stream("draft head");
}

Status Decoder::mtp_feed(std::span<const std::int32_t> next_ids,
                         std::int32_t first_position,
                         FloatRows hidden,
                         std::stop_token stop) {
    const auto n = static_cast<std::int64_t>(next_ids.size());
    const RowBatch batch = begin_rows(n, first_position, stop);
    const LayerWeights& layer =
        weights_->layers[static_cast<std::size_t>(config_.num_hidden_layers)];
    SelectionSource source = SelectionSource::Layer;
    if (!layer.indexer) {
        select_all(batch, activations_.selections);
        source = SelectionSource::Given;
    }
    Status fed = mtp_layer(next_ids, batch, hidden, source, stop);
    if (!fed) {
        return fed;
    }
    const Selection& last = activations_.selections[static_cast<std::size_t>(n - 1)];
    chain_position_ = first_position + static_cast<std::int32_t>(n) - 1;
    chain_row_ = n - 1;
    chain_sees_all_ = last.positions == nullptr;
    chain_selected_.clear();
    if (!chain_sees_all_) {
        chain_selected_.assign(last.positions, last.positions + last.count);
    }
    return {};
}

Status Decoder::mtp_chain(std::int32_t draft, std::int64_t depth, std::stop_token stop) {
    const std::int32_t position = chain_position_ + static_cast<std::int32_t>(depth);
    // z of the row before: mtp_out holds the fed rows at depth 1, one row after that.
    ActivationSet& a = activations_.set;
    const std::int64_t before = depth == 1 ? chain_row_ : 0;
    const RowBatch batch = begin_rows(1, position, stop);
    if (chain_sees_all_) {
        select_all(batch, activations_.selections);
    } else {
        chain_selected_.push_back(position);
        activations_.selections[0] =
            Selection{chain_selected_.data(), static_cast<std::int32_t>(chain_selected_.size())};
    }
    return mtp_layer({&draft, 1}, batch, float_form(a.mtp_out.rows(before, 1)),
                     SelectionSource::Given, std::move(stop));
}

Status Decoder::mtp_logits(std::int64_t row, FloatRows out) {
    const ActivationRows z = activations_.set.mtp_out.rows(row, 1);
    const MatmulJob job = matmul_job(weights_->mtp->head, z, out);
    ops_->matmul({&job, 1});
    const RowScope scope{activations_.set.positions,
                         static_cast<std::int32_t>(config_.num_hidden_layers)};
    ops_->check_logits(out, scope);
    return check_stream("draft logits");
}

Status Decoder::check_stream(const char* doing) {
    if (std::optional<Error> error = stream_->take_error()) {
        return std::move(*error).in(doing);
    }
    if (stream_->stop_requested()) {
        return Error{ErrorCode::Cancelled, "stopped", doing, ""};
    }
    if (const std::optional<NumericFault> fault = stream_->faults().first()) {
        return numeric_fault(*fault, config_.num_hidden_layers);
    }
    return {};
}

}  // namespace terrace
