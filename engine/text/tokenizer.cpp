// See tokenizer.h.
#include "engine/text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "engine/text/nfc.h"
#include "engine/text/tokenizer_parts.h"
#include "engine/text/utf8.h"

namespace terrace {
namespace {

/// Sorted, apart, inside the text and not empty.
std::vector<ByteSpan> tidy(std::span<const ByteSpan> spans, std::size_t n_bytes) {
    std::vector<ByteSpan> sorted(spans.begin(), spans.end());
    std::sort(sorted.begin(), sorted.end(),
              [](const ByteSpan& a, const ByteSpan& b) { return a.begin < b.begin; });
    std::vector<ByteSpan> out;
    for (ByteSpan span : sorted) {
        span.end = std::min(span.end, n_bytes);
        if (span.begin >= span.end) {
            continue;
        }
        if (!out.empty() && span.begin <= out.back().end) {
            out.back().end = std::max(out.back().end, span.end);
        } else {
            out.push_back(span);
        }
    }
    return out;
}

/// The spans that lie in [within.begin, within.end), counted from its start.
std::vector<ByteSpan> cut_out(std::span<const ByteSpan> spans, ByteSpan within) {
    std::vector<ByteSpan> out;
    const auto first =
        std::lower_bound(spans.begin(), spans.end(), within.begin,
                         [](const ByteSpan& span, std::size_t begin) { return span.end <= begin; });
    for (auto at = first; at != spans.end() && at->begin < within.end; ++at) {
        out.push_back({std::max(at->begin, within.begin) - within.begin,
                       std::min(at->end, within.end) - within.begin});
    }
    return out;
}

/// Where an offset into the given bytes lies after ill-formed parts were replaced; inside a
/// replaced part, in front of the replacement.
std::size_t offset_after_repair(const std::vector<Utf8Repair>& repairs, std::size_t at) {
    constexpr std::size_t kReplacementBytes = 3;
    const auto behind = std::upper_bound(
        repairs.begin(), repairs.end(), at,
        [](std::size_t value, const Utf8Repair& repair) { return value < repair.in_begin; });
    if (behind == repairs.begin()) {
        return at;
    }
    const Utf8Repair& repair = *std::prev(behind);
    return at < repair.in_end ? repair.out_begin
                              : repair.out_begin + kReplacementBytes + (at - repair.in_end);
}

/// Where spans of a text lie in its normal form; whole blocks where the form differs.
std::vector<ByteSpan> spans_after_nfc(const std::vector<ByteSpan>& spans,
                                      const std::vector<NfcBlock>& blocks,
                                      std::size_t n_out) {
    std::vector<ByteSpan> out;
    for (const ByteSpan& span : spans) {
        auto block =
            std::upper_bound(blocks.begin(), blocks.end(), span.begin,
                             [](std::size_t value, const NfcBlock& b) { return value < b.in_end; });
        for (; block != blocks.end() && block->in_begin < span.end; ++block) {
            const auto next = std::next(block);
            const std::size_t out_end = next == blocks.end() ? n_out : next->out_begin;
            if (block->changed) {
                out.push_back({block->out_begin, out_end});
            } else {
                out.push_back(
                    {block->out_begin + std::max(span.begin, block->in_begin) - block->in_begin,
                     block->out_begin + std::min(span.end, block->in_end) - block->in_begin});
            }
        }
    }
    return tidy(out, n_out);
}

/// Characters below U+0300 are their own normal form, whatever stands beside them.
bool is_plainly_nfc(std::string_view valid) {
    return std::none_of(valid.begin(), valid.end(),
                        [](char c) { return static_cast<unsigned char>(c) >= 0xCC; });
}

}  // namespace

/// One encode call: the buffers it needs and the ids it has so far.
class Tokenizer::Encoder {
public:
    explicit Encoder(const Parts& parts) : parts_(parts) {}

    void run(std::string_view valid, AddedTokens mode, std::span<const ByteSpan> raw_spans) {
        for (const AddedPiece& piece : parts_.before_normaliser.split(valid, mode, raw_spans)) {
            if (piece.id >= 0) {
                ids_.push_back(piece.id);
                continue;
            }
            const std::string_view text =
                valid.substr(piece.span.begin, piece.span.end - piece.span.begin);
            normalised_piece(text, mode, cut_out(raw_spans, piece.span));
        }
    }

