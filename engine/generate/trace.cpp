#include "engine/generate/trace.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "engine/decoder/row_views.h"

namespace terrace {

namespace {

/// Copies what the decoder shows into arrays of their final shape.
class TraceRecorder final : public StepObserver {
public:
    TraceRecorder(const ModelConfig& config, std::int64_t n_tokens)
        : n_tokens_(n_tokens),
          hidden_size_(config.hidden_size),
          top_k_(config.num_experts_per_tok) {
        std::int64_t sparse = 0;
        std::int64_t full = 0;
        for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
            if (config.is_sparse(layer)) {
                sparse_index_[layer] = sparse++;
            }
            if (config.owns_indexer(layer)) {
                full_index_[layer] = full++;
            }
        }
        const std::int64_t t = n_tokens;
        hidden_ =
            array("hidden", TraceArray::Type::F32, {config.num_hidden_layers + 1, t, hidden_size_});
        final_norm_ = array("final_norm", TraceArray::Type::F32, {t, hidden_size_});
        router_ids_ = array("router_ids", TraceArray::Type::I32, {sparse, t, top_k_});
        router_weights_ = array("router_weights", TraceArray::Type::F32, {sparse, t, top_k_});
        selected_ = array("selected", TraceArray::Type::U8, {full, t, t});
    }

    void hidden(std::int64_t index, std::int32_t first_position, FloatRows rows) override {
        put(hidden_, index * n_tokens_ + first_position, rows);
    }

    void final_norm(std::int32_t first_position, FloatRows rows) override {
        put(final_norm_, first_position, rows);
    }

    void routing(std::int64_t layer,
                 std::int32_t first_position,
                 std::int64_t n_rows,
                 std::int64_t top_k,
                 const std::int32_t* ids,
                 const float* gates) override {
        const std::int64_t at = (sparse_index_.at(layer) * n_tokens_ + first_position) * top_k * 4;
        const auto bytes = static_cast<std::size_t>(n_rows * top_k * 4);
        std::memcpy(router_ids_.bytes.data() + at, ids, bytes);
        std::memcpy(router_weights_.bytes.data() + at, gates, bytes);
    }

    void selection(std::int64_t layer,
                   std::int32_t first_position,
                   std::span<const Selection> rows) override {
        std::int64_t row = full_index_.at(layer) * n_tokens_ + first_position;
        for (const Selection& s : rows) {
            std::byte* out = selected_.bytes.data() + row * n_tokens_;
            for (std::int32_t i = 0; i < s.count; ++i) {
                out[s.positions == nullptr ? i : s.positions[i]] = std::byte{1};
            }
            ++row;
        }
    }

    static TraceArray array(std::string name,
                            TraceArray::Type type,
                            std::vector<std::int64_t> shape) {
        TraceArray a;
        std::int64_t bytes = type == TraceArray::Type::U8 ? 1 : 4;
        for (const std::int64_t n : shape) {
            bytes *= n;
        }
        a.name = std::move(name);
        a.type = type;
        a.shape = std::move(shape);
        a.bytes.resize(static_cast<std::size_t>(bytes));
        return a;
    }

    static void put(TraceArray& a, std::int64_t row, FloatRows rows) {
        for (std::int64_t r = 0; r < rows.n_rows; ++r) {
            std::memcpy(a.bytes.data() + (row + r) * rows.width * 4, rows.row(r),
                        static_cast<std::size_t>(rows.width * 4));
        }
    }

    void move_into(std::vector<TraceArray>& arrays) {
        for (TraceArray* a : {&hidden_, &final_norm_, &router_ids_, &router_weights_, &selected_}) {
            arrays.push_back(std::move(*a));
        }
    }

private:
    std::int64_t n_tokens_;
    std::int64_t hidden_size_;
    std::int64_t top_k_;
    std::map<std::int64_t, std::int64_t> sparse_index_;
    std::map<std::int64_t, std::int64_t> full_index_;
    TraceArray hidden_;
    TraceArray final_norm_;
    TraceArray router_ids_;
    TraceArray router_weights_;
    TraceArray selected_;
};

/// One trace while it runs.
class Tracer {
public:
    Tracer(Decoder& decoder, Sampler& sampler, const TraceRequest& request, std::stop_token stop)
        : decoder_(decoder),
          sampler_(sampler),
          request_(request),
          stop_(std::move(stop)),
          n_(static_cast<std::int64_t>(request.tokens.size())),
          vocab_(decoder.config().vocab_size),
          tokens_(request.tokens.begin(), request.tokens.end()),
          recorder_(decoder.config(), n_),
          logits_(TraceRecorder::array("logits", TraceArray::Type::F32, {n_, vocab_})),
          mtp_logits_(TraceRecorder::array("mtp_logits", TraceArray::Type::F32, {n_, vocab_})),
          chain_logits_(TraceRecorder::array(
              "mtp_chain_logits", TraceArray::Type::F32, {request.chain_depth, vocab_})) {}

