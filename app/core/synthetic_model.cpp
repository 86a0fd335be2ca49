#include "app/core/synthetic_model.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "app/core/synthetic_folder.h"
#include "app/core/synthetic_values.h"
#include "engine/model/container_writer.h"
#include "engine/model/quantise.h"

namespace terrace::app {

namespace {

/// One tensor of the model: how it is stored and how large its values are.
struct SyntheticTensor {
    ContainerTensor stored;
    double scale = 1.0;
    double offset = 0.0;
};

/// Lists every tensor of a glm_moe_dsa model of these dimensions.
class TensorList {
public:
    explicit TensorList(const SyntheticSpec& spec) : spec_(spec) {}

    std::vector<SyntheticTensor> build() {
        const SyntheticSpec& s = spec_;
        matrix("model.embed_tokens.weight", s.vocab_size, s.hidden_size, Store::Int8);
        list_.back().scale = 2.0;
        matrix("lm_head.weight", s.vocab_size, s.hidden_size, Store::Int8);
        norm("model.norm.weight", s.hidden_size);
        for (std::int64_t layer = 0; layer < s.num_hidden_layers + s.num_nextn_predict_layers;
             ++layer) {
            addLayer(layer);
        }
        return std::move(list_);
    }

private:
    enum class Store { Float, Int8, Low };

    void addLayer(std::int64_t layer) {
        const SyntheticSpec& s = spec_;
        prefix_ = "model.layers." + std::to_string(layer) + ".";
        inMtp_ = layer >= s.num_hidden_layers;
        const std::int64_t heads = s.num_attention_heads;
        norm(prefix_ + "input_layernorm.weight", s.hidden_size);
        norm(prefix_ + "post_attention_layernorm.weight", s.hidden_size);
        const std::string a = prefix_ + "self_attn.";
        matrix(a + "q_a_proj.weight", s.q_lora_rank, s.hidden_size, Store::Low);
        norm(a + "q_a_layernorm.weight", s.q_lora_rank);
        matrix(a + "q_b_proj.weight", heads * (s.qk_nope_head_dim + s.qk_rope_head_dim),
               s.q_lora_rank, Store::Low);
        matrix(a + "kv_a_proj_with_mqa.weight", s.kv_lora_rank + s.qk_rope_head_dim, s.hidden_size,
               Store::Low);
        norm(a + "kv_a_layernorm.weight", s.kv_lora_rank);
        matrix(a + "kv_b_proj.weight", heads * (s.qk_nope_head_dim + s.v_head_dim), s.kv_lora_rank,
               Store::Low);
        matrix(a + "o_proj.weight", s.hidden_size, heads * s.v_head_dim, Store::Low);
        if (inMtp_ || syntheticLayerIsFull(s, layer)) {
            const std::string i = a + "indexer.";
            matrix(i + "wq_b.weight", s.index_n_heads * s.index_head_dim, s.q_lora_rank,
                   Store::Int8);
            matrix(i + "wk.weight", s.index_head_dim, s.hidden_size, Store::Int8);
            norm(i + "k_norm.weight", s.index_head_dim);
            norm(i + "k_norm.bias", s.index_head_dim);
            list_.back().scale = 0.5;
            list_.back().offset = 0.0;
            matrix(i + "weights_proj.weight", s.index_n_heads, s.hidden_size, Store::Int8);
        }
        if (layer < s.first_k_dense_replace) {
            feedForward(prefix_ + "mlp.", s.intermediate_size, -1);
        } else {
            addExperts();
        }
        if (inMtp_) {
            matrix(prefix_ + "eh_proj.weight", s.hidden_size, 2 * s.hidden_size, Store::Low);
            norm(prefix_ + "enorm.weight", s.hidden_size);
            norm(prefix_ + "hnorm.weight", s.hidden_size);
            norm(prefix_ + "shared_head.norm.weight", s.hidden_size);
        }
    }

