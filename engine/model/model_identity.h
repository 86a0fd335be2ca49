// A short name for the content of a model folder, the same for every copy of it: learned
// placements and saved caches are kept under it.
#pragma once

#include <string>
#include <string_view>

#include "engine/device/result.h"
#include "engine/model/checkpoint.h"

namespace terrace {

/// 16 hex digits of FNV-1a over: the version of the rules by which folders are quantised while
/// loading, the bytes of config.json, each file's name, size and header, and 16 blocks of 4 KiB
/// spread evenly over the data of all files (by position in the whole, so two files or two hundred
/// cost the same). Paths, times and other files do not enter. It finds a changed model, it does
/// not resist somebody who wants a collision.
/// Errors: Io naming the file.
[[nodiscard]] Result<std::string> model_identity(std::string_view config_text,
                                                 const std::vector<CheckpointFile>& files);

}  // namespace terrace
