// open_shards: all safetensors files of a folder as one set of named ranges.
#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include "engine/model/checkpoint.h"
#include "engine/model/json_text.h"
#include "engine/model/printable.h"
#include "engine/model/shard_index.h"
#include "engine/model/shard_names.h"

namespace terrace {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxShards = 512;
constexpr std::int64_t kMaxIndexBytes = std::int64_t{32} << 20;

/// One shard with its header, or why there is none.
struct OpenedShard {
    CheckpointFile file;
    SafetensorsHeader header;
};

/// Opens the set of one folder step by step; lives for one call of open_shards.
class ShardOpener {
public:
    explicit ShardOpener(const fs::path& folder) : folder_(folder) {}

    Result<ShardSet> run() {
        for (Status (ShardOpener::*step)() :
             {&ShardOpener::list, &ShardOpener::read_index, &ShardOpener::choose_files,
              &ShardOpener::open_files, &ShardOpener::merge, &ShardOpener::check_index}) {
            if (Status done = (this->*step)(); !done) {
                return std::move(done).error();
            }
        }
        return std::move(out_);
    }

private:
    Status list() {
        Result<FolderListing> listing = list_folder(folder_);
        if (!listing) {
            return std::move(listing).error();
        }
        listing_ = std::move(*listing);
        return {};
    }

    Status read_index() {
        if (listing_.index.empty()) {
            return {};
        }
        Result<std::string> text = read_folder_text(folder_ / listing_.index, kMaxIndexBytes);
        if (!text) {
            return std::move(text).error();
        }
        Result<ShardIndex> index = parse_shard_index(*text);
        if (!index) {
            return std::move(index).error().in(printable(listing_.index));
        }
        index_ = std::move(*index);
        return {};
    }

    Status choose_files() {
        if (!index_) {
            names_ = listing_.shards;
            if (names_.empty()) {
                return no_weights();
            }
            if (Status sequences = check_sequences(listing_); !sequences) {
                return sequences;
            }
        } else if (Status indexed = choose_indexed(); !indexed) {
            return indexed;
        }
        if (names_.size() > kMaxShards) {
            return Error{ErrorCode::TooLarge,
                         "at most " + std::to_string(kMaxShards) +
                             " safetensors files were expected, " + std::to_string(names_.size()) +
                             " were found",
                         "", "Put each model into a folder of its own."};
        }
        return {};
    }

    Status choose_indexed() {
        std::vector<std::string> gone;
        for (const std::string& name : index_->files) {
            if (!std::binary_search(listing_.shards.begin(), listing_.shards.end(), name)) {
                gone.push_back(name);
            }
        }
        if (!gone.empty()) {
            return Error{
                ErrorCode::Incomplete,
                "the " + std::to_string(index_->files.size()) + " files that " +
                    printable(listing_.index) + " names were expected, " + printable(gone.front()) +
                    " is missing" + missing_file_hint(listing_, gone.front()) +
                    (gone.size() == 1 ? "" : ", and " + std::to_string(gone.size() - 1) + " more"),
                "", "The download is incomplete: resume it, or download the missing files."};
        }
        names_ = index_->files;
        std::sort(names_.begin(), names_.end());
        for (const std::string& name : listing_.shards) {
            if (!std::binary_search(names_.begin(), names_.end(), name)) {
                out_.warnings.push_back(printable(name) + " is not named by " +
                                        printable(listing_.index) + " and is not used");
            }
        }
        return {};
    }

    Status no_weights() {
        std::string other;
        for (const std::string& name : listing_.others) {
            const std::string extension = fs::path(name).extension().string();
            if (extension == ".bin" || extension == ".gguf" || extension == ".pth" ||
                extension == ".pt") {
                other = ", only files such as " + printable(name) + " were found";
                break;
            }
            if (name.find(".safetensors.") != std::string::npos && name != listing_.index) {
                other = ", only " + printable(name) + " was found (still being downloaded)";
            }
        }
        return Error{ErrorCode::Unsupported,
                     "weights in *.safetensors files were expected" +
                         (other.empty() ? std::string(", none were found") : other),
                     "",
                     "Download the safetensors files of this model: Terrace reads Hugging Face "
                     "checkpoints and containers in that format."};
    }

    Result<OpenedShard> open_one(const std::string& name) const {
        const fs::path path = folder_ / name;
        if (Status regular = check_regular_file(path); !regular) {
            Error error = std::move(regular).error();
            error.context.clear();
            return error;
        }
        Result<File> file = File::open(path);
        if (!file) {
            Error error = std::move(file).error();
            error.context.clear();
            return error;
        }
        Result<SafetensorsHeader> header = read_safetensors_header(*file);
        if (!header) {
            return std::move(header).error();
        }
        CheckpointFile entry{name,
                             path,
                             header->file_bytes,
                             header->data_begin,
                             header->text_hash,
                             std::move(*file)};
        return OpenedShard{std::move(entry), std::move(*header)};
    }

