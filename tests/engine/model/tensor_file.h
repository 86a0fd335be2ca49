// One safetensors file of reference data, read tensor by tensor; tests only.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/model/safetensors.h"

namespace terrace {

class TensorFile {
public:
    explicit TensorFile(const std::filesystem::path& path) : file_(File::open(path)) {
        EXPECT_TRUE(file_.ok()) << path;
        Result<SafetensorsHeader> header = read_safetensors_header(*file_);
        EXPECT_TRUE(header.ok()) << (header ? "" : header.error().text());
        header_ = std::move(*header);
    }

    [[nodiscard]] const SafetensorsHeader& header() const { return header_; }

    [[nodiscard]] const StoredTensor* find(const std::string& name) const {
        for (const StoredTensor& tensor : header_.tensors) {
            if (tensor.name == name) {
                return &tensor;
            }
        }
        return nullptr;
    }

    [[nodiscard]] std::vector<std::byte> bytes(const std::string& name) const {
        const StoredTensor* tensor = find(name);
        EXPECT_NE(tensor, nullptr) << name;
        if (tensor == nullptr) {
            return {};
        }
        std::vector<std::byte> out(static_cast<std::size_t>(tensor->bytes()));
        EXPECT_TRUE(file_->read_exact(tensor->begin, out).ok());
        return out;
    }

    [[nodiscard]] std::vector<float> floats(const std::string& name) const {
        const std::vector<std::byte> raw = bytes(name);
        std::vector<float> out(raw.size() / sizeof(float));
        std::memcpy(out.data(), raw.data(), raw.size());
        return out;
    }

private:
    Result<File> file_;
    SafetensorsHeader header_;
};

}  // namespace terrace
