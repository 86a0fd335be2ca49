#include "engine/model/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "engine/device/check.h"
#include "engine/model/census.h"
#include "engine/model/printable.h"
#include "engine/model/tensor_resolver.h"

namespace terrace {
namespace {

/// Names of tensors that should be there and are not: the first few, and how many.
struct MissingTensors {
    std::vector<std::string> first;
    std::int64_t count = 0;

    void add(const std::string& name) {
        if (first.size() < 6) {
            first.push_back(name);
        }
        ++count;
    }

    [[nodiscard]] std::string text() const {
        std::string out;
        for (const std::string& name : first) {
            out += (out.empty() ? "" : ", ") + printable(name);
        }
        const auto more = count - static_cast<std::int64_t>(first.size());
        return more > 0 ? out + " and " + std::to_string(more) + " more" : out;
    }
};

/// The number after `prefix` in "model.layers.12.mlp...", and what follows its dot.
struct Numbered {
    std::int64_t number = 0;
    std::string_view rest;
};

std::optional<Numbered> numbered(std::string_view name, std::string_view prefix) {
    if (name.substr(0, prefix.size()) != prefix) {
        return std::nullopt;
    }
    name.remove_prefix(prefix.size());
    Numbered out;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), out.number);
    const auto length = static_cast<std::size_t>(end - name.data());
    if (error != std::errc() || out.number < 0 || length >= name.size() || name[length] != '.') {
        return std::nullopt;
    }
    out.rest = name.substr(length + 1);
    return out;
}

std::string without_scales(const std::string& name) {
    const bool scales = name.size() > 3 && name.compare(name.size() - 3, 3, ".qs") == 0;
    return scales ? name.substr(0, name.size() - 3) : name;
}

}  // namespace

/// Builds a Checkpoint; lives for one call of bind.
class CheckpointBinder {
public:
    CheckpointBinder(ShardSet shards, const ModelConfig& config, const Family& family)
        : shards_(std::move(shards)), config_(config), family_(family) {}

    Result<Checkpoint> run() {
        Result<TensorResolver> resolver = TensorResolver::create(shards_);
        if (!resolver) {
            return std::move(resolver).error();
        }
        resolver_ = std::move(*resolver);
        for (Status (CheckpointBinder::*step)() :
             {&CheckpointBinder::add_globals, &CheckpointBinder::add_layers,
              &CheckpointBinder::settle_indexers, &CheckpointBinder::check_missing,
              &CheckpointBinder::check_unused}) {
            if (Status done = (this->*step)(); !done) {
                return std::move(done).error();
            }
        }
        finish();
        return std::move(out_);
    }

private:
    Status add(const ExpectedTensor& expected,
               std::vector<TensorSource>& list,
               MissingTensors& missing) {
        Result<std::optional<TensorSource>> source = resolver_->resolve(expected);
        if (!source) {
            return std::move(source).error();
        }
        if (!source->has_value()) {
            missing.add(expected.name);
        } else {
            list.push_back(std::move(**source));
        }
        return {};
    }

    Status add_all(const std::vector<ExpectedTensor>& expected,
                   std::vector<TensorSource>& list,
                   MissingTensors& missing) {
        for (const ExpectedTensor& tensor : expected) {
            if (Status added = add(tensor, list, missing); !added) {
                return added;
            }
        }
        return {};
    }

    Status add_globals() {
        return add_all(expected_globals(config_, family_), out_.dense_, missing_);
    }

    Status add_layers() {
        out_.n_routed_experts_ = config_.n_routed_experts;
        out_.first_expert_.assign(static_cast<std::size_t>(config_.n_layers_stored()), -1);
        for (std::int64_t layer = 0; layer < config_.n_layers_stored(); ++layer) {
            if (layer == config_.num_hidden_layers) {
                n_main_dense_ = out_.dense_.size();
                n_main_experts_ = out_.experts_.size();
            }
            MissingTensors& missing = layer < config_.num_hidden_layers ? missing_ : mtp_missing_;
            if (Status dense =
                    add_all(expected_layer(config_, family_, layer), out_.dense_, missing);
                !dense) {
                return dense;
            }
            if (Status indexer = add_indexer(layer); !indexer) {
                return indexer;
            }
            if (config_.is_sparse(layer)) {
                if (Status experts = add_experts(layer, missing); !experts) {
                    return experts;
                }
            }
        }
        return {};
    }