    Status open_files() {
        std::optional<Error> first;
        std::string first_name;
        std::size_t n_failed = 0;
        for (const std::string& name : names_) {
            Result<OpenedShard> shard = open_one(name);
            if (shard) {
                shards_.push_back(std::move(*shard));
                continue;
            }
            if (++n_failed == 1) {
                first = std::move(shard).error();
                first_name = name;
            }
        }
        if (!first) {
            return {};
        }
        first->message += missing_file_hint(listing_, first_name);
        if (n_failed == 1) {
            first->message += expected_size(first_name);
        } else {
            first->message += "; " + std::to_string(n_failed - 1) + " more of " +
                              std::to_string(names_.size()) + " files are unusable";
        }
        return std::move(*first).in(printable(first_name));
    }

    /// What a damaged file should have had, when the index and the other files tell.
    [[nodiscard]] std::string expected_size(const std::string& name) const {
        // A pipe must not be opened: that would wait for its writer.
        if (!index_ || !index_->total_bytes || !check_regular_file(folder_ / name)) {
            return "";
        }
        const Result<File> file = File::open(folder_ / name);
        if (!file) {
            return "";
        }
        const Result<std::int64_t> size = file->size();
        std::array<std::byte, 8> start{};
        if (!size || *size < 9 || !file->read_exact(0, start)) {
            return "";
        }
        std::uint64_t header = 0;
        for (std::size_t i = 8; i-- > 0;) {
            header = header << 8U | std::to_integer<std::uint64_t>(start[i]);
        }
        std::int64_t data = *index_->total_bytes;
        for (const OpenedShard& shard : shards_) {
            data -= shard.file.bytes - shard.file.data_begin;
        }
        if (data <= 0 || header > kMaxHeaderBytes) {
            return "";
        }
        return "; by the index the file should have " +
               std::to_string(8 + static_cast<std::int64_t>(header) + data) + " bytes";
    }

    /// Puts all tensors into one map; the index decides about names that stand twice.
    Status merge() {
        std::vector<std::string_view> names;
        for (const OpenedShard& shard : shards_) {
            for (const StoredTensor& tensor : shard.header.tensors) {
                names.push_back(tensor.name);
            }
        }
        prefix_ = NamePrefix::detect(names);
        out_.name_prefix = prefix_.found();
        out_.tensors.reserve(names.size());
        for (OpenedShard& shard : shards_) {
            const auto file = static_cast<std::int32_t>(out_.files.size());
            out_.files.push_back(std::move(shard.file));
            out_.metadata.push_back(std::move(shard.header.metadata));
            for (StoredTensor& tensor : shard.header.tensors) {
                if (Status added = add(file, std::move(tensor)); !added) {
                    return added;
                }
            }
        }
        return {};
    }

    Status add(std::int32_t file, StoredTensor tensor) {
        const std::string& file_name = out_.files[static_cast<std::size_t>(file)].name;
        if (index_) {
            const auto entry = index_->tensors.find(tensor.name);
            if (entry == index_->tensors.end()) {
                return Error{ErrorCode::Corrupt,
                             "every tensor was expected to stand in " + printable(listing_.index) +
                                 ", this one does not: two versions are mixed",
                             printable(file_name) + ": " + printable(tensor.name),
                             "Download the index file and the weights of one version again."};
            }
            if (index_->files[entry->second] != file_name) {
                return {};
            }
        }
        tensor.name = prefix_.canonical(tensor.name);
        const std::string name = tensor.name;
        const auto [it, is_new] =
            out_.tensors.emplace(name, ShardSet::Entry{file, std::move(tensor)});
        if (!is_new) {
            const std::string& other = out_.files[static_cast<std::size_t>(it->second.file)].name;
            return Error{ErrorCode::Corrupt,
                         "the tensor was expected in one file, it stands in two: " +
                             printable(other) + " and " + printable(file_name),
                         printable(name),
                         "Remove the older of the two files, or add the index file that chooses."};
        }
        return {};
    }

    /// Everything that the index names must have been found where it says.
    Status check_index() {
        if (!index_) {
            return {};
        }
        for (const auto& [name, file] : index_->tensors) {
            if (out_.find(prefix_.canonical(name)) == nullptr) {
                return Error{ErrorCode::Corrupt,
                             "by " + printable(listing_.index) + " the tensor was expected in " +
                                 printable(index_->files[file]) + ", it is not there",
                             printable(name),
                             "Download the index file and the weights of one version again."};
            }
        }
        return {};
    }

    const fs::path& folder_;
    FolderListing listing_;
    std::optional<ShardIndex> index_;
    std::vector<std::string> names_;  ///< files to open, sorted
    std::vector<OpenedShard> shards_;
    NamePrefix prefix_;
    ShardSet out_;
};

}  // namespace

Result<ShardSet> open_shards(const fs::path& folder) {
    return ShardOpener(folder).run();
}

}  // namespace terrace
