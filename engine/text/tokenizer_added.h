// Finds added tokens ("<|user|>", "<think>") in text, before and after the normaliser, by the rules
// of the published library: leftmost, then longest, with single_word, lstrip and rstrip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace terrace {

/// How text is read (see Tokenizer).
enum class AddedTokens {
    Special,  ///< all added tokens are recognised
    Plain,    ///< only those that are not marked special
    Raw,      ///< none
};

/// A stretch of bytes.
struct ByteSpan {
    std::size_t begin = 0;
    std::size_t end = 0;
};

/// An added token as the file states it.
struct AddedToken {
    enum class Flag : std::uint8_t { No, Yes };
    std::int32_t id = -1;
    std::string content;
    Flag special = Flag::No;
    Flag normalized = Flag::No;
    Flag single_word = Flag::No;
    Flag lstrip = Flag::No;
    Flag rstrip = Flag::No;
};

/// A piece of text that is one added token (`id` >= 0) or has none in it (-1).
struct AddedPiece {
    ByteSpan span;
    std::int32_t id = -1;
};

/// A set of added tokens, searchable. Owned by a Tokenizer, immutable after construction,
/// thread-safe, cannot fail.
class AddedTokenMatcher {
public:
    /// `spelling` is what is searched for: the content, normalised or not.
    void add(const AddedToken& token, std::string_view spelling);

    /// Cuts `text` at the tokens found. A token that overlaps one of `raw_spans` (sorted, apart) is
    /// not seen at all; another one, shorter or further on, may be seen in its stead.
    [[nodiscard]] std::vector<AddedPiece> split(std::string_view text,
                                                AddedTokens mode,
                                                std::span<const ByteSpan> raw_spans) const;

private:
    static constexpr std::uint32_t kNone = ~std::uint32_t{0};

    struct Node {
        std::uint32_t first_child = kNone;
        std::uint32_t sibling = kNone;
        std::uint32_t token = kNone;
        char byte = 0;
    };

    struct Match {
        std::size_t end = 0;
        std::uint32_t token = kNone;
    };

    [[nodiscard]] std::uint32_t child(std::uint32_t node, char byte) const;
    [[nodiscard]] Match longest_at(std::string_view text,
                                   std::size_t at,
                                   std::span<const ByteSpan> raw_spans) const;
    [[nodiscard]] bool accepts(const AddedToken& token,
                               std::string_view text,
                               ByteSpan span,
                               AddedTokens mode) const;

    std::vector<AddedToken> tokens_;
    std::vector<Node> nodes_{1};
};

}  // namespace terrace