    Status add_indexer(std::int64_t layer) {
        if (!config_.owns_indexer(layer)) {
            return {};
        }
        const bool main = layer < config_.num_hidden_layers;
        std::vector<TensorSource>& list = main ? indexers_ : mtp_indexer_;
        MissingTensors& missing = main ? missing_indexers_ : missing_mtp_indexer_;
        return add_all(expected_indexer(config_, family_, layer), list, missing);
    }

    Status add_experts(std::int64_t layer, MissingTensors& missing) {
        out_.first_expert_[static_cast<std::size_t>(layer)] =
            static_cast<std::int64_t>(out_.experts_.size());
        const bool merged =
            shards_.find(family_.layer_tensor(layer, family_.names.merged_gate_up)) != nullptr ||
            shards_.find(family_.layer_tensor(layer, family_.names.merged_down)) != nullptr;
        std::int64_t n_complete = 0;
        const std::int64_t missing_before = missing.count;
        for (std::int64_t expert = 0; expert < config_.n_routed_experts; ++expert) {
            const std::int64_t before = missing.count;
            for (const Projection projection : kProjections) {
                const ExpectedTensor expected =
                    expected_expert(config_, family_, layer, expert, projection);
                if (Status added = merged ? add_slice(expected, expert, projection, missing)
                                          : add(expected, out_.experts_, missing);
                    !added) {
                    return added;
                }
            }
            n_complete += missing.count == before ? 1 : 0;
        }
        if (missing.count != missing_before && expert_note_.empty() && &missing == &missing_) {
            expert_note_ = "; layer " + std::to_string(layer) + " has " +
                           std::to_string(n_complete) + " of " +
                           std::to_string(config_.n_routed_experts) + " experts";
        }
        return {};
    }

    Status add_slice(const ExpectedTensor& expected,
                     std::int64_t expert,
                     Projection projection,
                     MissingTensors& missing) {
        const bool down = projection == Projection::Down;
        const std::int64_t layer = expected.layer;
        TensorResolver::Slice slice;
        slice.merged_name = family_.layer_tensor(
            layer, down ? family_.names.merged_down : family_.names.merged_gate_up);
        slice.expert = expert;
        slice.n_experts = config_.n_routed_experts;
        slice.total_rows = down ? expected.rows.value : 2 * expected.rows.value;
        slice.first_row = projection == Projection::Up ? expected.rows.value : 0;
        Result<std::optional<TensorSource>> source = resolver_->resolve_slice(expected, slice);
        if (!source) {
            return std::move(source).error();
        }
        if (!source->has_value()) {
            if (expert == 0) {
                missing.add(slice.merged_name);
            }
        } else {
            out_.experts_.push_back(std::move(**source));
        }
        return {};
    }

    /// All full layers have their indexer, or none has: then attention is dense.
    Status settle_indexers() {
        if (config_.index_topk == 0) {
            return {};
        }
        if (indexers_.empty()) {
            out_.warnings_.emplace_back(
                "the folder holds no indexer tensors: attention looks at the whole context, which "
                "is slower beyond index_topk (" +
                std::to_string(config_.index_topk) +
                ") tokens and not what the model was trained with");
        } else {
            out_.has_indexer_ = missing_indexers_.count == 0;
            for (const std::string& name : missing_indexers_.first) {
                missing_.add(name);
            }
            missing_.count +=
                missing_indexers_.count - static_cast<std::int64_t>(missing_indexers_.first.size());
        }
        return {};
    }

    Status check_missing() {
        if (missing_.count == 0) {
            return {};
        }
        const bool container = std::any_of(
            shards_.tensors.begin(), shards_.tensors.end(),
            [](const auto& entry) { return entry.first != without_scales(entry.first); });
        return Error{ErrorCode::Incomplete,
                     std::to_string(missing_.count) + " tensor" + (missing_.count == 1 ? "" : "s") +
                         " that config.json asks for were expected and are in none of the " +
                         std::to_string(shards_.files.size()) + " files: " + missing_.text() +
                         expert_note_,
                     "",
                     container ? "The download or the conversion is incomplete: get the missing "
                                 "files."
                               : "The publisher's upload is incomplete, or a file was left out of "
                                 "the download: compare with the publisher's list of files."};
    }

