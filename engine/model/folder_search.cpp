// find_model_folder: which folder a path means that a user typed, dropped or chose.
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "engine/model/json_text.h"
#include "engine/model/model_folder.h"
#include "engine/model/printable.h"
#include "engine/model/shard_names.h"

namespace terrace {
namespace {

namespace fs = std::filesystem;

constexpr int kSearchDepth = 3;
constexpr std::size_t kMaxFoldersSeen = 20'000;
constexpr const char* kGiveFolder =
    "Give the folder that holds config.json and the *.safetensors files of one model.";

bool is_json_name(const std::string& name, std::string_view wanted) {
    return name.size() == wanted.size() &&
           std::equal(name.begin(), name.end(), wanted.begin(), [](char a, char b) {
               return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b;
           });
}

/// Parts of a model, enough to say what is missing.
bool looks_like_model(const fs::path& folder) {
    const Result<FolderListing> listing = list_folder(folder);
    if (!listing) {
        return false;
    }
    if (!listing->shards.empty() || !listing->index.empty()) {
        return true;
    }
    return std::any_of(listing->others.begin(), listing->others.end(), [](const std::string& n) {
        return is_json_name(n, "config.json") || is_json_name(n, "tokenizer.json") ||
               n.find(".safetensors.") != std::string::npos;
    });
}

/// A whole model, as the search below a parent wants it.
bool is_model(const fs::path& folder) {
    const Result<FolderListing> listing = list_folder(folder);
    return listing && listing->has("config.json") && !listing->shards.empty();
}

/// Tells a folder from a link back to it.
std::string folder_id(const fs::path& folder) {
    std::error_code error;
    return fs::canonical(folder, error).native();
}

/// Looks below one folder, level by level.
class Search {
public:
    std::vector<fs::path> run(const fs::path& top) {
        std::vector<fs::path> level = {top};
        seen_.insert(folder_id(top));
        for (int depth = 0; depth < kSearchDepth; ++depth) {
            std::vector<fs::path> next;
            for (const fs::path& folder : level) {
                descend(folder, next);
            }
            level = std::move(next);
        }
        std::sort(models_.begin(), models_.end());
        return std::move(models_);
    }

private:
    void descend(const fs::path& folder, std::vector<fs::path>& next) {
        std::error_code error;
        for (fs::directory_iterator it(folder, error), end; !error && it != end;
             it.increment(error)) {
            std::error_code entry_error;
            if (seen_.size() >= kMaxFoldersSeen || !it->is_directory(entry_error)) {
                continue;
            }
            if (!seen_.insert(folder_id(it->path())).second) {
                continue;
            }
            if (is_model(it->path())) {
                models_.push_back(it->path());
            } else {
                next.push_back(it->path());
            }
        }
    }

    std::set<std::string> seen_;
    std::vector<fs::path> models_;
};

/// A hub cache keeps revisions under snapshots/ and says in refs/main which one is current.
fs::path current_snapshot(const fs::path& cache) {
    const Result<std::string> text = read_folder_text(cache / "refs" / "main", 200);
    if (!text) {
        return {};
    }
    const std::string revision = text->substr(0, text->find_first_of("\r\n"));
    if (revision.empty() || revision[0] == '.' || revision.find('/') != std::string::npos) {
        return {};
    }
    fs::path folder = cache / "snapshots" / revision;
    return is_model(folder) ? folder : fs::path();
}

Result<fs::path> search_below(const fs::path& given) {
    if (fs::path snapshot = current_snapshot(given); !snapshot.empty()) {
        return snapshot;
    }
    std::vector<fs::path> models = Search().run(given);
    if (models.empty()) {
        return Error{ErrorCode::NotFound,
                     "a model was expected, none was found here or in the folders up to " +
                         std::to_string(kSearchDepth) + " levels below",
                     printable_path(given), kGiveFolder};
    }
    if (models.size() > 1) {
        std::string list;
        for (std::size_t i = 0; i < std::min<std::size_t>(models.size(), 10); ++i) {
            list += (i == 0 ? "" : ", ") + printable_path(models[i].lexically_relative(given));
        }
        return Error{
            ErrorCode::WrongUse,
            "one model was expected, " + std::to_string(models.size()) + " were found: " + list,
            printable_path(given), "Give the folder of one of them."};
    }
    return models.front();
}

Result<fs::path> folder_of_file(const fs::path& file) {
    // The parent as written: files of a hub cache are links into another folder.
    fs::path folder = file.parent_path().empty() ? fs::path(".") : file.parent_path();
    if (file.extension() == ".gguf") {
        return Error{ErrorCode::Unsupported,
                     "a folder with safetensors files was expected, a GGUF file was found",
                     printable_path(file), kGiveFolder};
    }
    if (!looks_like_model(folder)) {
        return Error{ErrorCode::NotFound,
                     "a file of a model was expected, there is no model beside this one",
                     printable_path(file), kGiveFolder};
    }
    return folder;
}

}  // namespace

Result<fs::path> find_model_folder(const fs::path& given) {
    std::error_code error;
    const fs::file_status status = fs::status(given, error);
    if (!fs::exists(status)) {
        const bool missing = status.type() == fs::file_type::not_found;
        return Error{missing ? ErrorCode::NotFound : ErrorCode::Unreadable,
                     "a model folder was expected, " +
                         (missing ? std::string("there is nothing of this name") : error.message()),
                     printable_path(given), kGiveFolder};
    }
    Result<fs::path> found =
        fs::is_directory(status)
            ? (looks_like_model(given) ? Result<fs::path>(given) : search_below(given))
            : folder_of_file(given);
    if (!found) {
        return found;
    }
    fs::path whole = fs::canonical(*found, error);
    return error ? std::move(*found) : whole;
}

}  // namespace terrace
