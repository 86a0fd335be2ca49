// See tokenizer_file_sax.h.
#include "engine/text/tokenizer_file_sax.h"

#include <algorithm>
#include <utility>

#include "engine/text/utf8.h"

namespace terrace {
namespace {

constexpr std::size_t kMaxDepth = 64;
constexpr std::size_t kMaxNodes = 2'000'000;

}  // namespace

bool TokenizerFileSax::fail(ErrorCode code, const std::string& message) {
    if (!error_) {
        error_ = Error{code, message, "", "Download the file again from its publisher"};
    }
    return false;
}

bool TokenizerFileSax::is_in_model(std::string_view key) const {
    return open_.size() == 2 && keys_[0] == "model" && keys_[1] == key && open_[1]->is_object();
}

nlohmann::json* TokenizerFileSax::attach(nlohmann::json value) {
    if (open_.empty()) {
        tree_ = std::move(value);
        return &tree_;
    }
    nlohmann::json& parent = *open_.back();
    if (parent.is_array()) {
        parent.push_back(std::move(value));
        return &parent.back();
    }
    nlohmann::json& member = parent[keys_.back()];
    member = std::move(value);
    return &member;
}

bool TokenizerFileSax::scalar(nlohmann::json value) {
    switch (place_) {
        case Place::Tree:
            if (++n_nodes_ > kMaxNodes) {
                return fail(ErrorCode::TooLarge, "expected at most " + std::to_string(kMaxNodes) +
                                                     " values beside the vocabulary, found more");
            }
            attach(std::move(value));
            return true;
        case Place::Vocabulary:
            return fail(ErrorCode::Corrupt,
                        "expected an id from 0 to " + std::to_string(kLargestTokenId) +
                            " for the token " + quoted_excerpt(token_) + ", found " +
                            value.dump(-1, ' ', true).substr(0, 60));
        case Place::Merges:
        case Place::MergePair:
            return fail(ErrorCode::Corrupt, "expected merges as pairs of tokens, found " +
                                                value.dump(-1, ' ', true).substr(0, 60) +
                                                " as number " +
                                                std::to_string(file_.merges.size()));
        case Place::Skipped:
            return true;
    }
    return true;
}

bool TokenizerFileSax::null() {
    return scalar(nullptr);
}

bool TokenizerFileSax::boolean(bool value) {
    return scalar(value);
}

bool TokenizerFileSax::number_integer(number_integer_t value) {
    return scalar(value);
}

bool TokenizerFileSax::number_float(number_float_t value, const string_t&) {
    return scalar(value);
}

bool TokenizerFileSax::binary(binary_t&) {
    return fail(ErrorCode::Corrupt, "expected JSON text, found binary data");
}

bool TokenizerFileSax::number_unsigned(number_unsigned_t value) {
    if (place_ != Place::Vocabulary || value > static_cast<std::uint64_t>(kLargestTokenId)) {
        return scalar(value);
    }
    file_.vocabulary.push_back({store(token_), static_cast<std::int32_t>(value)});
    return true;
}

bool TokenizerFileSax::string(string_t& value) {
    if (place_ == Place::Merges) {
        return store_merge_line(value);
    }
    if (place_ == Place::MergePair) {
        pair_parts_.push_back(std::move(value));
        if (pair_parts_.size() > 2) {
            return fail(ErrorCode::Corrupt,
                        "expected merges of two tokens, found more than two as number " +
                            std::to_string(file_.merges.size()));
        }
        return true;
    }
    return scalar(std::move(value));
}

TokenizerFile::Text TokenizerFileSax::store(std::string_view text) {
    const TokenizerFile::Text out{static_cast<std::uint32_t>(file_.arena.size()),
                                  static_cast<std::uint32_t>(text.size())};
    file_.arena.append(text);
    return out;
}

bool TokenizerFileSax::store_merge(std::string_view left, std::string_view right) {
    const TokenizerFile::Text left_text = store(left);
    file_.merges.push_back({left_text, store(right)});
    return true;
}

bool TokenizerFileSax::store_merge_line(std::string_view line) {
    if (line.starts_with("#version")) {
        return true;  // older files carry over the first line of merges.txt
    }
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
        return fail(ErrorCode::Corrupt,
                    "expected a merge as two tokens with one space between them, found " +
                        quoted_excerpt(line));
    }
    return store_merge(line.substr(0, space), line.substr(space + 1));
}

