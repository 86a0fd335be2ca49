// From a tokenizer.json that has been read to a Tokenizer: ids, merges and added tokens are checked
// against each other here. See tokenizer_parts.h.
#include <algorithm>
#include <fstream>
#include <new>
#include <system_error>
#include <utility>

#include "engine/text/nfc.h"
#include "engine/text/tokenizer_parts.h"
#include "engine/text/utf8.h"

namespace terrace {
namespace {

constexpr std::uintmax_t kMaxFileBytes = 256U << 20U;

Error corrupt(const std::string& message) {
    return {ErrorCode::Corrupt, message, "", "Download the file again from its publisher"};
}

/// Bytes that occur in no well-formed text, so that a vocabulary can do without them.
bool is_never_in_utf8(int byte) {
    return byte == 0xC0 || byte == 0xC1 || byte >= 0xF5;
}

Result<std::string> read_whole_file(const std::filesystem::path& path) {
    std::error_code error;
    const std::uintmax_t n_bytes = std::filesystem::file_size(path, error);
    if (error) {
        const bool missing = error == std::errc::no_such_file_or_directory;
        return Error{missing ? ErrorCode::NotFound : ErrorCode::Unreadable,
                     "expected a tokenizer file, found: " + error.message(), "",
                     missing ? "Download the file from the publisher of the model"
                             : "Check the file and its permissions"};
    }
    if (n_bytes > kMaxFileBytes) {
        return Error{ErrorCode::TooLarge,
                     "expected a tokenizer file of at most " + std::to_string(kMaxFileBytes) +
                         " bytes, found " + std::to_string(n_bytes),
                     "", "Check that this is the right file"};
    }
    std::string text(n_bytes, '\0');
    std::ifstream stream(path, std::ios::binary);
    if (!stream.read(text.data(), static_cast<std::streamsize>(n_bytes))) {
        return Error{ErrorCode::Unreadable,
                     "expected to read " + std::to_string(n_bytes) + " bytes, found " +
                         std::to_string(stream.gcount()),
                     "", "Check the file and its permissions"};
    }
    return text;
}

}  // namespace

Result<Tokenizer> Tokenizer::from_file(const std::filesystem::path& path) {
    try {
        Result<std::string> text = read_whole_file(path);
        if (!text.ok()) {
            return std::move(text).error().in(path.string());
        }
        return from_json(*text, path.string());
    } catch (const std::bad_alloc&) {
        return Error{ErrorCode::OutOfMemory,
                     "expected room for the tokenizer, found too little memory", path.string(),
                     "Close other programs and try again"};
    }
}

Result<Tokenizer> Tokenizer::from_json(std::string_view json_text, const std::string& origin) {
    Result<TokenizerFile> file = read_tokenizer_file(json_text);
    if (!file.ok()) {
        return std::move(file).error().in(origin);
    }
    Result<Tokenizer> tokenizer = Builder::build(std::move(*file));
    if (!tokenizer.ok()) {
        return std::move(tokenizer).error().in(origin);
    }
    return tokenizer;
}

Result<Tokenizer> Tokenizer::Builder::build(TokenizerFile file) {
    Builder builder(file);
    for (const auto step : {&Builder::add_vocabulary, &Builder::add_added_tokens,
                            &Builder::check_bytes, &Builder::add_merges}) {
        if (Status status = (builder.*step)(); !status.ok()) {
            return std::move(status).error();
        }
    }
    Result<PreTokenizer> pre_tokenizer = PreTokenizer::compile(file.steps);
    if (!pre_tokenizer.ok()) {
        return std::move(pre_tokenizer).error();
    }
    const std::size_t n_ids = builder.pieces_.n_ids();
    std::vector<bool> is_added(n_ids);
    std::vector<bool> special(n_ids);
    AddedTokenMatcher before;
    AddedTokenMatcher after;
    for (const AddedToken& token : file.added) {
        const auto index = static_cast<std::size_t>(token.id);
        is_added[index] = true;
        special[index] = token.special == AddedToken::Flag::Yes;
        if (token.normalized == AddedToken::Flag::No) {
            before.add(token, token.content);
        } else {
            const bool nfc = file.normaliser == TokenizerFile::Normaliser::Nfc;
            after.add(token, nfc ? to_nfc(token.content) : token.content);
        }
    }
    BpeModel model(std::move(builder.merges_), file.options, std::move(is_added));
    model.bind(builder.pieces_);
    return Tokenizer(std::make_unique<Parts>(Parts{
        std::move(builder.pieces_), std::move(model), std::move(*pre_tokenizer), file.normaliser,
        std::move(before), std::move(after), std::move(builder.ids_by_content_), std::move(special),
        std::move(file.added), std::move(file.warnings)}));
}

Status Tokenizer::Builder::add_vocabulary() {
    pieces_.reserve(file_.vocabulary.size() + file_.added.size(), file_.arena.size() / 3);
    for (const TokenizerFile::Token& token : file_.vocabulary) {
        const std::string_view text = file_.view(token.text);
        if (pieces_.is_defined(token.id)) {
            return corrupt("expected one token for each id, found id " + std::to_string(token.id) +
                           " also for " + quoted_excerpt(text));
        }
        const bool in_alphabet = bytes_of_token(text, buffer_);
        if (in_alphabet && !text.empty()) {
            if (pieces_.find(buffer_)) {
                return corrupt("expected each token once in the vocabulary, found " +
                               quoted_excerpt(text) + " twice");
            }
            pieces_.add(token.id, buffer_, PieceTable::Search::Found);
            continue;
        }
        if (!ids_by_content_.emplace(text, token.id).second) {
            return corrupt("expected each token once in the vocabulary, found " +
                           quoted_excerpt(text) + " twice");
        }
        pieces_.add(token.id, buffer_, PieceTable::Search::Hidden);
    }
    return {};
}

std::optional<std::int32_t> Tokenizer::Builder::find_token(std::string_view text) {
    if (bytes_of_token(text, buffer_)) {
        if (const auto found = pieces_.find(buffer_)) {
            return found;
        }
    }
    const auto found = ids_by_content_.find(std::string(text));
    return found == ids_by_content_.end() ? std::nullopt : std::optional(found->second);
}

Status Tokenizer::Builder::add_added_tokens() {
    for (const AddedToken& token : file_.added) {
        const auto known = find_token(token.content);
        if (known && *known != token.id) {
            return corrupt("expected one id for the added token " + quoted_excerpt(token.content) +
                           ", found " + std::to_string(*known) + " and " +
                           std::to_string(token.id));
        }
        if (known) {
            ids_by_content_.emplace(token.content, token.id);
            continue;
        }
        if (pieces_.is_defined(token.id)) {
            return corrupt("expected a free id for the added token " +
                           quoted_excerpt(token.content) + ", found " + std::to_string(token.id) +
                           ", which belongs to another token");
        }
        bytes_of_token(token.content, buffer_);
        pieces_.add(token.id, buffer_, PieceTable::Search::Hidden);
        ids_by_content_.emplace(token.content, token.id);
    }
    return {};
}

Status Tokenizer::Builder::check_bytes() {
    int n_missing = 0;
    for (int byte = 0; byte < 256; ++byte) {
        const char c = static_cast<char>(byte);
        n_missing += pieces_.find({&c, 1}) || is_never_in_utf8(byte) ? 0 : 1;
    }
    if (n_missing == 0) {
        return {};
    }
    if (file_.byte_fallback == TokenizerFile::ByteFallback::Yes) {
        return Error{ErrorCode::Unsupported,
                     "expected a vocabulary with a token for every byte, found byte_fallback and " +
                         std::to_string(n_missing) + " bytes without one",
                     "", "This model cannot be used with this version"};
    }
    if (file_.unknown_token) {
        file_.options.unknown_id = find_token(*file_.unknown_token).value_or(-1);
    }
    if (file_.options.unknown_id < 0) {
        file_.warnings.push_back("the vocabulary has no token for " + std::to_string(n_missing) +
                                 " of the bytes that text can hold; text with them loses them");
    }
    return {};
}

Status Tokenizer::Builder::add_merges() {
    merges_.reserve(file_.merges.size());
    std::string both;
    for (std::size_t rank = 0; rank < file_.merges.size(); ++rank) {
        const std::string_view left = file_.view(file_.merges[rank].left);
        const std::string_view right = file_.view(file_.merges[rank].right);
        const auto left_id = find_token(left);
        const auto right_id = left_id ? find_token(right) : std::nullopt;
        std::optional<std::int32_t> into;
        if (right_id) {
            both.assign(left).append(right);
            into = find_token(both);
        }
        if (!into) {
            const std::string missing(!left_id ? left : !right_id ? right : std::string_view(both));
            return corrupt("expected merges of tokens in the vocabulary, found " +
                           quoted_excerpt(std::string(left) + " " + std::string(right)) + ", but " +
                           quoted_excerpt(missing) + " is no token");
        }
        merges_.set(*left_id, *right_id, {static_cast<std::uint32_t>(rank), *into});
    }
    return {};
}

}  // namespace terrace
