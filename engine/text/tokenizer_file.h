// What stands in a tokenizer.json, read and checked as far as its form goes; Tokenizer makes itself
// from it. Only byte-level BPE is let through.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/device/result.h"
#include "engine/text/bpe.h"
#include "engine/text/pre_tokenizer.h"
#include "engine/text/tokenizer_added.h"

namespace terrace {

/// Largest id a file may use. The largest published vocabulary has 262,144 entries; arrays are as
/// long as the largest id, so a made-up id must not decide how much memory is taken.
constexpr std::int64_t kLargestTokenId = (std::int64_t{1} << 22) - 1;

/// Longest added token: searching takes time in proportion to it.
constexpr std::size_t kLongestAddedToken = 1024;

/// The parts of a tokenizer.json that matter for ids and text. Texts lie in one arena, as the file
/// spells them. Value type, thrown away after loading.
struct TokenizerFile {
    struct Text {
        std::uint32_t begin = 0;
        std::uint32_t n_bytes = 0;
    };

    struct Token {
        Text text;
        std::int32_t id = -1;
    };

    struct Merge {
        Text left;
        Text right;
    };

    enum class Normaliser { None, Nfc };
    enum class ByteFallback { No, Yes };

    [[nodiscard]] std::string_view view(Text text) const {
        return std::string_view(arena).substr(text.begin, text.n_bytes);
    }

    std::string arena;
    std::vector<Token> vocabulary;
    std::vector<Merge> merges;
    std::vector<AddedToken> added;
    std::vector<PreTokenizerStep> steps;
    Normaliser normaliser = Normaliser::None;
    ByteFallback byte_fallback = ByteFallback::No;
    BpeOptions options;  ///< unknown_id not yet set
    std::optional<std::string> unknown_token;
    std::vector<std::string> warnings;
};

/// Reads the text of a tokenizer.json. Errors: Corrupt if it is no such file, Unsupported if it is
/// of a kind that Terrace does not know (what was found is named), TooLarge.
Result<TokenizerFile> read_tokenizer_file(std::string_view json_text);

}  // namespace terrace
