// Writes containers: safetensors files with U8 payloads and `.qs` scales that our reader and any
// reader of the reference container open. Used by `convert` and by `make-model`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/device/result.h"
#include "engine/device/tensor.h"
#include "engine/model/model_folder.h"
#include "engine/model/weights.h"
#include "engine/support/file.h"

namespace terrace {

/// How tensors lie in the files.
///   Reference  as the reference converter orders them: all F32 (norms and scales), then all U8,
///              each by name
///   Extents    ours: data starts at a multiple of 4096; of an expert the gate, up and down
///              payloads and then their three scale arrays are neighbours, one read
enum class ContainerOrder : std::uint8_t { Reference, Extents };

/// The set that a file of a container belongs to: out-NNNNN, out-mtp-NNNNN, out-idx-NNNNN.
enum class ContainerSet : std::uint8_t { Main, Mtp, Indexer };

/// One tensor to be written. Float32 is stored as F32 under `shape`; an integer kind as a flat U8
/// payload and, under name + ".qs", a flat F32 array of scales.
struct ContainerTensor {
    std::string name;
    WeightFormat format;
    std::int64_t rows = 1;
    std::int64_t cols = 0;
    std::vector<std::int64_t> shape;  ///< of a Float32 tensor; empty: [rows, cols]
    ContainerSet set = ContainerSet::Main;
    /// Extents order: the three projections of one expert have the same number and stand in a
    /// row; -1: no expert.
    std::int64_t expert = -1;
};

/// One file to be written. Tensors are given to the writer in this order.
struct ContainerFilePlan {
    std::string file_name;
    std::vector<ContainerTensor> tensors;
    std::map<std::string, std::string> metadata;
    ContainerOrder order = ContainerOrder::Extents;
};

/// "out-mtp-00002.safetensors"
[[nodiscard]] std::string container_file_name(ContainerSet set, int number);

/// Splits tensors into files in our own order: for each set first everything that stays in memory,
/// then the experts, in files of at most `max_file_bytes` (one expert is never split). Expert
/// triples must be neighbours in `tensors`, gate, up, down. `metadata` goes into every file; the
/// group size is added where one is common to the file.
[[nodiscard]] std::vector<ContainerFilePlan> plan_container(
    std::vector<ContainerTensor> tensors,
    const std::map<std::string, std::string>& metadata,
    std::int64_t max_file_bytes);

/// `__metadata__` of our files: format name, tool version and, when not empty, the identity of the
/// folder they were made from.
[[nodiscard]] std::map<std::string, std::string> container_metadata(
    const std::string& source_identity);

/// Writes one file. Owner: the converter; one thread. The file appears under its name in finish()
/// or not at all. A writer for any kinds and groups:
///
///     for (ContainerFilePlan& plan : plan_container(tensors, container_metadata(""), 4LL << 30)) {
///         auto writer = ContainerFileWriter::create(folder, plan);
///         for (const ContainerTensor& t : plan.tensors) { writer->write(make_matrix(t)); }
///         writer->finish();
///     }
///
/// Memory: Extents holds the scales of one expert; Reference holds the whole file, because its
/// scales come before its payloads.
class ContainerFileWriter {
public:
    [[nodiscard]] static Result<ContainerFileWriter> create(const std::filesystem::path& folder,
                                                            const ContainerFilePlan& plan);

    ContainerFileWriter(ContainerFileWriter&&) noexcept = default;
    ContainerFileWriter& operator=(ContainerFileWriter&&) noexcept = delete;

    /// The next tensor of the plan. Kind, group, rows and cols must be those of the plan (CHECK).
    [[nodiscard]] Status write(const RawMatrix& matrix);

    /// All tensors are written: the file gets its name.
    [[nodiscard]] Status finish();

    /// Size of the finished file.
    [[nodiscard]] std::int64_t file_bytes() const { return file_bytes_; }

private:
    struct Part {
        std::size_t tensor = 0;
        bool is_scales = false;
        std::int64_t bytes = 0;
        std::vector<std::byte> pending;
        bool ready = false;
    };

    explicit ContainerFileWriter(AtomicFile file) : file_(std::move(file)) {}

    [[nodiscard]] Status put(std::size_t part, std::span<const std::byte> bytes);

    AtomicFile file_;
    std::vector<ContainerTensor> tensors_;
    std::vector<Part> parts_;                ///< in file order
    std::vector<std::size_t> payload_part_;  ///< [tensor] index into parts_
    std::vector<std::size_t> scales_part_;   ///< [tensor]; the payload's own where there is none
    std::size_t next_tensor_ = 0;
    std::size_t next_part_ = 0;  ///< first part not yet in the file
    std::int64_t file_bytes_ = 0;
};

struct ContainerOptions {
    ContainerOrder order = ContainerOrder::Extents;
    std::int64_t max_file_bytes = std::int64_t{5} << 30;
    /// Keep the MTP layer's own indexer, which the reference converter drops.
    enum class MtpIndexer : std::uint8_t { Keep, Drop };
    MtpIndexer mtp_indexer = MtpIndexer::Keep;
};

struct ConvertProgress {
    std::int64_t bytes_done = 0;  ///< written
    std::int64_t bytes_total = 0;
    std::string tensor;
};

/// Converts a folder: int4 in groups of 64; embed_tokens, lm_head, indexer and MTP layer int8 per
/// row; tensors that are already quantised keep their bytes. One source tensor in memory at a
/// time (Reference order: one file). `out` is created; it must be empty and not inside the source.
/// Files appear under their names one by one, config.json last, so a stopped conversion is never
/// taken for a model. Errors: WrongUse (folder), TooLarge (not enough free space, with numbers),
/// Io, Cancelled, and the quantiser's refusals.
[[nodiscard]] Status write_container(const ModelFolder& source,
                                     const ContainerOptions& options,
                                     const std::filesystem::path& out,
                                     const std::function<void(const ConvertProgress&)>& progress,
                                     std::stop_token stop);

}  // namespace terrace
