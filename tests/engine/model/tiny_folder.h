// A tiny glm_moe_dsa model folder made by code from a seed, with knobs for what a test wants to
// break. Tests only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace terrace {

/// One tensor as a safetensors file holds it.
struct TinyTensor {
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> bytes;
};

/// Bits of seeded numbers around zero, rounded to bf16.
[[nodiscard]] TinyTensor tiny_bf16(const std::vector<std::int64_t>& shape, std::uint64_t seed);

[[nodiscard]] TinyTensor tiny_f32(const std::vector<std::int64_t>& shape,
                                  const std::vector<float>& values);

/// The bytes of a safetensors file; tensors lie in name order.
[[nodiscard]] std::string tiny_safetensors(const std::map<std::string, TinyTensor>& tensors);

/// config.json of the tiny model: 2 layers (1 dense), MTP, 4 experts top-2, hidden 64.
[[nodiscard]] std::string tiny_config();

/// `text` with the first `from` replaced by `to`; a test fails when there is none.
[[nodiscard]] std::string replaced(std::string text,
                                   const std::string& from,
                                   const std::string& to);

/// The files of one folder before they are written.
struct TinyFolder {
    std::string config = tiny_config();
    std::string tokenizer;
    std::map<std::string, std::string> other_files;
    std::map<std::string, std::map<std::string, TinyTensor>> shards;

    /// All tensors in model.safetensors.
    [[nodiscard]] static TinyFolder make(std::uint64_t seed);

    [[nodiscard]] std::map<std::string, TinyTensor>& tensors() {
        return shards["model.safetensors"];
    }

    void write(const std::filesystem::path& folder) const;
};

/// A folder below the system's temporary one, removed at the end.
class TemporaryFolder {
public:
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    [[nodiscard]] const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_;
};

}  // namespace terrace
