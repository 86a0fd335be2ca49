#include "engine/decoder/weights.h"

#include <cstring>
#include <string>
#include <string_view>

#include "engine/device/check.h"

namespace terrace {

namespace {

/// Scale groups 48, 96 and 192 straddle the 64 inputs that share an activation scale.
Status check_group(const TensorSource& source, WeightFormat target) {
    switch (target.group) {
        case 0:
        case 16:
        case 32:
        case 64:
        case 128:
        case 256:
            return {};
        default:
            return Error{ErrorCode::Unsupported,
                         "weights with one scale for " + std::to_string(target.group) +
                             " inputs cannot be run; expected 16, 32, 64, 128, 256 or a whole row",
                         source.name, "Convert the model again with a group size of 64"};
    }
}

}  // namespace

/// Reads one tensor after the other; the first failure ends the load.
class WeightLoader {
public:
    WeightLoader(const ModelFolder& folder,
                 SessionKind kind,
                 const Ops& ops,
                 Device& device,
                 const LoadProgress& progress,
                 std::stop_token stop)
        : folder_(folder),
          checkpoint_(*folder.checkpoint),
          names_(folder.family->names),
          kind_(kind),
          ops_(ops),
          device_(device),
          progress_(progress),
          stop_(std::move(stop)) {
        for (const TensorSource& source : checkpoint_.dense()) {
            total_bytes_ += source.payload.bytes + source.scales.bytes;
        }
    }

    Result<DecoderWeights> run() {
        out_.embedding = table(std::string(names_.embed));
        out_.final_norm = vector(std::string(names_.final_norm));
        out_.lm_head = matrix(std::string(names_.head));
        const std::int64_t n_layers = folder_.config.num_hidden_layers;
        for (std::int64_t layer = 0; layer < n_layers && !failed_; ++layer) {
            out_.layers.push_back(load_layer(layer));
        }
        if (checkpoint_.has_mtp() && !failed_) {
            out_.layers.push_back(load_layer(n_layers));
            out_.mtp = load_mtp(n_layers);
        }
        if (failed_) {
            return std::move(*failed_);
        }
        return std::move(out_);
    }

private:
    LayerWeights load_layer(std::int64_t layer) {
        LayerWeights w;
        const auto name = [&](std::string_view suffix) {
            return folder_.family->layer_tensor(layer, suffix);
        };
        w.attention.input_norm = vector(name(names_.input_norm));
        w.attention.q_a = matrix(name(names_.q_a));
        w.attention.q_a_norm = vector(name(names_.q_a_norm));
        w.attention.q_b = matrix(name(names_.q_b));
        w.attention.kv_a = matrix(name(names_.kv_a));
        w.attention.kv_a_norm = vector(name(names_.kv_a_norm));
        load_heads(name(names_.kv_b), w.attention);
        w.attention.o = matrix(name(names_.o));
        if (has_indexer(layer)) {
            IndexerWeights indexer;
            indexer.wq_b = matrix(name(names_.index_q_b));
            indexer.wk = matrix(name(names_.index_k));
            indexer.weights_proj = matrix(name(names_.index_weights));
            indexer.k_norm = vector(name(names_.index_k_norm));
            indexer.k_norm_bias = vector(name(names_.index_k_norm_bias));
            w.indexer = indexer;
        }
        w.post_attention_norm = vector(name(names_.post_attention_norm));
        if (!folder_.config.is_sparse(layer)) {
            w.feed_forward =
                FeedForwardWeights{matrix(name(names_.mlp_gate)), matrix(name(names_.mlp_up)),
                                   matrix(name(names_.mlp_down))};
            return w;
        }
        w.router = vector(name(names_.router));
        w.router_bias = vector(name(names_.router_bias));
        if (folder_.config.n_shared_experts > 0) {
            w.feed_forward =
                FeedForwardWeights{matrix(name(names_.shared_gate)), matrix(name(names_.shared_up)),
                                   matrix(name(names_.shared_down))};
        }
        return w;
    }

