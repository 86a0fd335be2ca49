// From an expected tensor and what the files hold under its name to a TensorSource: dtype, shape,
// scales and format are checked here. Internal to engine/model.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/device/result.h"
#include "engine/model/census.h"
#include "engine/model/checkpoint.h"

namespace terrace {

/// `__metadata__` keys of our own containers.
inline constexpr const char* kMetadataFormat = "terrace.format";
inline constexpr const char* kMetadataGroup = "terrace.group_size";
inline constexpr const char* kMetadataSource = "terrace.source_hash";
inline constexpr const char* kMetadataTool = "terrace.tool_version";
inline constexpr const char* kContainerFormat = "container 1";

/// Resolves one tensor after the other against one set of shards, which must outlive it.
/// Marks what it used. One thread.
class TensorResolver {
public:
    /// Reads what the files' metadata say about formats. Errors: Corrupt naming the file.
    [[nodiscard]] static Result<TensorResolver> create(ShardSet& shards);

    /// Empty when there is no tensor of that name. Errors name file and tensor.
    [[nodiscard]] Result<std::optional<TensorSource>> resolve(const ExpectedTensor& expected);

    /// The same for one expert's slice of a merged tensor [experts, rows of all, cols].
    /// Errors: as resolve; a merged tensor cannot hold integers.
    struct Slice {
        std::string merged_name;
        std::int64_t expert = 0;
        std::int64_t n_experts = 0;
        std::int64_t first_row = 0;   ///< of this projection inside one expert
        std::int64_t total_rows = 0;  ///< of one expert
    };

    [[nodiscard]] Result<std::optional<TensorSource>> resolve_slice(const ExpectedTensor& expected,
                                                                    const Slice& slice);

private:
    struct FileFacts {
        std::optional<std::int64_t> group;
        std::unordered_map<std::string, std::string> stamps;
    };

    explicit TensorResolver(ShardSet& shards) : shards_(&shards) {}

    [[nodiscard]] Status read_metadata();
    [[nodiscard]] Status resolve_float(const ShardSet::Entry& entry,
                                       const ExpectedTensor& expected,
                                       TensorSource& out) const;
    [[nodiscard]] Status resolve_fp8(const ShardSet::Entry& entry, TensorSource& out);
    [[nodiscard]] Status resolve_integers(const ShardSet::Entry& entry,
                                          const ExpectedTensor& expected,
                                          TensorSource& out);
    [[nodiscard]] Error at(const ShardSet::Entry& entry, Error error) const;

    ShardSet* shards_;
    std::vector<FileFacts> facts_;
};

}  // namespace terrace