    Result<std::vector<TraceArray>> run() {
        const std::int64_t chunk = std::min(request_.chunk_rows, decoder_.max_rows());
        for (std::int64_t row = 0; row < n_; row += chunk) {
            if (Status done = sweep(row, std::min(chunk, n_ - row)); !done) {
                return std::move(done).error();
            }
        }
        if (decoder_.has_mtp()) {
            if (Status done = chain(); !done) {
                return std::move(done).error();
            }
        }
        std::vector<TraceArray> arrays;
        TraceArray ids = TraceRecorder::array("input_ids", TraceArray::Type::I32, {n_});
        std::memcpy(ids.bytes.data(), request_.tokens.data(), ids.bytes.size());
        arrays.push_back(std::move(ids));
        arrays.push_back(std::move(logits_));
        recorder_.move_into(arrays);
        if (decoder_.has_mtp()) {
            arrays.push_back(std::move(mtp_logits_));
            arrays.push_back(std::move(chain_logits_));
        }
        return arrays;
    }

private:
    static FloatRows rows_of(TraceArray& a,
                             std::int64_t first,
                             std::int64_t n,
                             std::int64_t width) {
        auto* data = reinterpret_cast<float*>(a.bytes.data());
        return FloatRows{data + first * width, n, width, width};
    }

    Status sweep(std::int64_t row, std::int64_t n) {
        const auto position = static_cast<std::int32_t>(row);
        const std::span<const std::int32_t> ids =
            request_.tokens.subspan(static_cast<std::size_t>(row), static_cast<std::size_t>(n));
        if (Status step = decoder_.step(ids, position, &recorder_, stop_); !step) {
            return step;
        }
        if (Status done = decoder_.logits(0, rows_of(logits_, row, n, vocab_), position); !done) {
            return done;
        }
        if (!decoder_.has_mtp()) {
            return {};
        }
        if (row + n == n_) {
            const FloatRows last = rows_of(logits_, n_ - 1, 1, vocab_);
            tokens_.push_back(sampler_.draw({last.data, candidates()}, n_, request_.tokens));
        }
        const std::span<const std::int32_t> next(tokens_.data() + row + 1,
                                                 static_cast<std::size_t>(n));
        const FloatRows hidden = float_form(first_rows(decoder_.final_rows(), n));
        if (Status fed = decoder_.mtp_feed(next, position, hidden, stop_); !fed) {
            return fed;
        }
        for (std::int64_t r = 0; r < n; ++r) {
            if (Status done = decoder_.mtp_logits(r, rows_of(mtp_logits_, row + r, 1, vocab_));
                !done) {
                return done;
            }
        }
        return {};
    }

    Status chain() {
        for (std::int64_t k = 0; k < request_.chain_depth; ++k) {
            const FloatRows out = rows_of(chain_logits_, k, 1, vocab_);
            if (k > 0) {
                const FloatRows before = rows_of(chain_logits_, k - 1, 1, vocab_);
                const std::int32_t draft =
                    sampler_.draw({before.data, candidates()},
                                  static_cast<std::int64_t>(tokens_.size()), tokens_);
                tokens_.push_back(draft);
                if (n_ - 1 + k >= decoder_.context()) {
                    return Error{ErrorCode::TooLarge,
                                 "the draft chain needs " + std::to_string(n_ + k) +
                                     " positions and the context holds " +
                                     std::to_string(decoder_.context()),
                                 "", "Choose a larger context (--context)"};
                }
                if (Status step = decoder_.mtp_chain(draft, k, stop_); !step) {
                    return step;
                }
            }
            const std::int64_t row = k == 0 ? decoder_.chain_row() : 0;
            if (Status done = decoder_.mtp_logits(row, out); !done) {
                return done;
            }
        }
        return {};
    }

    [[nodiscard]] std::size_t candidates() const { return static_cast<std::size_t>(vocab_); }

    Decoder& decoder_;
    Sampler& sampler_;
    const TraceRequest& request_;
    std::stop_token stop_;
    std::int64_t n_;
    std::int64_t vocab_;
    std::vector<std::int32_t> tokens_;
    TraceRecorder recorder_;
    TraceArray logits_;
    TraceArray mtp_logits_;
    TraceArray chain_logits_;
};

}  // namespace

std::int64_t trace_bytes(const ModelConfig& config, std::int64_t n_tokens) {
    const std::int64_t per_token = 2 * config.vocab_size +
                                   (config.num_hidden_layers + 2) * config.hidden_size +
                                   config.num_hidden_layers * config.num_experts_per_tok * 2;
    return n_tokens * per_token * 4 + config.num_hidden_layers * n_tokens * n_tokens;
}

Result<std::vector<TraceArray>> trace_tokens(Decoder& decoder,
                                             Sampler& sampler,
                                             const TraceRequest& request,
                                             std::stop_token stop) {
    return Tracer(decoder, sampler, request, std::move(stop)).run();
}

}  // namespace terrace
