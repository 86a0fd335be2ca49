// What the names in a model folder say: which safetensors files there are, whether a numbered set
// is complete, and what stands in front of every tensor name. Internal to engine/model.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/device/result.h"

namespace terrace {

/// The base names in a folder that matter.
struct FolderListing {
    std::vector<std::string> shards;  ///< *.safetensors, sorted; hidden files are left out
    std::set<std::string> others;     ///< every other name
    std::string index;                ///< the index file, empty when there is none

    [[nodiscard]] bool has(const std::string& name) const { return others.count(name) != 0; }
};

/// Errors: Unreadable.
[[nodiscard]] Result<FolderListing> list_folder(const std::filesystem::path& folder);

/// Why `name` is not there, as far as the other names tell: still being downloaded, or spelled
/// differently. Empty when nothing does.
[[nodiscard]] std::string missing_file_hint(const FolderListing& listing, const std::string& name);

/// Checks `NAME-00001-of-00003` and `out-00000` style numbers: every set complete, one set only.
/// Errors: Incomplete naming the missing files, Corrupt naming two files of different sets.
[[nodiscard]] Status check_sequences(const FolderListing& listing);

/// Maps the names in the files to those that families use.
class NamePrefix {
public:
    /// Finds out from all names what stands in place of "model.".
    [[nodiscard]] static NamePrefix detect(const std::vector<std::string_view>& names);

    [[nodiscard]] std::string canonical(const std::string& name) const;

    /// What the files have in place of "model."; "model." when they are plain.
    [[nodiscard]] const std::string& found() const { return found_; }

private:
    std::string found_ = "model.";
};

}  // namespace terrace
