// Reads the arrays of a safetensors file for comparison: float32, int32 and bytes only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace terrace::test {

struct Array {
    std::string type;  ///< "F32", "I32", "U8"
    std::vector<std::int64_t> shape;
    std::vector<std::byte> bytes;

    /// The numbers as T, whose size must be that of the stored type.
    template <typename T>
    [[nodiscard]] std::vector<T> as() const {
        std::vector<T> out(bytes.size() / sizeof(T));
        std::memcpy(out.data(), bytes.data(), bytes.size());
        return out;
    }
};

/// Every array by name. A file that cannot be read fails the test and gives nothing.
[[nodiscard]] std::map<std::string, Array> read_arrays(const std::filesystem::path& file);

}  // namespace terrace::test
