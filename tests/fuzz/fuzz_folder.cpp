// Everything of a model folder that strangers write and we parse ourselves: the first byte of the
// input says which file the rest is. Crashes, hangs and broken promises are findings.
//   h  header of a safetensors file with 64 bytes of data; then bound to a small model
//   c  config.json    g  generation_config.json    i  index    t  tokenizer_config.json
//   n  names of tensors, one a line
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "engine/model/checkpoint.h"
#include "engine/model/model_config.h"
#include "engine/model/printable.h"
#include "engine/model/safetensors.h"
#include "engine/model/shard_index.h"
#include "engine/model/shard_names.h"
#include "engine/model/tokenizer_config.h"

namespace terrace {
namespace {

constexpr std::int64_t kDataBytes = 64;

constexpr std::string_view kConfig =
    R"({"model_type":"glm_moe_dsa","vocab_size":4,"hidden_size":4,"num_hidden_layers":1,)"
    R"("num_attention_heads":1,"q_lora_rank":4,"kv_lora_rank":4,"qk_nope_head_dim":2,)"
    R"("qk_rope_head_dim":2,"v_head_dim":4,"intermediate_size":4,"moe_intermediate_size":4,)"
    R"("first_k_dense_replace":0,"n_routed_experts":1,"num_experts_per_tok":1,)"
    R"("routed_scaling_factor":1,"index_n_heads":1,"index_head_dim":2,"index_topk":1,)"
    R"("max_position_embeddings":8,"rms_norm_eps":1e-5,"num_nextn_predict_layers":1})";

void require(bool promise) {
    if (!promise) {
        std::abort();
    }
}

void require_printable(const Error& error) {
    for (const char c : error.text()) {
        require(static_cast<unsigned char>(c) >= 0x20 && c != 0x7F);
    }
}

/// The files of a set must be open; any file will do, nothing is read from it.
void bind_small_model(SafetensorsHeader header) {
    static const ModelConfig config = *parse_model_config(kConfig);
    Result<File> file = File::open("/proc/self/exe");
    require(file.ok());
    ShardSet shards;
    shards.files.push_back({"model.safetensors", file->path(), header.file_bytes, header.data_begin,
                            header.text_hash, std::move(*file)});
    shards.metadata.push_back(std::move(header.metadata));
    for (StoredTensor& tensor : header.tensors) {
        const std::string name = tensor.name;
        shards.tensors.emplace(name, ShardSet::Entry{0, std::move(tensor), false});
    }
    const Result<Checkpoint> checkpoint =
        Checkpoint::bind(std::move(shards), config, *find_family(config.model_type));
    if (!checkpoint) {
        return require_printable(checkpoint.error());
    }
    for (const auto* list : {&checkpoint->dense(), &checkpoint->experts()}) {
        for (const TensorSource& source : *list) {
            require(source.payload.offset + source.payload.bytes <= header.file_bytes);
        }
    }
}

void fuzz_header(std::string_view text) {
    const std::int64_t file_bytes = static_cast<std::int64_t>(text.size()) + 8 + kDataBytes;
    Result<SafetensorsHeader> header = parse_safetensors_header(text, file_bytes);
    if (!header) {
        return require_printable(header.error());
    }
    std::int64_t end = header->data_begin;
    for (const StoredTensor& tensor : header->tensors) {
        require(tensor.begin == end && tensor.end >= tensor.begin);
        require(tensor.n_elements() * dtype_bytes(tensor.dtype) == tensor.bytes());
        end = tensor.end;
    }
    require(end == file_bytes);
    bind_small_model(std::move(*header));
}

void fuzz_config(std::string_view text) {
    const Result<ModelConfig> config = parse_model_config(text);
    if (!config) {
        return require_printable(config.error());
    }
    const auto n_layers = static_cast<std::size_t>(config->num_hidden_layers);
    require(config->mlp_layer_types.size() == n_layers);
    require(config->indexer_types.empty() || config->indexer_types.size() == n_layers);
    require(config->num_experts_per_tok <= config->n_routed_experts);
    require(config->rms_norm_eps > 0 && config->rope_parameters.rope_theta > 0);
}

void fuzz_names(std::string_view text) {
    std::vector<std::string_view> names;
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        names.push_back(text.substr(0, end));
        text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    }
    const NamePrefix prefix = NamePrefix::detect(names);
    FolderListing listing;
    for (const std::string_view name : names) {
        (void)prefix.canonical(std::string(name));
        listing.shards.push_back(std::string(name) + ".safetensors");
    }
    const Status status = check_sequences(listing);
    if (!status) {
        require_printable(status.error());
    }
}

}  // namespace
}  // namespace terrace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) {
        return 0;
    }
    const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
    switch (data[0]) {
        case 'h':
            terrace::fuzz_header(text);
            break;
        case 'c':
            terrace::fuzz_config(text);
            break;
        case 'g':
            (void)terrace::parse_generation_config(text);
            break;
        case 'i':
            (void)terrace::parse_shard_index(text);
            break;
        case 't':
            (void)terrace::parse_tokenizer_config(text);
            break;
        case 'n':
            terrace::fuzz_names(text);
            break;
        default:
            break;
    }
    return 0;
}
