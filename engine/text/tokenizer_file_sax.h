// First step of reading a tokenizer.json: the long lists (vocabulary, merges) go straight into
// compact arrays while the text is parsed, everything else into a small tree. A 28 MB file would
// cost several hundred megabytes as a tree. Internal to tokenizer_file.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer_file.h"

namespace terrace {

/// Receives the events of the JSON parser. Lives for one parse; error() says what stopped it.
class TokenizerFileSax : public nlohmann::json_sax<nlohmann::json> {
public:
    explicit TokenizerFileSax(TokenizerFile& file) : file_(file) {}

    /// The tree without model.vocab and model.merges.
    [[nodiscard]] const nlohmann::json& tree() const { return tree_; }

    [[nodiscard]] bool has_vocabulary() const { return has_vocabulary_; }

    [[nodiscard]] bool has_merges() const { return has_merges_; }

    [[nodiscard]] const std::optional<Error>& error() const { return error_; }

    bool null() override;
    bool boolean(bool value) override;
    bool number_integer(number_integer_t value) override;
    bool number_unsigned(number_unsigned_t value) override;
    bool number_float(number_float_t value, const string_t& text) override;
    bool string(string_t& value) override;
    bool binary(binary_t& value) override;
    bool start_object(std::size_t n_elements) override;
    bool key(string_t& value) override;
    bool end_object() override;
    bool start_array(std::size_t n_elements) override;
    bool end_array() override;
    bool parse_error(std::size_t position,
                     const std::string& last_token,
                     const nlohmann::json::exception& exception) override;

private:
    enum class Place { Tree, Vocabulary, Merges, MergePair, Skipped };

    bool fail(ErrorCode code, const std::string& message);
    bool scalar(nlohmann::json value);
    bool is_in_model(std::string_view key) const;
    bool open(nlohmann::json container);
    bool close();
    nlohmann::json* attach(nlohmann::json value);
    TokenizerFile::Text store(std::string_view text);
    bool store_merge(std::string_view left, std::string_view right);
    bool store_merge_line(std::string_view line);

    TokenizerFile& file_;
    nlohmann::json tree_;
    std::vector<nlohmann::json*> open_;
    std::vector<std::string> keys_;  ///< last key of each open container
    std::size_t n_nodes_ = 0;
    std::size_t n_skipped_open_ = 0;
    Place place_ = Place::Tree;
    bool has_vocabulary_ = false;
    bool has_merges_ = false;
    std::string token_;                    ///< last key of the vocabulary
    std::vector<std::string> pair_parts_;  ///< of the merge being read
    std::optional<Error> error_;
};

}  // namespace terrace
