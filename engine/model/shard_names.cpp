#include "engine/model/shard_names.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

#include "engine/model/printable.h"

namespace terrace {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".safetensors";
constexpr std::string_view kIndexExtension = ".safetensors.index.json";
constexpr std::size_t kMaxNames = 100'000;
constexpr const char* kDownload =
    "The download is incomplete: resume it, or download the missing files.";

std::string lower(std::string_view text) {
    std::string out(text);
    std::transform(out.begin(), out.end(), out.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return out;
}

std::optional<int> five_digits(std::string_view text) {
    if (text.size() != 5) {
        return std::nullopt;
    }
    int number = 0;
    for (const char c : text) {
        if (c < '0' || c > '9') {
            return std::nullopt;
        }
        number = number * 10 + (c - '0');
    }
    return number;
}

std::string padded(int number) {
    const std::string digits = std::to_string(number);
    return std::string(5 - std::min<std::size_t>(digits.size(), 5), '0') + digits;
}

/// The parts of "model-00002-of-00003.safetensors".
struct CountedName {
    std::string stem;
    int number = 0;
    int total = 0;
};

std::optional<CountedName> counted(std::string_view name) {
    name.remove_suffix(kExtension.size());
    // STEM - ddddd - of - ddddd
    constexpr std::size_t kTail = 15;
    if (name.size() < kTail || name[name.size() - kTail] != '-' ||
        name.substr(name.size() - 9, 4) != "-of-") {
        return std::nullopt;
    }
    const auto number = five_digits(name.substr(name.size() - kTail + 1, 5));
    const auto total = five_digits(name.substr(name.size() - 5));
    if (!number || !total) {
        return std::nullopt;
    }
    return CountedName{std::string(name.substr(0, name.size() - kTail)), *number, *total};
}

std::string counted_name(const std::string& stem, int number, int total) {
    return stem + "-" + padded(number) + "-of-" + padded(total) + std::string(kExtension);
}

/// "a, b, c and 4 more"
std::string list_of(const std::vector<std::string>& names) {
    std::string text;
    const std::size_t shown = std::min<std::size_t>(names.size(), 5);
    for (std::size_t i = 0; i < shown; ++i) {
        text += (i == 0 ? "" : ", ") + printable(names[i]);
    }
    return names.size() > shown ? text + " and " + std::to_string(names.size() - shown) + " more"
                                : text;
}

Error missing(const FolderListing& listing,
              const std::vector<std::string>& names,
              const std::string& expected) {
    return {ErrorCode::Incomplete,
            expected + " were expected, " + list_of(names) + (names.size() == 1 ? " is" : " are") +
                " missing" + missing_file_hint(listing, names.front()),
            "", kDownload};
}

Status check_counted(const FolderListing& listing) {
    std::map<std::pair<std::string, int>, std::set<int>> sets;
    for (const std::string& name : listing.shards) {
        if (const auto parts = counted(name)) {
            sets[{parts->stem, parts->total}].insert(parts->number);
        }
    }
    for (const auto& [set, numbers] : sets) {
        std::vector<std::string> gone;
        for (int number = 1; number <= set.second; ++number) {
            if (numbers.count(number) == 0) {
                gone.push_back(counted_name(set.first, number, set.second));
            }
        }
        if (!gone.empty()) {
            return missing(listing, gone,
                           std::to_string(set.second) + " numbered files (" +
                               std::to_string(numbers.size()) + " are there)");
        }
    }
    if (sets.size() > 1) {
        const auto name = [](const auto& set) {
            return counted_name(set.first.first, *set.second.begin(), set.first.second);
        };
        return Error{ErrorCode::Corrupt,
                     "one set of numbered files was expected, two were found: " +
                         printable(name(*sets.begin())) + " and " +
                         printable(name(*std::next(sets.begin()))) + " belong to different ones",
                     "", "Keep one set in this folder, or add the index file that chooses."};
    }
    return {};
}

/// `out-NNNNN` counts from zero without gaps. The MTP and indexer sets may have any numbers: one
/// way of converting keeps the numbers of the source files.
Status check_container(const FolderListing& listing) {
    constexpr std::string_view kStem = "out-";
    std::set<int> numbers;
    bool other_sets = false;
    for (const std::string& name : listing.shards) {
        const std::string_view bare =
            std::string_view(name).substr(0, name.size() - kExtension.size());
        if (bare.substr(0, kStem.size()) != kStem) {
            continue;
        }
        if (const auto number = five_digits(bare.substr(kStem.size()))) {
            numbers.insert(*number);
        }
        other_sets =
            other_sets || bare.substr(0, 8) == "out-mtp-" || bare.substr(0, 8) == "out-idx-";
    }
    std::vector<std::string> gone;
    const int last = numbers.empty() ? (other_sets ? 0 : -1) : *numbers.rbegin();
    for (int number = 0; number <= last; ++number) {
        if (numbers.count(number) == 0) {
            gone.push_back("out-" + padded(number) + std::string(kExtension));
        }
    }
    if (gone.empty()) {
        return {};
    }
    return missing(listing, gone,
                   "files from out-00000 to out-" + padded(last) + " (" +
                       std::to_string(numbers.size()) +
                       " are there, MTP and indexer files not "
                       "counted)");
}

}  // namespace

Result<FolderListing> list_folder(const fs::path& folder) {
    FolderListing listing;
    std::error_code error;
    std::size_t n_names = 0;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
        const std::string name = it->path().filename().string();
        if (++n_names > kMaxNames) {
            return Error{ErrorCode::TooLarge,
                         "at most " + std::to_string(kMaxNames) + " files were expected", "",
                         "Put the model into a folder of its own."};
        }
        const bool hidden = name[0] == '.';  // also the ._ copies that some systems leave
        const bool is_shard =
            !hidden && name.size() > kExtension.size() &&
            std::string_view(name).substr(name.size() - kExtension.size()) == kExtension;
        if (is_shard) {
            listing.shards.push_back(name);
            continue;
        }
        const bool is_index =
            !hidden && name.size() >= kIndexExtension.size() &&
            std::string_view(name).substr(name.size() - kIndexExtension.size()) == kIndexExtension;
        if (is_index && (listing.index.empty() || name == "model.safetensors.index.json")) {
            listing.index = name;
        }
        listing.others.insert(name);
    }
    if (error) {
        return Error{ErrorCode::Unreadable, "the folder cannot be read: " + error.message(), "",
                     "Check the permissions of the folder."};
    }
    std::sort(listing.shards.begin(), listing.shards.end());
    return listing;
}