    /// Leftovers: a wrong number of layers or experts must not pass, the rest is named once.
    Status check_unused() {
        MissingTensors unused;
        std::vector<const ShardSet::Entry*> entries;
        for (const auto& [name, entry] : shards_.tensors) {
            if (!entry.used) {
                entries.push_back(&entry);
            }
        }
        std::sort(entries.begin(), entries.end(),
                  [](const auto* a, const auto* b) { return a->tensor.name < b->tensor.name; });
        for (const ShardSet::Entry* entry : entries) {
            const Status fine = check_leftover(*entry);
            if (!fine) {
                return fine;
            }
            unused.add(entry->tensor.name);
        }
        if (unused.count > 0) {
            out_.warnings_.push_back(std::to_string(unused.count) +
                                     " tensors in the files are not used: " + unused.text());
        }
        return {};
    }

    Status check_leftover(const ShardSet::Entry& entry) const {
        const std::string& name = entry.tensor.name;
        const TensorNames& names = family_.names;
        const auto fail = [&](const std::string& message) {
            return Error{ErrorCode::Corrupt, message,
                         printable(shards_.files[static_cast<std::size_t>(entry.file)].name) +
                             ": " + printable(name),
                         "config.json and the weights belong to different models: download both "
                         "again."};
        };
        const auto layer = numbered(name, names.layer_prefix);
        if (!layer) {
            return {};
        }
        const std::string n_layers = std::to_string(config_.num_hidden_layers);
        const bool mtp_name =
            layer->rest == names.mtp_projection || layer->rest == names.mtp_embed_norm ||
            layer->rest == names.mtp_hidden_norm || layer->rest == names.mtp_head_norm;
        if (layer->number < config_.num_hidden_layers && mtp_name) {
            return fail("config.json says that layer " + std::to_string(layer->number) +
                        " is one of " + n_layers +
                        " main layers (num_hidden_layers), the files hold an MTP layer there");
        }
        const bool unannounced_mtp =
            layer->number == config_.num_hidden_layers && config_.num_nextn_predict_layers == 0 &&
            shards_.tensors.count(family_.layer_tensor(layer->number, names.mtp_projection)) != 0;
        if (layer->number >= config_.n_layers_stored() && !unannounced_mtp) {
            return fail("config.json announces " + n_layers + " layers (num_hidden_layers) and " +
                        std::to_string(config_.num_nextn_predict_layers) +
                        " MTP layers, the files hold layer " + std::to_string(layer->number));
        }
        const auto expert = numbered(layer->rest, names.expert_prefix);
        if (expert && expert->number >= config_.n_routed_experts) {
            return fail("config.json announces " + std::to_string(config_.n_routed_experts) +
                        " experts (n_routed_experts), the files hold expert " +
                        std::to_string(expert->number));
        }
        const std::string base = without_scales(name);
        if (base != name && shards_.tensors.count(base) == 0) {
            return fail("scales were expected beside their integers, " + printable(base) +
                        " is in none of the files");
        }
        return {};
    }

    void drop_mtp() {
        out_.dense_.resize(n_main_dense_);
        out_.experts_.resize(n_main_experts_);
        for (std::int64_t l = config_.num_hidden_layers; l < config_.n_layers_stored(); ++l) {
            out_.first_expert_[static_cast<std::size_t>(l)] = -1;
        }
    }

