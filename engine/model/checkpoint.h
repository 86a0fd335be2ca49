// The weight files of a model folder as one set of checked, named matrices. Opening reads headers
// only; a weight is read when somebody asks for it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/device/result.h"
#include "engine/model/family.h"
#include "engine/model/model_config.h"
#include "engine/model/safetensors.h"
#include "engine/model/weights.h"
#include "engine/support/file.h"

namespace terrace {

/// One safetensors file of the set, open for buffered reading.
struct CheckpointFile {
    std::string name;            ///< base name
    std::filesystem::path path;  ///< for readers that open it their own way
    std::int64_t bytes = 0;
    std::int64_t data_begin = 0;
    std::uint64_t header_hash = 0;
    File file;
};

/// The files of a folder before anything is known about the model: names and ranges.
struct ShardSet {
    struct Entry {
        std::int32_t file = 0;
        StoredTensor tensor;  ///< under its canonical name
        bool used = false;    ///< set by Checkpoint::bind
    };

    std::vector<CheckpointFile> files;                         ///< sorted by name
    std::vector<std::map<std::string, std::string>> metadata;  ///< one for each file
    std::unordered_map<std::string, Entry> tensors;            ///< by canonical name
    std::string name_prefix;  ///< what stands in front of "model." in the files; usually empty
    std::vector<std::string> warnings;

    /// Null when there is none.
    [[nodiscard]] Entry* find(const std::string& name) {
        const auto it = tensors.find(name);
        return it == tensors.end() ? nullptr : &it->second;
    }
};

/// Opens every safetensors file of `folder` and checks the set: index, shard numbers, tensor names
/// that stand twice. Errors name file and tensor and say whether a download looks unfinished.
[[nodiscard]] Result<ShardSet> open_shards(const std::filesystem::path& folder);

/// All weights of one model, checked against its config. Owner: ModelFolder; lives as long as the
/// sessions that read from it. Immutable after construction, reads are thread-safe. Move-only.
class Checkpoint {
public:
    /// Compares the tensors in the files with those that config and family ask for.
    /// Errors: Incomplete (missing tensors, with the count), Corrupt (a shape or a byte count that
    /// fits no format: tensor, expected, found), Unsupported (a format we do not run).
    [[nodiscard]] static Result<Checkpoint> bind(ShardSet shards,
                                                 const ModelConfig& config,
                                                 const Family& family);

    [[nodiscard]] const std::vector<CheckpointFile>& files() const { return files_; }

    [[nodiscard]] FolderKind kind() const { return kind_; }

    /// True when all tensors of the MTP layer are there (its own indexer is optional).
    [[nodiscard]] bool has_mtp() const { return has_mtp_; }

    /// True when every full layer has its indexer; false: none has, attention is dense.
    [[nodiscard]] bool has_indexer() const { return has_indexer_; }

    [[nodiscard]] bool mtp_has_indexer() const { return mtp_has_indexer_; }

    /// The matrix of this canonical name (`Family` has the names). lm_head of a model with tied
    /// embeddings is the embedding. NotFound names the tensor.
    [[nodiscard]] Result<TensorSource> matrix(std::string_view name) const;

    /// A one-dimensional tensor: rows 1, cols its length.
    [[nodiscard]] Result<TensorSource> vector(std::string_view name) const;

    /// One projection of one routed expert; layer counts MTP layers too.
    /// Precondition: layer is sparse (an MTP layer: has_mtp()), expert < n_routed_experts.
    [[nodiscard]] const TensorSource& expert(std::int64_t layer,
                                             std::int64_t expert,
                                             Projection projection) const;

    /// Every tensor of the model except routed experts, in the order of the forward pass.
    [[nodiscard]] const std::vector<TensorSource>& dense() const { return dense_; }

    /// Every routed expert matrix: layer, then expert, then gate, up, down.
    [[nodiscard]] const std::vector<TensorSource>& experts() const { return experts_; }

    [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }

    /// Reads and converts one weight; the result owns its bytes.
    [[nodiscard]] Result<RawWeight> read_weight(const TensorSource& source,
                                                WeightFormat target) const;

private:
    friend class CheckpointBinder;

    Checkpoint() = default;

    std::vector<CheckpointFile> files_;
    std::vector<TensorSource> dense_;
    std::unordered_map<std::string, std::size_t> dense_by_name_;
    std::vector<TensorSource> experts_;
    std::vector<std::int64_t> first_expert_;  ///< [layer] index into experts_, -1: dense layer
    std::int64_t n_routed_experts_ = 0;
    FolderKind kind_ = FolderKind::Float;
    bool has_mtp_ = false;
    bool has_indexer_ = false;
    bool mtp_has_indexer_ = false;
    bool tied_head_ = false;
    std::string head_name_;
    std::string embed_name_;
    std::vector<std::string> warnings_;
};

}  // namespace terrace