std::string missing_file_hint(const FolderListing& listing, const std::string& name) {
    for (const char* suffix :
         {".incomplete", ".part", ".aria2", ".crdownload", ".tmp", ".download"}) {
        if (listing.has(name + suffix)) {
            return " (" + printable(name) + suffix + " is there: still being downloaded)";
        }
    }
    for (const std::string& shard : listing.shards) {
        if (shard != name && lower(shard) == lower(name)) {
            return " (" + printable(shard) + " differs in case only)";
        }
    }
    return "";
}

Status check_sequences(const FolderListing& listing) {
    if (Status set = check_counted(listing); !set) {
        return set;
    }
    return check_container(listing);
}

NamePrefix NamePrefix::detect(const std::vector<std::string_view>& names) {
    NamePrefix prefix;
    for (const std::string_view anchor : {std::string_view("embed_tokens.weight"),
                                          std::string_view("layers.0.input_layernorm.weight")}) {
        std::optional<std::string_view> shortest;
        for (const std::string_view name : names) {
            if (name.size() < anchor.size() || name.substr(name.size() - anchor.size()) != anchor) {
                continue;
            }
            const std::string_view front = name.substr(0, name.size() - anchor.size());
            // An MTP layer may repeat the embedding under its own number.
            const bool in_layer = front.find("layers.") != std::string_view::npos;
            if (!in_layer && (!shortest || front.size() < shortest->size())) {
                shortest = front;
            }
        }
        if (shortest) {
            prefix.found_ = std::string(*shortest);
            return prefix;
        }
    }
    return prefix;
}

std::string NamePrefix::canonical(const std::string& name) const {
    constexpr std::string_view kPlain = "model.";
    if (found_ == kPlain) {
        return name;
    }
    if (found_.empty()) {
        return name.rfind("lm_head.", 0) == 0 ? name : std::string(kPlain) + name;
    }
    if (name.rfind(found_, 0) == 0) {
        return std::string(kPlain) + name.substr(found_.size());
    }
    const std::size_t root =
        found_.size() > kPlain.size() && found_.substr(found_.size() - kPlain.size()) == kPlain
            ? found_.size() - kPlain.size()
            : 0;
    if (root > 0 && name.rfind(found_.substr(0, root) + "lm_head.", 0) == 0) {
        return name.substr(root);
    }
    return name;
}

}  // namespace terrace