    void addExperts() {
        const SyntheticSpec& s = spec_;
        const std::string m = prefix_ + "mlp.";
        matrix(m + "gate.weight", s.n_routed_experts, s.hidden_size, Store::Float);
        norm(m + "gate.e_score_correction_bias", s.n_routed_experts);
        list_.back().scale = 0.2;
        list_.back().offset = 6.9;
        if (s.n_shared_experts > 0) {
            feedForward(m + "shared_experts.", s.n_shared_experts * s.moe_intermediate_size, -1);
        }
        for (std::int64_t e = 0; e < s.n_routed_experts; ++e) {
            feedForward(m + "experts." + std::to_string(e) + ".", s.moe_intermediate_size,
                        nextExpert_++);
        }
    }

    void feedForward(const std::string& name, std::int64_t width, std::int64_t expert) {
        for (const char* part : {"gate_proj.weight", "up_proj.weight", "down_proj.weight"}) {
            const bool down = part[0] == 'd';
            matrix(name + part, down ? spec_.hidden_size : width, down ? width : spec_.hidden_size,
                   Store::Low);
            list_.back().stored.expert = expert;
        }
    }

    void norm(const std::string& name, std::int64_t n) {
        SyntheticTensor t;
        t.stored.name = name;
        t.stored.cols = n;
        t.stored.shape = {n};
        t.stored.set = set();
        t.scale = 0.5;
        t.offset = 1.0;
        list_.push_back(std::move(t));
    }

    void matrix(const std::string& name, std::int64_t rows, std::int64_t cols, Store store) {
        SyntheticTensor t;
        t.stored.name = name;
        t.stored.rows = rows;
        t.stored.cols = cols;
        t.stored.set = set();
        // Uniform values of unit gain: a row of cols inputs keeps the size of what it is given.
        const double gain = name == "lm_head.weight" ? 3.0 : 1.5;
        t.scale = 3.4640625 * gain / std::sqrt(static_cast<double>(cols));
        if (spec_.routing.overlap &&
            (name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight"))) {
            // Small steps, so that a token's own embedding still decides its routes in late layers.
            t.scale *= 0.02;
        }
        if (store == Store::Int8 || (inMtp_ && store == Store::Low)) {
            t.stored.format = {WeightKind::Int8, 0};
        } else if (store == Store::Low) {
            t.stored.format = lowFormat(name);
        }
        list_.push_back(std::move(t));
    }

    [[nodiscard]] WeightFormat lowFormat(const std::string& name) const {
        switch (spec_.kind) {
            case WeightKind::Int4: {
                std::size_t sum = 0;
                for (const char c : name) {
                    sum += static_cast<unsigned char>(c);
                }
                return {WeightKind::Int4, spec_.groups[sum % spec_.groups.size()]};
            }
            case WeightKind::Int3:
                return {WeightKind::Int3, 64};
            default:
                return {spec_.kind, 0};
        }
    }

    [[nodiscard]] ContainerSet set() const {
        return inMtp_ ? ContainerSet::Mtp : ContainerSet::Main;
    }

    const SyntheticSpec& spec_;
    std::vector<SyntheticTensor> list_;
    std::string prefix_;
    bool inMtp_ = false;
    std::int64_t nextExpert_ = 0;
};

/// Makes the matrices one after the other and hands them to the writer.
class ModelWriter {
public:
    ModelWriter(const SyntheticSpec& spec,
                const std::filesystem::path& out,
                const SyntheticProgress& progress,
                std::stop_token stop)
        : spec_(spec), out_(out), progress_(progress), stop_(std::move(stop)) {}

