// Files as the engine uses them: positional reads (also past the page cache), plain writes, and
// files that appear whole or not at all. Every byte the engine reads from a disk comes through
// here, so this is also where disk faults are injected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "engine/device/result.h"

namespace terrace {

class FaultInjector;

/// Direct reads want offset, length and address to be multiples of this.
inline constexpr std::int64_t kDirectAlignment = 4096;

/// How a file is read. Direct goes past the page cache; Auto tries that and falls back.
enum class ReadMode : std::uint8_t { Buffered, Direct, Auto };

enum class FileAdvice : std::uint8_t { Sequential, Random, WillNeed, DontNeed };

/// What one read request gave.
struct ReadOutcome {
    std::int64_t bytes = 0;  ///< 0 with error 0: the end of the file
    int error = 0;           ///< errno, 0 for success
    bool injected = false;   ///< a fault was injected into this request
};

struct FileOpenOptions {
    ReadMode mode = ReadMode::Buffered;
    FaultInjector* faults = nullptr;  ///< asked before every read; null costs one comparison
};

/// An open file. Move-only; closes itself. Reads are positional and const: any number of threads
/// may read one File at the same time. Writes come from one thread.
/// Failure: every Error names the file, for reads and writes the offset and errno as well.
class File {
public:
    /// Opens for reading. ReadMode::Direct fails where the file system refuses direct reads;
    /// ReadMode::Auto then reads buffered and keeps the reason.
    [[nodiscard]] static Result<File> open(const std::filesystem::path& path,
                                           const FileOpenOptions& options = {});

    /// Creates an empty file for writing, or empties an existing one.
    [[nodiscard]] static Result<File> create(const std::filesystem::path& path);

    File(File&& other) noexcept;
    File& operator=(File&& other) noexcept;
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    ~File();

    [[nodiscard]] const std::filesystem::path& path() const { return path_; }

    [[nodiscard]] Result<std::int64_t> size() const;

    /// True when reads go past the page cache and therefore must be aligned.
    [[nodiscard]] bool direct() const { return direct_; }

    /// Why ReadMode::Auto reads buffered; empty when it does not.
    [[nodiscard]] const std::string& direct_refusal() const { return direct_refusal_; }

    /// One request to the system, restarted only when a signal interrupted it.
    /// Precondition when direct(): offset, out.data() and out.size() are multiples of
    /// kDirectAlignment.
    [[nodiscard]] ReadOutcome read_some(std::int64_t offset, std::span<std::byte> out) const;

    /// Fills `out` from `offset`: continues after short reads, repeats a failed request once.
    [[nodiscard]] Status read_exact(std::int64_t offset, std::span<std::byte> out) const;

    /// As read_exact, but content with the first `needed` bytes: an aligned request may reach past
    /// the end of the file. Precondition as read_some; needed <= out.size().
    [[nodiscard]] Status read_exact(std::int64_t offset,
                                    std::span<std::byte> out,
                                    std::int64_t needed) const;

    /// A hint to the kernel; nothing depends on it.
    void advise(FileAdvice advice, std::int64_t offset = 0, std::int64_t bytes = 0) const;

    /// Writes all of `data` at the end of what was written so far.
    [[nodiscard]] Status write(std::span<const std::byte> data);
    [[nodiscard]] Status write(std::string_view text);

    /// Returns when the data is on the device.
    [[nodiscard]] Status sync() const;

private:
    friend class AtomicFile;

    File(int descriptor, std::filesystem::path path) : fd_(descriptor), path_(std::move(path)) {}

    void close_now();

    int fd_ = -1;
    std::filesystem::path path_;
    FaultInjector* faults_ = nullptr;
    bool direct_ = false;
    std::string direct_refusal_;
    std::int64_t written_ = 0;
};

/// A file that appears under its name whole, or not at all: written beside it, synced, renamed.
/// Move-only. Destroyed before commit() it leaves nothing behind. One thread.
class AtomicFile {
public:
    [[nodiscard]] static Result<AtomicFile> create(const std::filesystem::path& path);

    AtomicFile(AtomicFile&& other) noexcept = default;
    AtomicFile& operator=(AtomicFile&& other) noexcept = delete;
    ~AtomicFile();

    [[nodiscard]] Status write(std::span<const std::byte> data) { return file_.write(data); }

    [[nodiscard]] Status write(std::string_view text) { return file_.write(text); }

    /// Syncs, gives the file its name and syncs the folder. Call once.
    [[nodiscard]] Status commit();

private:
    AtomicFile(File file, std::filesystem::path target)
        : file_(std::move(file)), target_(std::move(target)) {}

    File file_;
    std::filesystem::path target_;
    bool committed_ = false;
};

/// The whole of a small file as text. TooLarge names the limit when it is longer.
[[nodiscard]] Result<std::string> read_text_file(const std::filesystem::path& path,
                                                 std::int64_t max_bytes);

}  // namespace terrace