    void finish() {
        if (config_.num_nextn_predict_layers > 0) {
            out_.has_mtp_ = mtp_missing_.count == 0;
            if (!out_.has_mtp_) {
                out_.warnings_.push_back(
                    "speculation is off: " + std::to_string(mtp_missing_.count) +
                    " tensors of the MTP layer are missing (" + mtp_missing_.text() + ")");
                drop_mtp();
            }
        }
        out_.mtp_has_indexer_ =
            out_.has_mtp_ && !mtp_indexer_.empty() && missing_mtp_indexer_.count == 0;
        if (out_.has_indexer_) {
            std::move(indexers_.begin(), indexers_.end(), std::back_inserter(out_.dense_));
        }
        if (out_.mtp_has_indexer_) {
            std::move(mtp_indexer_.begin(), mtp_indexer_.end(), std::back_inserter(out_.dense_));
        }
        for (const TensorSource& source : out_.dense_) {
            out_.dense_by_name_.emplace(source.name, out_.dense_by_name_.size());
        }
        const auto quantised = [](const TensorSource& s) { return s.quantised(); };
        const bool container = std::any_of(out_.dense_.begin(), out_.dense_.end(), quantised) ||
                               std::any_of(out_.experts_.begin(), out_.experts_.end(), quantised);
        out_.kind_ = container ? FolderKind::Container : FolderKind::Float;
        out_.embed_name_ = family_.names.embed;
        out_.head_name_ = family_.names.head;
        out_.tied_head_ = config_.tie_word_embeddings;
        out_.files_ = std::move(shards_.files);
        out_.warnings_.insert(out_.warnings_.begin(), shards_.warnings.begin(),
                              shards_.warnings.end());
    }

    ShardSet shards_;
    const ModelConfig& config_;
    const Family& family_;
    std::optional<TensorResolver> resolver_;
    MissingTensors missing_;
    MissingTensors mtp_missing_;
    MissingTensors missing_indexers_;
    MissingTensors missing_mtp_indexer_;
    std::vector<TensorSource> indexers_;
    std::vector<TensorSource> mtp_indexer_;
    std::size_t n_main_dense_ = 0;
    std::size_t n_main_experts_ = 0;
    std::string expert_note_;
    Checkpoint out_;
};

Result<Checkpoint> Checkpoint::bind(ShardSet shards,
                                    const ModelConfig& config,
                                    const Family& family) {
    return CheckpointBinder(std::move(shards), config, family).run();
}

Result<TensorSource> Checkpoint::matrix(std::string_view name) const {
    const std::string wanted = tied_head_ && name == head_name_ ? embed_name_ : std::string(name);
    const auto it = dense_by_name_.find(wanted);
    if (it == dense_by_name_.end()) {
        return Error{ErrorCode::NotFound,
                     "the tensor was expected, the model has none of this name", printable(name),
                     ""};
    }
    return dense_[it->second];
}

Result<TensorSource> Checkpoint::vector(std::string_view name) const {
    Result<TensorSource> source = matrix(name);
    CHECK(!source || source->role == TensorRole::Vector);
    return source;
}

const TensorSource& Checkpoint::expert(std::int64_t layer,
                                       std::int64_t expert,
                                       Projection projection) const {
    CHECK(layer >= 0 && layer < static_cast<std::int64_t>(first_expert_.size()));
    const std::int64_t first = first_expert_[static_cast<std::size_t>(layer)];
    CHECK(first >= 0 && expert >= 0 && expert < n_routed_experts_);
    return experts_[static_cast<std::size_t>(first + expert * 3 +
                                             static_cast<std::int64_t>(projection))];
}

Result<RawWeight> Checkpoint::read_weight(const TensorSource& source, WeightFormat target) const {
    std::vector<std::byte> payload(static_cast<std::size_t>(source.payload.bytes));
    std::vector<std::byte> scales(static_cast<std::size_t>(source.scales.bytes));
    const auto read = [&](const FileRange& range, std::vector<std::byte>& out) {
        return range.file < 0 ? Status()
                              : files_[static_cast<std::size_t>(range.file)].file.read_exact(
                                    range.offset, out);
    };
    for (Status status : {read(source.payload, payload), read(source.scales, scales)}) {
        if (!status) {
            return std::move(status).error().in(printable(source.name));
        }
    }
    Result<RawWeight> weight = materialise(source, payload, scales, target);
    if (!weight) {
        return weight;
    }
    // What was not converted still points into the buffers read here; they go along.
    if (weight->matrix.payload == payload.data()) {
        weight->payload = std::move(payload);
    }
    if (weight->matrix.scales != nullptr && weight->scales.empty()) {
        weight->scales.resize(scales.size() / sizeof(float));
        std::copy(scales.begin(), scales.end(),
                  reinterpret_cast<std::byte*>(weight->scales.data()));
        weight->matrix.scales = weight->scales.data();
    }
    return weight;
}

}  // namespace terrace