    Status run() {
        std::vector<ContainerTensor> stored;
        for (SyntheticTensor& tensor : TensorList(spec_).build()) {
            stored.push_back(tensor.stored);
            total_ += bytesOf(tensor.stored);
            tensors_.emplace(tensor.stored.name, std::move(tensor));
        }
        if (Status room = checkRoom(); !room) {
            return room;
        }
        for (const ContainerFilePlan& plan :
             plan_container(std::move(stored), container_metadata(""), std::int64_t{4} << 30)) {
            Result<ContainerFileWriter> writer = ContainerFileWriter::create(out_, plan);
            if (!writer) {
                return std::move(writer).error();
            }
            for (const ContainerTensor& tensor : plan.tensors) {
                if (stop_.stop_requested()) {
                    return Error{ErrorCode::Cancelled, "stopped", out_.string(), ""};
                }
                if (Status written = write(*writer, tensors_.at(tensor.name)); !written) {
                    return written;
                }
            }
            if (Status finished = writer->finish(); !finished) {
                return finished;
            }
        }
        return writeSyntheticFolder(spec_, out_);
    }

private:
    static std::int64_t bytesOf(const ContainerTensor& t) {
        return t.rows *
               (raw_row_bytes(t.format.kind, t.cols) + scales_per_row(t.format, t.cols) * 4);
    }

    Status checkRoom() {
        std::error_code error;
        const std::filesystem::space_info space = std::filesystem::space(out_, error);
        if (!error &&
            static_cast<std::int64_t>(space.available) < total_ + (std::int64_t{64} << 20)) {
            return Error{ErrorCode::TooLarge,
                         "the model needs " + std::to_string(total_) + " bytes and " +
                             std::to_string(space.available) + " are free",
                         out_.string(), "Free some space or choose a smaller model"};
        }
        return {};
    }

    Status write(ContainerFileWriter& writer, const SyntheticTensor& tensor) {
        const ContainerTensor& t = tensor.stored;
        payload_.resize(static_cast<std::size_t>(t.rows * raw_row_bytes(t.format.kind, t.cols)));
        scales_.resize(static_cast<std::size_t>(t.rows * scales_per_row(t.format, t.cols)));
        row_.resize(static_cast<std::size_t>(t.cols));
        SyntheticValues values(t.name + "#" + spec_.seed);
        const bool topical = spec_.routing.overlap &&
                             (t.name == "model.embed_tokens.weight" || t.name == "lm_head.weight");
        const bool bias = t.name.ends_with("e_score_correction_bias");
        for (std::int64_t r = 0; r < t.rows; ++r) {
            for (float& x : row_) {
                const auto value = static_cast<float>(tensor.offset + values.next() * tensor.scale);
                x = bias ? value : roundToBf16(value);
            }
            if (topical) {
                addTopic(r, tensor.scale, t.name.front() == 'm' ? Side::Embedding : Side::Head);
            }
            if (t.format.quantised()) {
                const auto fault = quantise_row(
                    row_, t.format, payload_.data() + r * raw_row_bytes(t.format.kind, t.cols),
                    scales_.data() + r * scales_per_row(t.format, t.cols));
                if (fault) {
                    return quantise_error(t.name, r, *fault);
                }
            } else {
                std::copy(row_.begin(), row_.end(),
                          reinterpret_cast<float*>(payload_.data()) + r * t.cols);
            }
        }
        if (bias) {
            std::span<float> out(reinterpret_cast<float*>(payload_.data()), row_.size());
            shapeRouting(spec_, t.name, out);
        }
        done_ += bytesOf(t);
        if (progress_) {
            progress_(done_, total_);
        }
        return writer.write({t.format, t.rows, t.cols, payload_.data(),
                             scales_.empty() ? nullptr : scales_.data()});
    }

    enum class Side { Embedding, Head };

    /// Mixes the part that all tokens of a topic have in common into the row of one token.
    void addTopic(std::int64_t token, double scale, Side side) {
        if (!topic_) {
            topic_ = topicShape(spec_);
        }
        const double own = side == Side::Embedding ? std::sqrt(1 - topic_->correlation) : 1.0;
        const double common =
            side == Side::Embedding ? std::sqrt(topic_->correlation) : topic_->headPull;
        SyntheticValues values("topic " + std::to_string(token / kTopicTokens) + "#" + spec_.seed);
        for (float& x : row_) {
            x = roundToBf16(static_cast<float>(own * x + common * values.next() * scale));
        }
    }

