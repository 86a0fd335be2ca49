#include "engine/model/folder_facts.h"

#include <algorithm>

namespace terrace {
namespace {

std::int64_t bytes_of(const TensorSource& source) {
    return source.payload.bytes + source.scales.bytes;
}

std::int64_t& size_of_role(const TensorSource& source, FolderSizes& sizes) {
    if (source.in_mtp_layer) {
        return sizes.mtp;
    }
    switch (source.role) {
        case TensorRole::Embedding:
        case TensorRole::Head:
            return sizes.embedding_and_head;
        case TensorRole::Attention:
            return sizes.attention;
        case TensorRole::Indexer:
            return sizes.indexer;
        case TensorRole::DenseMlp:
            return sizes.dense_mlp;
        case TensorRole::SharedExpert:
            return sizes.shared_experts;
        case TensorRole::RoutedExpert:
            return sizes.routed_experts;
        case TensorRole::MtpProjection:
            return sizes.mtp;
        case TensorRole::Vector:
        case TensorRole::Router:
            break;
    }
    return sizes.router_and_norms;
}

void count_format(const TensorSource& source, std::vector<FormatCount>& formats) {
    auto it = std::find_if(formats.begin(), formats.end(), [&](const FormatCount& f) {
        return f.storage == source.storage && f.group == source.group;
    });
    if (it == formats.end()) {
        formats.push_back({source.storage, source.group, 0, 0});
        it = formats.end() - 1;
    }
    ++it->n_tensors;
    it->bytes += bytes_of(source);
}

}  // namespace

void count_facts(const ModelConfig& config, const Checkpoint& checkpoint, FolderFacts& facts) {
    facts.n_layers = config.num_hidden_layers;
    facts.n_sparse_layers =
        std::count(config.mlp_layer_types.begin(), config.mlp_layer_types.end(), MlpKind::Sparse);
    facts.n_experts_per_layer = config.n_routed_experts;
    facts.n_experts_per_token = config.num_experts_per_tok;
    facts.max_context_tokens = config.max_position_embeddings;
    facts.kind = checkpoint.kind();
    facts.has_mtp = checkpoint.has_mtp();
    facts.has_indexer = checkpoint.has_indexer();
    facts.n_files = static_cast<std::int64_t>(checkpoint.files().size());
    for (const std::vector<TensorSource>* list : {&checkpoint.dense(), &checkpoint.experts()}) {
        for (const TensorSource& source : *list) {
            size_of_role(source, facts.sizes) += bytes_of(source);
            facts.sizes.total += bytes_of(source);
            facts.n_parameters += source.rows * source.cols;
            ++facts.n_tensors;
            count_format(source, facts.formats);
        }
    }
    for (std::size_t i = 0; i < std::min<std::size_t>(3, checkpoint.experts().size()); ++i) {
        facts.sizes.one_expert += bytes_of(checkpoint.experts()[i]);
    }
    std::sort(facts.formats.begin(), facts.formats.end(),
              [](const FormatCount& a, const FormatCount& b) { return a.bytes > b.bytes; });
}

}  // namespace terrace
