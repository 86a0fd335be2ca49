// From bytes in a file to a weight matrix in the format that a session computes with. Called for
// every dense weight at load and for every expert on the reader's threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/device/result.h"
#include "engine/device/tensor.h"

namespace terrace {

/// How a weight lies in its file.
enum class Storage : std::uint8_t { F32, F16, BF16, F8E4M3, Int8, Int4, Int3, Int2 };

/// "bf16", "int4"; for people.
[[nodiscard]] const char* to_string(Storage storage);

enum class ScaleStorage : std::uint8_t { None, F32, BF16, UE8M0 };

/// What a tensor is for; decides its format.
enum class TensorRole : std::uint8_t {
    Embedding,
    Head,
    Vector,  ///< norms, biases: whatever is not a matrix
    Router,
    Attention,
    Indexer,
    DenseMlp,
    SharedExpert,
    RoutedExpert,
    MtpProjection
};

/// A span of bytes in one file of the checkpoint.
struct FileRange {
    std::int32_t file = -1;  ///< index into Checkpoint::files(); -1: none
    std::int64_t offset = 0;
    std::int64_t bytes = 0;
};

/// Where one matrix (or vector: rows = 1) comes from. Value type. The range `payload` holds
/// exactly its rows, also when the tensor in the file is a merged one.
struct TensorSource {
    std::string name;  ///< canonical; a slice of a merged tensor has its expert's own name
    TensorRole role = TensorRole::Vector;
    std::int32_t layer = -1;  ///< -1: belongs to no layer
    bool in_mtp_layer = false;

    Storage storage = Storage::F32;
    std::int32_t group = 0;  ///< scale group of the integer kinds, 0: one scale a row
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    FileRange payload;

    ScaleStorage scale_storage = ScaleStorage::None;
    FileRange scales;
    /// fp8 only: row of this matrix in the tensor whose block scales `scales` begins with.
    std::int64_t first_row = 0;

    [[nodiscard]] bool quantised() const { return storage >= Storage::Int8; }
};

/// Whether a folder holds any `.qs`: then it is a container, and what is not quantised in it
/// stays float.
enum class FolderKind : std::uint8_t { Float, Container };

enum class SessionKind : std::uint8_t { Quantised, Float };

/// The format a session holds this tensor in (arithmetic.md 1, "Folder quantised while loading").
/// Float session: Float32. A stored integer kind stays as it is. In a float folder: router and
/// vectors float; embed_tokens, lm_head, indexer matrices and the whole MTP layer int8 per row;
/// the rest int4 in groups of 64. In a container what has no scales stays float.
[[nodiscard]] WeightFormat target_format(const TensorSource& source,
                                         FolderKind folder,
                                         SessionKind session);

/// A matrix and the memory it may need. `matrix` points into `payload` and `scales`, or into the
/// caller's bytes where no conversion was needed: those bytes must outlive it. Move-only.
struct RawWeight {
    RawWeight() = default;
    RawWeight(RawWeight&&) noexcept = default;
    RawWeight& operator=(RawWeight&&) noexcept = default;
    RawWeight(const RawWeight&) = delete;
    RawWeight& operator=(const RawWeight&) = delete;
    ~RawWeight() = default;

    RawMatrix matrix;
    std::vector<std::byte> payload;
    std::vector<float> scales;
};

/// Makes the target matrix out of the bytes of `source.payload` and `source.scales`.
///   payload, scales  exactly as long as the ranges of `source`
/// No copy when the bytes already are what is wanted; float payloads and scales that are not
/// aligned to 4 bytes are copied. Converts bf16, f16 and fp8 (times its block scale, one
/// rounding), quantises floats, dequantises integers to Float32 as float(q) * scale.
/// Pure; thread-safe.
/// Errors, naming tensor and row: a scale that is not finite, or not 0 and outside
/// [2^-40, 2^40]; a weight to be quantised that is not finite; integers into other integers.
[[nodiscard]] Result<RawWeight> materialise(const TensorSource& source,
                                            std::span<const std::byte> payload,
                                            std::span<const std::byte> scales,
                                            WeightFormat target);

/// Checks the scales of a stored integer matrix; materialise does this too.
[[nodiscard]] Status check_scales(const TensorSource& source, std::span<const std::byte> scales);

}  // namespace terrace