    const SyntheticSpec& spec_;
    const std::filesystem::path& out_;
    const SyntheticProgress& progress_;
    std::stop_token stop_;
    std::map<std::string, SyntheticTensor> tensors_;
    std::optional<TopicShape> topic_;
    std::vector<std::byte> payload_;
    std::vector<float> scales_;
    std::vector<float> row_;
    std::int64_t total_ = 0;
    std::int64_t done_ = 0;
};

Status checkSpec(const SyntheticSpec& s) {
    const auto wrong = [](const std::string& message) {
        return Error{ErrorCode::WrongUse, message, "make-model", ""};
    };
    for (const auto& [name, value] :
         std::map<std::string, std::int64_t>{{"hidden-size", s.hidden_size},
                                             {"layers", s.num_hidden_layers},
                                             {"heads", s.num_attention_heads},
                                             {"q-lora-rank", s.q_lora_rank},
                                             {"kv-lora-rank", s.kv_lora_rank},
                                             {"qk-nope-head-dim", s.qk_nope_head_dim},
                                             {"qk-rope-head-dim", s.qk_rope_head_dim},
                                             {"v-head-dim", s.v_head_dim},
                                             {"intermediate-size", s.intermediate_size},
                                             {"expert-width", s.moe_intermediate_size},
                                             {"n-experts", s.n_routed_experts},
                                             {"experts-per-token", s.num_experts_per_tok},
                                             {"index-heads", s.index_n_heads},
                                             {"index-head-dim", s.index_head_dim},
                                             {"index-topk", s.index_topk}}) {
        if (value < 1 || value > (std::int64_t{1} << 24)) {
            return wrong("--" + name + " is " + std::to_string(value) + "; expected 1 to 16777216");
        }
    }
    if (s.vocab_size < kSyntheticTokens) {
        return wrong("--vocab-size is " + std::to_string(s.vocab_size) + "; expected at least " +
                     std::to_string(kSyntheticTokens) + ", for every byte and the special tokens");
    }
    const double parameters =
        static_cast<double>(s.num_hidden_layers) * static_cast<double>(s.n_routed_experts + 8) *
        3.0 * static_cast<double>(s.moe_intermediate_size) * static_cast<double>(s.hidden_size);
    if (parameters > 1e13 || s.num_hidden_layers > 10'000 || s.n_routed_experts > 100'000) {
        return Error{ErrorCode::TooLarge,
                     "the model would have about " + std::to_string(parameters / 1e9) +
                         " thousand million parameters; at most 10000 are made",
                     "make-model", ""};
    }
    if (s.num_experts_per_tok > s.n_routed_experts) {
        return wrong("--experts-per-token is more than --n-experts");
    }
    if (s.qk_rope_head_dim % 2 != 0 || s.index_head_dim < s.qk_rope_head_dim) {
        return wrong("--qk-rope-head-dim must be even and at most --index-head-dim");
    }
    if (s.first_k_dense_replace < 0 || s.first_k_dense_replace >= s.num_hidden_layers ||
        s.num_nextn_predict_layers < 0 || s.num_nextn_predict_layers > 1) {
        return wrong("--dense-layers must be less than --layers, --mtp 0 or 1");
    }
    return {};
}

}  // namespace

Status writeSyntheticModel(const SyntheticSpec& spec,
                           const std::filesystem::path& out,
                           const SyntheticProgress& progress,
                           std::stop_token stop) {
    if (Status legal = checkSpec(spec); !legal) {
        return legal;
    }
    std::error_code error;
    std::filesystem::create_directories(out, error);
    if (error || !std::filesystem::is_empty(out, error) || error) {
        return Error{ErrorCode::WrongUse, "expected a folder that does not exist yet or is empty",
                     out.string(), "Choose another folder"};
    }
    return ModelWriter(spec, out, progress, std::move(stop)).run();
}

}  // namespace terrace::app
