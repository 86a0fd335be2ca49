// The header of one safetensors file: which tensors it holds, where, and of what type. Everything
// in it is untrusted; after parsing, every range lies inside the file and no two overlap.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/device/result.h"
#include "engine/support/file.h"

namespace terrace {

inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr std::size_t kMaxTensorRank = 8;
inline constexpr std::size_t kMaxTensorsInFile = 1'000'000;
inline constexpr std::size_t kMaxMetadataEntries = 10'000;

enum class Dtype : std::uint8_t {
    F64,
    F32,
    F16,
    BF16,
    F8E4M3,
    F8E5M2,
    F8E8M0,
    I64,
    I32,
    I16,
    I8,
    U64,
    U32,
    U16,
    U8,
    Bool
};

/// "BF16", as the file spells it.
[[nodiscard]] std::string_view dtype_name(Dtype dtype);

[[nodiscard]] std::int64_t dtype_bytes(Dtype dtype);

/// One tensor of a file. `begin` and `end` count from the start of the file.
struct StoredTensor {
    std::string name;
    Dtype dtype = Dtype::F32;
    std::uint8_t rank = 0;
    std::array<std::int64_t, kMaxTensorRank> shape{};
    std::int64_t begin = 0;
    std::int64_t end = 0;

    [[nodiscard]] std::int64_t bytes() const { return end - begin; }

    [[nodiscard]] std::int64_t n_elements() const { return bytes() / dtype_bytes(dtype); }

    /// "[32, 128]"
    [[nodiscard]] std::string shape_text() const;
};

/// A checked header. Value type.
struct SafetensorsHeader {
    std::int64_t data_begin = 0;  ///< 8 + header length
    std::int64_t file_bytes = 0;
    std::uint64_t text_hash = 0;        ///< FNV-1a of the header's bytes
    std::vector<StoredTensor> tensors;  ///< in the order of their offsets
    std::map<std::string, std::string> metadata;
};

/// Parses the JSON text of a header. `file_bytes` is the size of the whole file, text.size() + 8
/// the start of its data. Errors name the tensor; the caller adds the file.
[[nodiscard]] Result<SafetensorsHeader> parse_safetensors_header(std::string_view text,
                                                                 std::int64_t file_bytes);

/// Reads and checks the header of an open file; no weight is read.
[[nodiscard]] Result<SafetensorsHeader> read_safetensors_header(const File& file);

}  // namespace terrace
