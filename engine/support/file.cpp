#include "engine/support/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <system_error>
#include <utility>

#include "engine/device/check.h"
#include "engine/support/faults.h"

namespace terrace {
namespace {

std::string errno_text(int error) {
    return std::error_code(error, std::generic_category()).message() + " (errno " +
           std::to_string(error) + ")";
}

ErrorCode code_of(int error) {
    switch (error) {
        case ENOENT:
        case ENOTDIR:
            return ErrorCode::NotFound;
        case EACCES:
        case EPERM:
        case EISDIR:
        case ELOOP:
        case ENAMETOOLONG:
            return ErrorCode::Unreadable;
        default:
            return ErrorCode::Io;
    }
}

std::string next_step_of(int error) {
    switch (error) {
        case ENOENT:
        case ENOTDIR:
            return "Check the path.";
        case EACCES:
        case EPERM:
            return "Check the permissions of the file and of its folders.";
        case ENOSPC:
        case EDQUOT:
            return "Free some space on that drive.";
        case EMFILE:
        case ENFILE:
            return "Raise the limit of open files (ulimit -n).";
        case EIO:
            return "Check the drive; its system log (dmesg) says more.";
        default:
            return "";
    }
}

Error failed(const std::filesystem::path& path, const std::string& what, int error) {
    return {code_of(error), what + ": " + errno_text(error), path.string(), next_step_of(error)};
}

int open_restarting(const std::filesystem::path& path, int flags, mode_t mode = 0) {
    int fd = -1;
    do {
        fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

bool aligned(std::int64_t n) {
    return n % kDirectAlignment == 0;
}

/// Some file systems accept O_DIRECT and refuse the first read, so one read is tried.
int try_direct_read(int fd) {
    struct Free {
        void operator()(void* memory) const { std::free(memory); }
    };

    std::unique_ptr<void, Free> block(std::aligned_alloc(kDirectAlignment, kDirectAlignment));
    if (block == nullptr) {
        return ENOMEM;
    }
    ssize_t got = 0;
    do {
        got = ::pread(fd, block.get(), kDirectAlignment, 0);
    } while (got < 0 && errno == EINTR);
    return got < 0 ? errno : 0;
}

Status sync_folder(const std::filesystem::path& folder) {
    const int fd = open_restarting(folder, O_RDONLY | O_DIRECTORY);
    if (fd < 0) {
        return failed(folder, "the folder cannot be opened to sync it", errno);
    }
    const int error = ::fsync(fd) == 0 ? 0 : errno;
    ::close(fd);
    // Some network file systems cannot sync a folder; the file itself is synced.
    if (error != 0 && error != EINVAL) {
        return failed(folder, "the folder cannot be synced", error);
    }
    return {};
}

}  // namespace

Result<File> File::open(const std::filesystem::path& path, const FileOpenOptions& options) {
    int fd = -1;
    int direct_error = 0;
    if (options.mode != ReadMode::Buffered) {
        fd = open_restarting(path, O_RDONLY | O_DIRECT);
        direct_error = fd < 0 ? errno : try_direct_read(fd);
        if (direct_error != 0 && fd >= 0) {
            ::close(fd);
            fd = -1;
        }
        if (direct_error != 0 && options.mode == ReadMode::Direct) {
            return failed(path, "the file cannot be read directly, past the page cache",
                          direct_error);
        }
    }
    const bool direct = fd >= 0;
    if (!direct) {
        fd = open_restarting(path, O_RDONLY);
    }
    if (fd < 0) {
        return failed(path, "the file cannot be opened", errno);
    }
    File file(fd, path);
    struct stat info = {};
    if (::fstat(fd, &info) != 0) {
        return failed(path, "the file cannot be examined", errno);
    }
    if (!S_ISREG(info.st_mode)) {
        return Error{ErrorCode::Unreadable, "a plain file was expected, something else was found",
                     path.string(), "Check the path."};
    }
    file.faults_ = options.faults;
    file.direct_ = direct;
    if (direct_error != 0) {
        file.direct_refusal_ = errno_text(direct_error);
    }
    return file;
}

Result<File> File::create(const std::filesystem::path& path) {
    const int fd = open_restarting(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0) {
        return failed(path, "the file cannot be created", errno);
    }
    return File(fd, path);
}

File::File(File&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      faults_(other.faults_),
      direct_(other.direct_),
      direct_refusal_(std::move(other.direct_refusal_)),
      written_(other.written_) {}

File& File::operator=(File&& other) noexcept {
    if (this != &other) {
        close_now();
        fd_ = std::exchange(other.fd_, -1);
        path_ = std::move(other.path_);
        faults_ = other.faults_;
        direct_ = other.direct_;
        direct_refusal_ = std::move(other.direct_refusal_);
        written_ = other.written_;
    }
    return *this;
}

File::~File() {
    close_now();
}

void File::close_now() {
    if (fd_ >= 0) {
        ::close(fd_);
        fd_ = -1;
    }
}

Result<std::int64_t> File::size() const {
    struct stat info = {};
    if (::fstat(fd_, &info) != 0) {
        return failed(path_, "the file's size cannot be read", errno);
    }
    return static_cast<std::int64_t>(info.st_size);
}

ReadOutcome File::read_some(std::int64_t offset, std::span<std::byte> out) const {
    CHECK(offset >= 0);
    CHECK(!direct_ || (aligned(offset) && aligned(static_cast<std::int64_t>(out.size())) &&
                       reinterpret_cast<std::uintptr_t>(out.data()) % kDirectAlignment == 0));
    const ReadFault fault = faults_ == nullptr ? ReadFault{} : faults_->next_read();
    if (fault == ReadFault::Error) {
        return {0, EIO, true};
    }
    ssize_t got = 0;
    do {
        got = ::pread(fd_, out.data(), out.size(), offset);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        return {0, errno, false};
    }
    if (fault == ReadFault::Short) {
        return {got > 1 ? got / 2 : got, 0, true};
    }
    return {got, 0, false};
}

Status File::read_exact(std::int64_t offset, std::span<std::byte> out) const {
    return read_exact(offset, out, static_cast<std::int64_t>(out.size()));
}

Status File::read_exact(std::int64_t offset, std::span<std::byte> out, std::int64_t needed) const {
    CHECK(needed >= 0 && needed <= static_cast<std::int64_t>(out.size()));
    std::int64_t done = 0;
    std::int64_t n_injected = 0;
    // A failed request and a request that brought nothing usable are both repeated once.
    int n_fruitless = 0;
    while (done < needed) {
        const ReadOutcome outcome =
            read_some(offset + done, out.subspan(static_cast<std::size_t>(done)));
        n_injected += outcome.injected ? 1 : 0;
        std::int64_t usable = outcome.bytes;
        if (direct_ && done + usable < needed) {
            usable = usable / kDirectAlignment * kDirectAlignment;
        }
        if (usable > 0) {
            done += usable;
            n_fruitless = 0;
            continue;
        }
        if (++n_fruitless < 2) {
            continue;
        }
        const std::string where =
            std::to_string(needed - done) + " bytes at offset " + std::to_string(offset + done);
        if (outcome.error != 0) {
            return failed(path_, "reading " + where + " failed twice", outcome.error);
        }
        return Error{ErrorCode::Incomplete,
                     "the file ends too early: " + where + " were expected, " +
                         std::to_string(outcome.bytes) + " were found",
                     path_.string(), "Copy or download the file again."};
    }
    if (n_injected > 0) {
        faults_->count_repaired(n_injected);
    }
    return {};
}

void File::advise(FileAdvice advice, std::int64_t offset, std::int64_t bytes) const {
    int kind = POSIX_FADV_NORMAL;
    switch (advice) {
        case FileAdvice::Sequential:
            kind = POSIX_FADV_SEQUENTIAL;
            break;
        case FileAdvice::Random:
            kind = POSIX_FADV_RANDOM;
            break;
        case FileAdvice::WillNeed:
            kind = POSIX_FADV_WILLNEED;
            break;
        case FileAdvice::DontNeed:
            kind = POSIX_FADV_DONTNEED;
            break;
    }
    static_cast<void>(::posix_fadvise(fd_, offset, bytes, kind));
}

Status File::write(std::span<const std::byte> data) {
    while (!data.empty()) {
        const ssize_t put = ::write(fd_, data.data(), data.size());
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put < 0) {
            return failed(path_,
                          "writing " + std::to_string(data.size()) + " bytes at offset " +
                              std::to_string(written_) + " failed",
                          errno);
        }
        written_ += put;
        data = data.subspan(static_cast<std::size_t>(put));
    }
    return {};
}

Status File::write(std::string_view text) {
    return write(std::as_bytes(std::span(text.data(), text.size())));
}

Status File::sync() const {
    if (::fsync(fd_) != 0) {
        return failed(path_, "the file cannot be synced", errno);
    }
    return {};
}

Result<AtomicFile> AtomicFile::create(const std::filesystem::path& path) {
    constexpr int kMaxAttempts = 100;
    std::string name;
    int fd = -1;
    int error = EEXIST;
    for (int attempt = 0; error == EEXIST && attempt < kMaxAttempts; ++attempt) {
        name = path.string() + ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(attempt);
        fd = open_restarting(name, O_WRONLY | O_CREAT | O_EXCL, 0666);
        error = fd < 0 ? errno : 0;
    }
    if (fd < 0) {
        return failed(path, "no temporary file can be created beside it", error);
    }
    return AtomicFile(File(fd, name), path);
}

AtomicFile::~AtomicFile() {
    const bool moved_from = file_.fd_ < 0;
    if (!committed_ && !moved_from) {
        ::unlink(file_.path().c_str());
    }
}

Status AtomicFile::commit() {
    CHECK(!committed_);
    if (Status synced = file_.sync(); !synced) {
        return synced;
    }
    if (::rename(file_.path().c_str(), target_.c_str()) != 0) {
        return failed(target_, "the finished file cannot be given its name", errno);
    }
    committed_ = true;
    const std::filesystem::path folder = target_.parent_path();
    return sync_folder(folder.empty() ? std::filesystem::path(".") : folder);
}

Result<std::string> read_text_file(const std::filesystem::path& path, std::int64_t max_bytes) {
    Result<File> file = File::open(path);
    if (!file) {
        return std::move(file).error();
    }
    const Result<std::int64_t> size = file->size();
    if (!size) {
        return size.error();
    }
    if (*size > max_bytes) {
        return Error{ErrorCode::TooLarge,
                     "at most " + std::to_string(max_bytes) + " bytes were expected, " +
                         std::to_string(*size) + " were found",
                     path.string(), "Check that this is the right file."};
    }
    std::string text(static_cast<std::size_t>(*size), '\0');
    if (Status read = file->read_exact(0, std::as_writable_bytes(std::span(text))); !read) {
        return std::move(read).error();
    }
    return text;
}

}  // namespace terrace
