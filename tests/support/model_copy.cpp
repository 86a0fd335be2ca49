#include "tests/support/model_copy.h"

#include <bit>
#include <cstring>
#include <fstream>
#include <iterator>

namespace terrace::test {

namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

/// The character that stands for a byte in a byte-level vocabulary, as UTF-8.
std::string byte_letter(int byte) {
    const auto printable = [](int b) {
        return (b >= 33 && b <= 126) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    };
    int code = byte;
    if (!printable(byte)) {
        code = 0x100;
        for (int b = 0; b < byte; ++b) {
            code += printable(b) ? 0 : 1;
        }
    }
    if (code < 0x80) {
        return {static_cast<char>(code)};
    }
    return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

}  // namespace

std::string byte_letters(const std::string& bytes) {
    std::string out;
    for (const char c : bytes) {
        out += byte_letter(static_cast<unsigned char>(c));
    }
    return out;
}

std::string byte_tokenizer_json(std::int64_t vocab) {
    nlohmann::json ids = nlohmann::json::object();
    std::int64_t id = 0;
    for (int i = 0; i < 256 && id < vocab; ++i) {
        ids[byte_letter((i + 32) % 256)] = id++;
    }
    for (; id < vocab; ++id) {
        ids["\xC4\xA0w" + std::to_string(id)] = id;
    }
    const nlohmann::json byte_level = {{"type", "ByteLevel"},
                                       {"add_prefix_space", false},
                                       {"trim_offsets", true},
                                       {"use_regex", true}};
    const nlohmann::json model = {{"type", "BPE"},          {"dropout", nullptr},
                                  {"unk_token", nullptr},   {"continuing_subword_prefix", nullptr},
                                  {"fuse_unk", false},      {"end_of_word_suffix", nullptr},
                                  {"byte_fallback", false}, {"ignore_merges", false},
                                  {"vocab", ids},           {"merges", nlohmann::json::array()}};
    return nlohmann::json({{"version", "1.0"},
                           {"added_tokens", nlohmann::json::array()},
                           {"normalizer", nullptr},
                           {"pre_tokenizer", byte_level},
                           {"post_processor", nullptr},
                           {"decoder", byte_level},
                           {"model", model}})
        .dump();
}

ModelCopy::ModelCopy(const fs::path& source, const nlohmann::json& config_edits) {
    for (const auto& entry : fs::directory_iterator(source)) {
        const fs::path name = entry.path().filename();
        if (name != "config.json" && !name.string().starts_with("golden")) {
            fs::create_symlink(fs::canonical(entry.path()), path() / name);
        }
    }
    nlohmann::json config =
        nlohmann::json::parse(read_text(source / "config.json"), nullptr, false);
    config.merge_patch(config_edits);
    write("config.json", config.dump());
    if (!fs::exists(path() / "tokenizer.json")) {
        write("tokenizer.json", byte_tokenizer_json(config.value("vocab_size", 0)));
    }
}

void ModelCopy::write(const std::string& name, const std::string& text) {
    fs::remove(path() / name);
    std::ofstream(path() / name, std::ios::binary) << text;
}

void ModelCopy::edit_tensor(const std::string& name,
                            const std::function<void(std::vector<float>&)>& change) {
    for (const auto& entry : fs::directory_iterator(path())) {
        if (entry.path().extension() != ".safetensors") {
            continue;
        }
        std::string data = read_text(entry.path());
        std::uint64_t header_size = 0;
        std::memcpy(&header_size, data.data(), 8);
        const auto header = nlohmann::json::parse(data.data() + 8, data.data() + 8 + header_size);
        if (!header.contains(name)) {
            continue;
        }
        const auto& tensor = header[name];
        char* begin = data.data() + 8 + header_size + tensor["data_offsets"][0].get<std::size_t>();
        const std::size_t n_bytes = tensor["data_offsets"][1].get<std::size_t>() -
                                    tensor["data_offsets"][0].get<std::size_t>();
        if (tensor["dtype"] == "F32") {
            std::vector<float> values(n_bytes / 4);
            std::memcpy(values.data(), begin, n_bytes);
            change(values);
            std::memcpy(begin, values.data(), n_bytes);
        } else if (tensor["dtype"] == "BF16") {
            std::vector<float> values(n_bytes / 2);
            for (std::size_t i = 0; i < values.size(); ++i) {
                std::uint16_t half = 0;
                std::memcpy(&half, begin + 2 * i, 2);
                values[i] = std::bit_cast<float>(std::uint32_t{half} << 16);
            }
            change(values);
            for (std::size_t i = 0; i < values.size(); ++i) {
                const auto half =
                    static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(values[i]) >> 16);
                std::memcpy(begin + 2 * i, &half, 2);
            }
        } else {
            ADD_FAILURE() << name << " is stored as " << tensor["dtype"];
        }
        write(entry.path().filename().string(), data);
        return;
    }
    ADD_FAILURE() << "no tensor " << name << " in " << path();
}

}  // namespace terrace::test
