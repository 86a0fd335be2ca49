// Feeds the tokenizer a whole tokenizer.json, a split pattern, or a text with raw spans, and checks
// what must hold for every tokenizer that loads.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer.h"
#include "engine/text/tokenizer_stream.h"
#include "engine/text/utf8.h"

namespace {

using terrace::AddedTokens;
using terrace::ByteSpan;
using terrace::Tokenizer;

void require(bool holds) {
    if (!holds) {
        std::abort();
    }
}

void check_ids(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
    terrace::StreamDecoder stream(tokenizer);
    std::string streamed;
    for (const std::int32_t id : ids) {
        require(tokenizer.is_defined(id));
        const std::string piece = stream.push(id);
        require(terrace::is_valid_utf8(piece));
        streamed += piece;
    }
    streamed += stream.finish();
    require(streamed == tokenizer.decode(ids));
}

/// The first bytes of the text say where its raw spans lie.
void check_text(const Tokenizer& tokenizer, std::string_view text) {
    std::vector<ByteSpan> spans;
    for (std::size_t i = 0; i + 1 < std::min<std::size_t>(text.size(), 6); i += 2) {
        spans.push_back(
            {static_cast<unsigned char>(text[i]), static_cast<unsigned char>(text[i + 1])});
    }
    check_ids(tokenizer, tokenizer.encode_prompt(text, spans));
    const ByteSpan all{0, text.size()};
    const auto raw = tokenizer.encode(text, AddedTokens::Raw);
    check_ids(tokenizer, raw);
    require(tokenizer.encode_prompt(text, {&all, 1}) == raw);
    check_ids(tokenizer, tokenizer.encode(text, AddedTokens::Plain));
    const auto special = tokenizer.encode(text, AddedTokens::Special);
    check_ids(tokenizer, special);
    require(tokenizer.encode_prompt(text, {}) == special);
    for (const std::size_t n_bytes : tokenizer.pre_token_lengths(text)) {
        require(n_bytes > 0);
    }
}

/// A JSON string with everything outside ASCII, and all that could end it, as an escape.
std::string json_string(std::string_view text) {
    std::string out = "\"";
    constexpr std::string_view kDigits = "0123456789abcdef";
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte >= 0x20 && byte < 0x7F && c != '"' && c != '\\') {
            out.push_back(c);
        } else {
            out += "\\u00";
            out.push_back(kDigits[byte / 16]);
            out.push_back(kDigits[byte % 16]);
        }
    }
    return out + "\"";
}

std::string small_file(std::string_view pattern) {
    std::string vocab;
    int id = 0;
    for (char c = '!'; c <= '~'; ++c, ++id) {
        vocab += json_string({&c, 1}) + ":" + std::to_string(id) + ",";
    }
    vocab += R"("ab":94,"abc":95,"<e":96,"\u00c3":97,"\u00a9":98,"\u00c3\u00a9":99)";
    return R"({"added_tokens":[{"id":100,"content":"<e>","special":true,"normalized":false},)"
           R"({"id":101,"content":"<\u00e9>","normalized":true,"lstrip":true,"rstrip":true},)"
           R"({"id":102,"content":"word","normalized":false,"single_word":true}],)"
           R"("normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"Sequence","pretokenizers":[)"
           R"({"type":"Split","behavior":"MergedWithNext","pattern":{"Regex":)" +
           json_string(pattern) +
           R"(}},{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]},)"
           R"("decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{)" +
           vocab + R"(},"merges":["a b",["ab","c"],["<","e"],["\u00c3","\u00a9"]]}})";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) {
        return 0;
    }
    // Kind, then two texts with a zero byte between them.
    const std::string_view all(reinterpret_cast<const char*>(data), size);
    const std::string_view rest = all.substr(1);
    const std::size_t zero = std::min(rest.find('\0'), rest.size());
    const std::string_view first = rest.substr(0, zero);
    const std::string_view text = rest.substr(std::min(zero + 1, rest.size()));
    if (all[0] == 't') {
        static const terrace::Result<Tokenizer> small =
            Tokenizer::from_json(small_file(R"(\s+|\p{L}+|[^\s\p{L}])"), "tokenizer.json");
        require(small.ok());
        check_text(*small, rest);
        return 0;
    }
    const std::string file = all[0] == 'p' ? small_file(first) : std::string(first);
    const terrace::Result<Tokenizer> loaded = Tokenizer::from_json(file, "tokenizer.json");
    if (!loaded.ok()) {
        require(!loaded.error().message.empty());
        return 0;
    }
    check_text(*loaded, text);
    return 0;
}
