#include "app/core/model_location.h"

#include <cstdlib>
#include <vector>

namespace terrace::app {

std::filesystem::path dataFolder() {
    // XDG variables say where a user's folders are; they are no options of ours.
    if (const char* data = std::getenv("XDG_DATA_HOME"); data != nullptr && *data != '\0') {
        return std::filesystem::path(data) / "terrace";
    }
    const char* home = std::getenv("HOME");
    return std::filesystem::path(home != nullptr ? home : ".") / ".local/share/terrace";
}

Result<std::filesystem::path> demoModelFolder() {
    std::error_code ignored;
    std::vector<std::filesystem::path> places;
    const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored);
    if (!program.empty()) {
        places.push_back(program.parent_path().parent_path() / "share/terrace/demo-model");
    }
    places.push_back(dataFolder() / "demo-model");
    std::string looked;
    for (const std::filesystem::path& place : places) {
        if (std::filesystem::is_regular_file(place / "config.json", ignored)) {
            return place;
        }
        looked += (looked.empty() ? "" : ", ") + place.string();
    }
    return Error{ErrorCode::NotFound, "the demo model was not found; looked in " + looked, "",
                 "Install Terrace again, or name a model folder"};
}

Result<std::filesystem::path> modelPath(const std::string& given) {
    if (given.empty()) {
        return demoModelFolder();
    }
    return std::filesystem::path(given);
}

}  // namespace terrace::app