bool TokenizerFileSax::open(nlohmann::json container) {
    if (open_.size() == kMaxDepth) {
        return fail(ErrorCode::Corrupt, "expected at most " + std::to_string(kMaxDepth) +
                                            " nested brackets, found more");
    }
    if (++n_nodes_ > kMaxNodes) {
        return fail(ErrorCode::TooLarge, "expected fewer values beside the vocabulary");
    }
    open_.push_back(attach(std::move(container)));
    keys_.emplace_back();
    return true;
}

bool TokenizerFileSax::start_object(std::size_t) {
    if (place_ == Place::Tree && is_in_model("vocab")) {
        if (std::exchange(has_vocabulary_, true)) {
            return fail(ErrorCode::Corrupt, "expected one \"vocab\" in the model, found two");
        }
        place_ = Place::Vocabulary;
        return true;
    }
    if (place_ == Place::Skipped) {
        ++n_skipped_open_;
        return true;
    }
    return place_ == Place::Tree ? open(nlohmann::json::object())
                                 : scalar(nlohmann::json::object());
}

bool TokenizerFileSax::start_array(std::size_t) {
    if (place_ == Place::Tree && is_in_model("merges")) {
        if (std::exchange(has_merges_, true)) {
            return fail(ErrorCode::Corrupt, "expected one \"merges\" in the model, found two");
        }
        place_ = Place::Merges;
        return true;
    }
    if (place_ == Place::Tree && is_in_model("vocab")) {
        place_ = Place::Skipped;  // a Unigram model lists its vocabulary; refused by type later
        n_skipped_open_ = 1;
        return true;
    }
    if (place_ == Place::Merges) {
        place_ = Place::MergePair;
        pair_parts_.clear();
        return true;
    }
    if (place_ == Place::Skipped) {
        ++n_skipped_open_;
        return true;
    }
    return place_ == Place::Tree ? open(nlohmann::json::array()) : scalar(nlohmann::json::array());
}

bool TokenizerFileSax::key(string_t& value) {
    if (place_ == Place::Vocabulary) {
        token_ = std::move(value);
    } else if (place_ == Place::Tree) {
        keys_.back() = std::move(value);
    }
    return true;
}

bool TokenizerFileSax::close() {
    if (place_ == Place::Skipped) {
        if (--n_skipped_open_ == 0) {
            place_ = Place::Tree;
        }
        return true;
    }
    open_.pop_back();
    keys_.pop_back();
    return true;
}

bool TokenizerFileSax::end_object() {
    if (place_ == Place::Vocabulary) {
        place_ = Place::Tree;
        return true;
    }
    return close();
}

bool TokenizerFileSax::end_array() {
    if (place_ == Place::MergePair) {
        place_ = Place::Merges;
        if (pair_parts_.size() != 2) {
            return fail(ErrorCode::Corrupt, "expected merges of two tokens, found one of " +
                                                std::to_string(pair_parts_.size()) + " as number " +
                                                std::to_string(file_.merges.size()));
        }
        return store_merge(pair_parts_[0], pair_parts_[1]);
    }
    if (place_ == Place::Merges) {
        place_ = Place::Tree;
        return true;
    }
    return close();
}

bool TokenizerFileSax::parse_error(std::size_t position,
                                   const std::string&,
                                   const nlohmann::json::exception& exception) {
    std::string what = exception.what();
    const std::size_t tag = what.find("] ");
    what = tag == std::string::npos ? what : what.substr(tag + 2);
    return fail(ErrorCode::Corrupt, "expected JSON, found something else at byte " +
                                        std::to_string(position) + ": " + what);
}

}  // namespace terrace
