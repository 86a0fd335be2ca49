// What a Tokenizer consists of. Internal to tokenizer*.cpp.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "engine/text/bpe.h"
#include "engine/text/pre_tokenizer.h"
#include "engine/text/tokenizer.h"
#include "engine/text/tokenizer_file.h"

namespace terrace {

struct Tokenizer::Parts {
    PieceTable pieces;
    BpeModel model;
    PreTokenizer pre_tokenizer;
    TokenizerFile::Normaliser normaliser = TokenizerFile::Normaliser::None;
    AddedTokenMatcher before_normaliser;
    AddedTokenMatcher after_normaliser;
    /// Added tokens, and tokens that are not written in the byte alphabet.
    std::unordered_map<std::string, std::int32_t> ids_by_content;
    std::vector<bool> special;  ///< by id
    std::vector<AddedToken> added;
    std::vector<std::string> warnings;
};

/// Makes the parts from a file that has been read; checks what concerns several of its lists.
class Tokenizer::Builder {
public:
    static Result<Tokenizer> build(TokenizerFile file);

private:
    explicit Builder(TokenizerFile& file) : file_(file) {}

    Status add_vocabulary();
    Status add_added_tokens();
    Status add_merges();
    Status check_bytes();
    [[nodiscard]] std::optional<std::int32_t> find_token(std::string_view text);

    TokenizerFile& file_;
    PieceTable pieces_;
    MergeTable merges_;
    std::unordered_map<std::string, std::int32_t> ids_by_content_;
    std::string buffer_;
};

}  // namespace terrace