    MtpWeights load_mtp(std::int64_t layer) {
        const auto name = [&](std::string_view suffix) {
            return folder_.family->layer_tensor(layer, suffix);
        };
        MtpWeights w;
        w.embedding_norm = vector(name(names_.mtp_embed_norm));
        w.hidden_norm = vector(name(names_.mtp_hidden_norm));
        w.eh_proj = matrix(name(names_.mtp_projection));
        w.output_norm = vector(name(names_.mtp_head_norm));
        w.embedding = out_.embedding;
        w.head = out_.lm_head;
        return w;
    }

    [[nodiscard]] bool has_indexer(std::int64_t layer) const {
        if (layer >= folder_.config.num_hidden_layers) {
            return checkpoint_.mtp_has_indexer();
        }
        return checkpoint_.has_indexer() && folder_.config.owns_indexer(layer);
    }

    /// The stored bytes in the session's format; empty after a failure or a stop.
    RawWeight read(const std::string& name) {
        if (failed_) {
            return {};
        }
        if (stop_.stop_requested()) {
            failed_ = Error{ErrorCode::Cancelled, "stopped", "loading", ""};
            return {};
        }
        Result<TensorSource> source = checkpoint_.matrix(name);
        if (!source) {
            failed_ = std::move(source).error();
            return {};
        }
        const WeightFormat target = target_format(*source, checkpoint_.kind(), kind_);
        if (Status legal = check_group(*source, target); !legal) {
            failed_ = std::move(legal).error();
            return {};
        }
        Result<RawWeight> raw = checkpoint_.read_weight(*source, target);
        if (!raw) {
            failed_ = std::move(raw).error();
            return {};
        }
        done_bytes_ += source->payload.bytes + source->scales.bytes;
        if (progress_) {
            progress_(done_bytes_, total_bytes_);
        }
        return std::move(raw).value();
    }

    std::byte* allocate(std::int64_t bytes) {
        Result<Buffer> buffer = device_.allocate(bytes);
        if (!buffer) {
            failed_ = std::move(buffer).error().in("loading weights");
            return nullptr;
        }
        out_.bytes_ += bytes;
        out_.memory_.push_back(std::move(buffer).value());
        return out_.memory_.back().data();
    }

    WeightMatrix matrix(const std::string& name) {
        const RawWeight raw = read(name);
        if (failed_) {
            return {};
        }
        return pack(raw.matrix, WeightUse::RowDot);
    }

    WeightMatrix pack(const RawMatrix& raw, WeightUse use) {
        const std::int64_t bytes = ops_.packed_bytes(raw.format, use, raw.rows, raw.cols);
        std::byte* data = allocate(bytes);
        if (data == nullptr) {
            return {};
        }
        ops_.pack(raw, use, data);
        return WeightMatrix{raw.format, use, raw.rows, raw.cols, data};
    }

    /// A float tensor of any shape.
    const float* vector(const std::string& name) {
        const RawWeight raw = read(name);
        if (failed_) {
            return nullptr;
        }
        CHECK(raw.matrix.format.kind == WeightKind::Float32);
        const std::int64_t bytes = raw.matrix.rows * raw.matrix.cols * 4;
        std::byte* data = allocate(bytes);
        if (data == nullptr) {
            return nullptr;
        }
        std::memcpy(data, raw.matrix.payload, static_cast<std::size_t>(bytes));
        return reinterpret_cast<const float*>(data);
    }

    /// A table whose rows are looked up: kept in the container's own layout.
    RawMatrix table(const std::string& name) {
        const RawWeight raw = read(name);
        if (failed_) {
            return {};
        }
        RawMatrix m = raw.matrix;
        const std::int64_t payload_bytes = m.rows * raw_row_bytes(m.format.kind, m.cols);
        const std::int64_t scale_bytes = m.rows * scales_per_row(m.format, m.cols) * 4;
        std::byte* data = allocate(round_up(payload_bytes, 64) + scale_bytes);
        if (data == nullptr) {
            return {};
        }
        std::memcpy(data, m.payload, static_cast<std::size_t>(payload_bytes));
        m.payload = data;
        if (scale_bytes > 0) {
            std::byte* scales = data + round_up(payload_bytes, 64);
            std::memcpy(scales, m.scales, static_cast<std::size_t>(scale_bytes));
            m.scales = reinterpret_cast<const float*>(scales);
        }
        return m;
    }

