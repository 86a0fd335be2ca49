// model.safetensors.index.json: which file holds which tensor. Untrusted, and it may only name
// files of its own folder. Internal to engine/model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/device/result.h"

namespace terrace {

struct ShardIndex {
    std::vector<std::string> files;                          ///< base names, in order of first use
    std::unordered_map<std::string, std::uint32_t> tensors;  ///< name -> index into files
    std::optional<std::int64_t> total_bytes;                 ///< metadata.total_size; often wrong
};

/// Parses the text. Errors name the tensor or the key; the caller adds the index file's name.
/// A file name that is no plain name of this folder (a path, a drive, control characters) is
/// refused.
[[nodiscard]] Result<ShardIndex> parse_shard_index(std::string_view text);

}  // namespace terrace
