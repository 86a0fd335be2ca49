// The tokenizer of a model: text to ids and back, exactly as the Hugging Face tokenizers library
// does it for byte-level BPE files. First and last station on the way of a token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/device/result.h"
#include "engine/text/tokenizer_added.h"

namespace terrace {

/// A tokenizer.json, ready to use. Made once per model and owned by it; move-only; immutable after
/// construction, so every const function is thread-safe. Failure: only loading can fail (NotFound,
/// Unreadable, Corrupt, Unsupported, TooLarge); encoding and decoding cannot.
///
/// A text can be read in three ways, and every function says which one it takes: see AddedTokens.
/// Text that a person or a tool wrote is read Raw, or passed to encode_prompt as a raw span, so
/// that nothing in it can end a turn. Beyond the published library, a special token is never
/// produced from ordinary text by "ignore_merges" either.
///
/// Input may hold bytes that are not UTF-8: each maximal ill-formed part is read as U+FFFD. To tell
/// the user, count them with to_valid_utf8 (utf8.h).
class Tokenizer {
public:
    static Result<Tokenizer> from_file(const std::filesystem::path& path);
    /// `origin` names the text in messages ("tokenizer.json").
    static Result<Tokenizer> from_json(std::string_view json_text, const std::string& origin);

    Tokenizer(Tokenizer&&) noexcept;
    Tokenizer& operator=(Tokenizer&&) noexcept;
    ~Tokenizer();

    [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, AddedTokens mode) const;

    /// Ids of a rendered prompt: added tokens are recognised, except where one would overlap a raw
    /// span. The text is not cut at the borders of the spans, so its neighbours merge as usual.
    ///   raw_spans  byte offsets into `text`, in any order; parts beyond its end are ignored
    [[nodiscard]] std::vector<std::int32_t> encode_prompt(
        std::string_view text, std::span<const ByteSpan> raw_spans) const;

    /// Text of ids, nothing skipped; bytes that form no character become U+FFFD. Undefined ids give
    /// nothing.
    [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const;

    /// The bytes one id stands for; they may be part of a character. Valid as long as the
    /// tokenizer; empty for an undefined id.
    [[nodiscard]] std::string_view piece_bytes(std::int32_t id) const;

    /// Byte lengths of the pieces into which a text without added tokens is cut before merging.
    [[nodiscard]] std::vector<std::size_t> pre_token_lengths(std::string_view text) const;

    /// Largest id + 1. Some ids below may be undefined, and a model may have more rows than this.
    [[nodiscard]] std::size_t n_ids() const;
    [[nodiscard]] bool is_defined(std::int32_t id) const;
    [[nodiscard]] bool is_special(std::int32_t id) const;
    /// Id of a token as the file spells it ("<|user|>", "Ġthe").
    [[nodiscard]] std::optional<std::int32_t> id_of(std::string_view token_content) const;

    /// As the file lists them, those without text left out.
    [[nodiscard]] std::span<const AddedToken> added_tokens() const;
    /// What a user should know about this file, in sentences; usually none.
    [[nodiscard]] std::span<const std::string> warnings() const;

private:
    struct Parts;
    class Builder;
    class Encoder;

    explicit Tokenizer(std::unique_ptr<Parts> parts);

    std::unique_ptr<Parts> parts_;
};

}  // namespace terrace
