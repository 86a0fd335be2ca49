// Reads tests/data/contract/vectors.json: numbers as hex digits of their bits, recorded by an
// implementation of docs/arithmetic.md that shares no code with the engine.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace terrace::test {

inline nlohmann::json read_vectors(const char* name) {
    std::ifstream file(std::string(TERRACE_SOURCE_DIR "/tests/data/contract/") + name);
    return nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
}

inline const nlohmann::json& contract_vectors() {
    static const nlohmann::json vectors = read_vectors("vectors.json");
    return vectors;
}

/// Operations that vectors.json leaves open, recorded by tests/oracle.
inline const nlohmann::json& more_contract_vectors() {
    static const nlohmann::json vectors = read_vectors("more_vectors.json");
    return vectors;
}

inline std::uint64_t bits_of(const std::string& hex) {
    return std::stoull(hex, nullptr, 16);
}

inline std::vector<std::uint32_t> words_of(const nlohmann::json& hex) {
    const auto digits = hex.get<std::string>();
    std::vector<std::uint32_t> words;
    for (std::size_t i = 0; i + 8 <= digits.size(); i += 8) {
        words.push_back(static_cast<std::uint32_t>(bits_of(digits.substr(i, 8))));
    }
    return words;
}

inline std::vector<float> floats_of(const nlohmann::json& hex) {
    std::vector<float> numbers;
    for (const std::uint32_t word : words_of(hex)) {
        numbers.push_back(std::bit_cast<float>(word));
    }
    return numbers;
}

inline double double_of(const nlohmann::json& hex) {
    return std::bit_cast<double>(bits_of(hex.get<std::string>()));
}

inline std::uint64_t fnv64(const void* data,
                           std::size_t n_bytes,
                           std::uint64_t h = 14695981039346656037ULL) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    for (std::size_t i = 0; i < n_bytes; ++i) {
        h = (h ^ bytes[i]) * 1099511628211ULL;
    }
    return h;
}

/// The bits of numbers, with every NaN alike: which NaN it is, is not part of the contract.
inline std::vector<std::uint32_t> bits(const float* x, std::size_t n) {
    std::vector<std::uint32_t> words(n);
    for (std::size_t i = 0; i < n; ++i) {
        words[i] = x[i] != x[i] ? 0x7fc00000u : std::bit_cast<std::uint32_t>(x[i]);
    }
    return words;
}

inline std::vector<std::uint32_t> bits(const std::vector<float>& x) {
    return bits(x.data(), x.size());
}

}  // namespace terrace::test
