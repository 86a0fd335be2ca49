// Where models are: the one a user names, or the demo model that comes with the program.
#pragma once

#include <filesystem>
#include <string>

#include "engine/device/result.h"

namespace terrace::app {

/// The demo model's folder: relative to the running program (an installation or a build tree),
/// then in the user's data folder. NotFound lists where was looked.
[[nodiscard]] Result<std::filesystem::path> demoModelFolder();

/// The folder for state that belongs to the user: $XDG_DATA_HOME/terrace or ~/.local/share/terrace.
[[nodiscard]] std::filesystem::path dataFolder();

/// What MODEL means: the path itself, or the demo model when it is empty.
[[nodiscard]] Result<std::filesystem::path> modelPath(const std::string& given);

}  // namespace terrace::app