    std::vector<std::int32_t> take() { return std::move(ids_); }

private:
    void normalised_piece(std::string_view text, AddedTokens mode, std::vector<ByteSpan> raw) {
        std::string normal;
        if (parts_.normaliser == TokenizerFile::Normaliser::Nfc && !is_plainly_nfc(text)) {
            std::vector<NfcBlock> blocks;
            normal = to_nfc(text, raw.empty() ? nullptr : &blocks);
            raw = spans_after_nfc(raw, blocks, normal.size());
            text = normal;
        }
        for (const AddedPiece& piece : parts_.after_normaliser.split(text, mode, raw)) {
            if (piece.id >= 0) {
                ids_.push_back(piece.id);
            } else {
                ordinary(text.substr(piece.span.begin, piece.span.end - piece.span.begin));
            }
        }
    }

    void ordinary(std::string_view text) {
        PreTokens tokens;
        parts_.pre_tokenizer.split(text, search_, tokens);
        for (const std::string_view piece : tokens.pieces) {
            parts_.model.encode(piece, parts_.pieces, scratch_, ids_);
        }
    }

    const Parts& parts_;
    PatternSearch search_;
    BpeScratch scratch_;
    std::vector<std::int32_t> ids_;
};

Tokenizer::Tokenizer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, AddedTokens mode) const {
    Encoder encoder(*parts_);
    if (is_valid_utf8(text)) {
        encoder.run(text, mode, {});
    } else {
        encoder.run(to_valid_utf8(text), mode, {});
    }
    return encoder.take();
}

std::vector<std::int32_t> Tokenizer::encode_prompt(std::string_view text,
                                                   std::span<const ByteSpan> raw_spans) const {
    Encoder encoder(*parts_);
    std::vector<ByteSpan> spans = tidy(raw_spans, text.size());
    if (is_valid_utf8(text)) {
        encoder.run(text, AddedTokens::Special, spans);
        return encoder.take();
    }
    std::vector<Utf8Repair> repairs;
    const std::string valid = repair_utf8(text, repairs);
    for (ByteSpan& span : spans) {
        span.begin = offset_after_repair(repairs, span.begin);
        span.end = offset_after_repair(repairs, span.end - 1) + 1;
    }
    encoder.run(valid, AddedTokens::Special, tidy(spans, valid.size()));
    return encoder.take();
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
    std::string bytes;
    for (const std::int32_t id : ids) {
        bytes.append(parts_->pieces.bytes(id));
    }
    return to_valid_utf8(bytes);
}

std::string_view Tokenizer::piece_bytes(std::int32_t id) const {
    return parts_->pieces.bytes(id);
}

std::vector<std::size_t> Tokenizer::pre_token_lengths(std::string_view text) const {
    std::string valid = to_valid_utf8(text);
    if (parts_->normaliser == TokenizerFile::Normaliser::Nfc) {
        valid = to_nfc(valid);
    }
    PatternSearch search;
    PreTokens tokens;
    parts_->pre_tokenizer.split(valid, search, tokens);
    std::vector<std::size_t> out;
    for (const std::string_view piece : tokens.pieces) {
        out.push_back(piece.size());
    }
    return out;
}

std::size_t Tokenizer::n_ids() const {
    return parts_->pieces.n_ids();
}

bool Tokenizer::is_defined(std::int32_t id) const {
    return parts_->pieces.is_defined(id);
}

bool Tokenizer::is_special(std::int32_t id) const {
    return is_defined(id) && parts_->special[static_cast<std::size_t>(id)];
}

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token_content) const {
    const auto by_content = parts_->ids_by_content.find(std::string(token_content));
    if (by_content != parts_->ids_by_content.end()) {
        return by_content->second;
    }
    std::string bytes;
    if (!is_valid_utf8(token_content) || !bytes_of_token(token_content, bytes)) {
        return std::nullopt;
    }
    return parts_->pieces.find(bytes);
}

std::span<const AddedToken> Tokenizer::added_tokens() const {
    return parts_->added;
}

std::span<const std::string> Tokenizer::warnings() const {
    return parts_->warnings;
}

}  // namespace terrace
