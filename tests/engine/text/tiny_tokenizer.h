// A tokenizer small enough to know by heart: the 256 bytes (id = byte), a few merges from id 256
// on, a few added tokens from id 300 on. Tests change its JSON before loading it.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/text/utf8.h"

namespace terrace::tiny {

/// The byte alphabet, made by its published rule and not by ours.
inline std::string letter_of_byte(int byte) {
    std::vector<int> printable;
    for (int b = 0; b < 256; ++b) {
        if ((b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF)) {
            printable.push_back(b);
        }
    }
    int n_moved = 0;
    for (int b = 0; b <= byte; ++b) {
        const bool stays = std::find(printable.begin(), printable.end(), b) != printable.end();
        if (b == byte) {
            std::string out;
            append_utf8(static_cast<char32_t>(stays ? b : 256 + n_moved), out);
            return out;
        }
        n_moved += stays ? 0 : 1;
    }
    return {};
}

inline nlohmann::json added(int id, const std::string& content, bool special) {
    return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
            {"rstrip", false}, {"normalized", false}, {"special", special}};
}

inline nlohmann::json split(const nlohmann::json& pattern, const std::string& behavior) {
    return {{"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}, {"invert", false}};
}

inline nlohmann::json byte_level() {
    return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
}

/// Merges: a b -> ab (256), b c -> bc (257), ab c -> abc (258), e e -> ee (259), Ġ a -> Ġa (260).
/// Added: <end> (300, special), <think> (301), <think>\n (302). Pre-tokens: words with their space.
inline nlohmann::json file() {
    nlohmann::json vocab;
    for (int byte = 0; byte < 256; ++byte) {
        vocab[letter_of_byte(byte)] = byte;
    }
    const std::string space = letter_of_byte(' ');
    vocab["ab"] = 256;
    vocab["bc"] = 257;
    vocab["abc"] = 258;
    vocab["ee"] = 259;
    vocab[space + "a"] = 260;
    const auto pair = [](const std::string& left, const std::string& right) {
        return nlohmann::json::array({left, right});  // a bare list of two texts is an object
    };
    const nlohmann::json merges = nlohmann::json::array(
        {pair("a", "b"), pair("b", "c"), pair("ab", "c"), pair("e", "e"), pair(space, "a")});
    const nlohmann::json regex = {{"Regex", " ?\\p{L}+|[^\\p{L}]"}};
    return {
        {"added_tokens",
         {added(300, "<end>", true), added(301, "<think>", false), added(302, "<think>\n", false)}},
        {"normalizer", nullptr},
        {"pre_tokenizer",
         {{"type", "Sequence"}, {"pretokenizers", {split(regex, "Isolated"), byte_level()}}}},
        {"decoder", {{"type", "ByteLevel"}}},
        {"model",
         {{"type", "BPE"}, {"ignore_merges", false}, {"vocab", vocab}, {"merges", merges}}}};
}

}  // namespace terrace::tiny
