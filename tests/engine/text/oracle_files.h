// Finds and unpacks the published tokenizers and their golden ids, which are third-party data and
// therefore stay outside the tree.
#pragma once

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace terrace::oracle {

inline std::filesystem::path folder() {
    return std::filesystem::path(TERRACE_ORACLE_DIR) / "tokenizers";
}

inline const std::vector<std::string>& tokenizer_names() {
    static const std::vector<std::string> names{"gptoss", "qwen3",  "deepseek_v3",
                                                "gpt2",   "llama3", "demo"};
    return names;
}

inline bool is_there() {
    return std::filesystem::exists(folder() / "strings.json");
}

inline std::string read_file(const std::filesystem::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

inline nlohmann::json read_json(const std::filesystem::path& path) {
    return nlohmann::json::parse(read_file(path));
}

/// Text of a tokenizer.json; the published ones are packed with xz.
inline std::string tokenizer_text(const std::string& name) {
    if (name == "demo") {
        return read_file(std::filesystem::path(TERRACE_ORACLE_DIR) / ".." / "demo-model" /
                         "tokenizer.json");
    }
    const std::string command =
        "xz -dc '" + (folder() / (name + ".tokenizer.json.xz")).string() + "'";
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
    std::string out;
    std::array<char, 65536> buffer{};
    while (pipe != nullptr) {
        const std::size_t n = fread(buffer.data(), 1, buffer.size(), pipe.get());
        if (n == 0) {
            break;
        }
        out.append(buffer.data(), n);
    }
    return out;
}

/// A string of strings.json: text, {"repeat": [text, n]} or {"concat": [parts]}.
inline std::string expand(const nlohmann::json& value) {
    if (value.is_string()) {
        return value.get<std::string>();
    }
    std::string out;
    if (value.contains("repeat")) {
        const auto text = value["repeat"][0].get<std::string>();
        for (int i = 0; i < value["repeat"][1].get<int>(); ++i) {
            out += text;
        }
        return out;
    }
    for (const auto& part : value["concat"]) {
        out += expand(part);
    }
    return out;
}

inline std::string from_hex(const std::string& hex) {
    std::string out;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
        out.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    }
    return out;
}

}  // namespace terrace::oracle
