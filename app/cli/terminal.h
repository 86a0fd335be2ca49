// What the command line writes, and where: results to stdout, everything else to stderr.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/device/result.h"

namespace terrace::cli {

/// Exit statuses of every command (docs/cli.md).
enum class Exit : int { Done = 0, Failed = 1, WrongUse = 2, Refused = 3, Stopped = 130 };

/// The status that a failure ends the program with.
[[nodiscard]] Exit exitFor(ErrorCode code);

enum class Verbosity { Quiet, Normal, Verbose };

enum class Format { Text, Json };

/// The two output channels of one command. Owner: main. Thread: one.
class Terminal {
public:
    Terminal(Format format, Verbosity verbosity);

    /// Result text, as it stands. A lost stdout is remembered: see outputLost().
    void out(std::string_view text) const;

    /// Whether some result text could not be written (a full disk, a closed channel).
    [[nodiscard]] bool outputLost() const { return outputLost_; }

    /// A line on stderr unless --quiet.
    void note(std::string_view line) const;
    /// A line on stderr with --verbose.
    void detail(std::string_view line) const;
    void warn(std::string_view line) const;

    /// A progress line that is overwritten; only on a terminal, at most ten times a second.
    void progress(const char* stage, std::int64_t done, std::int64_t total, const char* unit);
    void endProgress();

    /// Reports a failure in the chosen format and gives its exit status.
    [[nodiscard]] Exit fail(const Error& error) const;

    [[nodiscard]] bool json() const { return format_ == Format::Json; }

    [[nodiscard]] Verbosity verbosity() const { return verbosity_; }

private:
    Format format_;
    Verbosity verbosity_;
    bool interactive_;  ///< stderr is a terminal
    mutable bool outputLost_ = false;
    double lastProgress_ = -1.0;
    double stageStart_ = 0.0;
    std::string stage_;
    bool progressShown_ = false;
};

}  // namespace terrace::cli
