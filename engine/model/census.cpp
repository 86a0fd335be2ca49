#include "engine/model/census.h"

#include <string_view>

namespace terrace {
namespace {

/// Collects the tensors of one layer.
class LayerList {
public:
    LayerList(const ModelConfig& config, const Family& family, std::int64_t layer)
        : config_(config), family_(family), layer_(layer) {}

    void matrix(std::string_view suffix, TensorRole role, ExpectedSize rows, ExpectedSize cols) {
        list_.push_back({family_.layer_tensor(layer_, suffix), role,
                         static_cast<std::int32_t>(layer_), layer_ >= config_.num_hidden_layers,
                         rows, cols});
    }

    void vector(std::string_view suffix, ExpectedSize length) {
        matrix(suffix, TensorRole::Vector, {1, ""}, length);
    }

    std::vector<ExpectedTensor> take() { return std::move(list_); }

private:
    const ModelConfig& config_;
    const Family& family_;
    std::int64_t layer_;
    std::vector<ExpectedTensor> list_;
};

void add_attention(LayerList& list, const ModelConfig& c, const TensorNames& names) {
    const ExpectedSize hidden{c.hidden_size, "hidden_size"};
    const ExpectedSize q_rank{c.q_lora_rank, "q_lora_rank"};
    const ExpectedSize kv_rank{c.kv_lora_rank, "kv_lora_rank"};
    const std::int64_t heads = c.num_attention_heads;
    const TensorRole role = TensorRole::Attention;
    list.vector(names.input_norm, hidden);
    list.matrix(names.q_a, role, q_rank, hidden);
    list.vector(names.q_a_norm, q_rank);
    list.matrix(
        names.q_b, role,
        {heads * c.qk_head_dim(), "num_attention_heads times qk_nope_head_dim + qk_rope_head_dim"},
        q_rank);
    list.matrix(names.kv_a, role,
                {c.kv_lora_rank + c.qk_rope_head_dim, "kv_lora_rank + qk_rope_head_dim"}, hidden);
    list.vector(names.kv_a_norm, kv_rank);
    list.matrix(names.kv_b, role,
                {heads * (c.qk_nope_head_dim + c.v_head_dim),
                 "num_attention_heads times qk_nope_head_dim + v_head_dim"},
                kv_rank);
    list.matrix(names.o, role, hidden,
                {heads * c.v_head_dim, "num_attention_heads times v_head_dim"});
    list.vector(names.post_attention_norm, hidden);
}

void add_mlp(LayerList& list, const ModelConfig& c, const TensorNames& names, bool sparse) {
    const ExpectedSize hidden{c.hidden_size, "hidden_size"};
    if (!sparse) {
        const ExpectedSize width{c.intermediate_size, "intermediate_size"};
        list.matrix(names.mlp_gate, TensorRole::DenseMlp, width, hidden);
        list.matrix(names.mlp_up, TensorRole::DenseMlp, width, hidden);
        list.matrix(names.mlp_down, TensorRole::DenseMlp, hidden, width);
        return;
    }
    const ExpectedSize experts{c.n_routed_experts, "n_routed_experts"};
    const ExpectedSize width{c.moe_intermediate_size * c.n_shared_experts,
                             "moe_intermediate_size times n_shared_experts"};
    list.matrix(names.router, TensorRole::Router, experts, hidden);
    list.vector(names.router_bias, experts);
    list.matrix(names.shared_gate, TensorRole::SharedExpert, width, hidden);
    list.matrix(names.shared_up, TensorRole::SharedExpert, width, hidden);
    list.matrix(names.shared_down, TensorRole::SharedExpert, hidden, width);
}

void add_mtp(LayerList& list, const ModelConfig& c, const TensorNames& names) {
    const ExpectedSize hidden{c.hidden_size, "hidden_size"};
    list.vector(names.mtp_embed_norm, hidden);
    list.vector(names.mtp_hidden_norm, hidden);
    list.matrix(names.mtp_projection, TensorRole::MtpProjection, hidden,
                {2 * c.hidden_size, "twice hidden_size"});
    list.vector(names.mtp_head_norm, hidden);
}

}  // namespace

std::vector<ExpectedTensor> expected_globals(const ModelConfig& config, const Family& family) {
    const ExpectedSize vocabulary{config.vocab_size, "vocab_size"};
    const ExpectedSize hidden{config.hidden_size, "hidden_size"};
    const TensorNames& names = family.names;
    std::vector<ExpectedTensor> list;
    list.push_back(
        {std::string(names.embed), TensorRole::Embedding, -1, false, vocabulary, hidden});
    list.push_back({std::string(names.final_norm), TensorRole::Vector, -1, false, {1, ""}, hidden});
    if (!config.tie_word_embeddings) {
        list.push_back({std::string(names.head), TensorRole::Head, -1, false, vocabulary, hidden});
    }
    return list;
}

std::vector<ExpectedTensor> expected_layer(const ModelConfig& config,
                                           const Family& family,
                                           std::int64_t layer) {
    LayerList list(config, family, layer);
    if (layer >= config.num_hidden_layers) {
        add_mtp(list, config, family.names);
    }
    add_attention(list, config, family.names);
    add_mlp(list, config, family.names, config.is_sparse(layer));
    return list.take();
}

std::vector<ExpectedTensor> expected_indexer(const ModelConfig& config,
                                             const Family& family,
                                             std::int64_t layer) {
    LayerList list(config, family, layer);
    const ExpectedSize hidden{config.hidden_size, "hidden_size"};
    const ExpectedSize heads{config.index_n_heads, "index_n_heads"};
    const ExpectedSize width{config.index_head_dim, "index_head_dim"};
    const TensorNames& names = family.names;
    const TensorRole role = TensorRole::Indexer;
    list.matrix(
        names.index_q_b, role,
        {config.index_n_heads * config.index_head_dim, "index_n_heads times index_head_dim"},
        {config.q_lora_rank, "q_lora_rank"});
    list.matrix(names.index_k, role, width, hidden);
    list.vector(names.index_k_norm, width);
    list.vector(names.index_k_norm_bias, width);
    list.matrix(names.index_weights, role, heads, hidden);
    return list.take();
}

ExpectedTensor expected_expert(const ModelConfig& config,
                               const Family& family,
                               std::int64_t layer,
                               std::int64_t expert,
                               Projection projection) {
    const ExpectedSize hidden{config.hidden_size, "hidden_size"};
    const ExpectedSize width{config.moe_intermediate_size, "moe_intermediate_size"};
    const bool down = projection == Projection::Down;
    return {family.expert_tensor(layer, expert, projection),
            TensorRole::RoutedExpert,
            static_cast<std::int32_t>(layer),
            layer >= config.num_hidden_layers,
            down ? hidden : width,
            down ? width : hidden};
}

}  // namespace terrace