    /// kv_b [heads * (nope + v), latent]: the K rows of a head are summed by column, its V rows are
    /// dotted by row (arithmetic.md 3), so each part gets the layout of its use.
    void load_heads(const std::string& name, AttentionWeights& w) {
        const RawWeight raw = read(name);
        if (failed_) {
            return;
        }
        const std::int64_t nope = folder_.config.qk_nope_head_dim;
        const std::int64_t v_dim = folder_.config.v_head_dim;
        w.k_heads = pack_heads(raw.matrix, 0, nope, nope + v_dim, WeightUse::ColumnSum);
        w.v_heads = pack_heads(raw.matrix, nope, v_dim, nope + v_dim, WeightUse::RowDot);
    }

    HeadMatrices pack_heads(const RawMatrix& raw,
                            std::int64_t first_row,
                            std::int64_t rows,
                            std::int64_t rows_per_head,
                            WeightUse use) {
        HeadMatrices heads;
        heads.n_heads = folder_.config.num_attention_heads;
        heads.stride_bytes = round_up(ops_.packed_bytes(raw.format, use, rows, raw.cols), 64);
        std::byte* data = allocate(heads.n_heads * heads.stride_bytes);
        if (data == nullptr) {
            return {};
        }
        heads.first = WeightMatrix{raw.format, use, rows, raw.cols, data};
        for (std::int64_t h = 0; h < heads.n_heads; ++h) {
            ops_.pack(raw_rows(raw, h * rows_per_head + first_row, rows), use,
                      data + h * heads.stride_bytes);
        }
        return heads;
    }

    const ModelFolder& folder_;
    const Checkpoint& checkpoint_;
    const TensorNames& names_;
    SessionKind kind_;
    const Ops& ops_;
    Device& device_;
    const LoadProgress& progress_;
    std::stop_token stop_;
    std::int64_t total_bytes_ = 0;
    std::int64_t done_bytes_ = 0;
    DecoderWeights out_;
    std::optional<Error> failed_;
};

Result<DecoderWeights> DecoderWeights::load(const ModelFolder& folder,
                                            SessionKind kind,
                                            const Ops& ops,
                                            Device& device,
                                            const LoadProgress& progress,
                                            std::stop_token stop) {
    return WeightLoader(folder, kind, ops, device, progress, std::move(stop)).run();
}

std::int64_t DecoderWeights::bytes_needed(const ModelFolder& folder,
                                          SessionKind kind,
                                          const Ops& ops) {
    const Checkpoint& checkpoint = *folder.checkpoint;
    const ModelConfig& config = folder.config;
    std::int64_t bytes = 0;
    for (const TensorSource& source : checkpoint.dense()) {
        const WeightFormat format = target_format(source, checkpoint.kind(), kind);
        if (source.role == TensorRole::Embedding || source.role == TensorRole::Vector ||
            source.role == TensorRole::Router) {
            bytes += source.rows * (raw_row_bytes(format.kind, source.cols) +
                                    scales_per_row(format, source.cols) * 4);
        } else if (source.name.ends_with(folder.family->names.kv_b)) {
            const auto part = [&](WeightUse use, std::int64_t rows) {
                return config.num_attention_heads *
                       round_up(ops.packed_bytes(format, use, rows, source.cols), 64);
            };
            bytes += part(WeightUse::ColumnSum, config.qk_nope_head_dim) +
                     part(WeightUse::RowDot, config.v_head_dim);
        } else {
            bytes += ops.packed_bytes(format, WeightUse::RowDot, source.rows, source.cols);
        }
    }
    return bytes;
}

}  // namespace terrace
