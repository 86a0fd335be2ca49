#include "app/cli/terminal.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace terrace::cli {

namespace {

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

bool colourWanted() {
    return ::isatty(STDERR_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
}

}  // namespace

Exit exitFor(ErrorCode code) {
    switch (code) {
        case ErrorCode::WrongUse:
            return Exit::WrongUse;
        case ErrorCode::TooLarge:
        case ErrorCode::Unsupported:
            return Exit::Refused;
        case ErrorCode::Cancelled:
            return Exit::Stopped;
        default:
            return Exit::Failed;
    }
}

Terminal::Terminal(Format format, Verbosity verbosity)
    : format_(format), verbosity_(verbosity), interactive_(::isatty(STDERR_FILENO) != 0) {}

void Terminal::out(std::string_view text) const {
    const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
    if (std::fflush(stdout) != 0 || !written) {
        outputLost_ = true;
    }
}

void Terminal::note(std::string_view line) const {
    if (verbosity_ != Verbosity::Quiet) {
        std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
    }
}

void Terminal::detail(std::string_view line) const {
    if (verbosity_ == Verbosity::Verbose) {
        note(line);
    }
}

void Terminal::warn(std::string_view line) const {
    if (verbosity_ != Verbosity::Quiet) {
        const bool colour = colourWanted();
        std::fprintf(stderr, "%swarning:%s %.*s\n", colour ? "\033[33m" : "",
                     colour ? "\033[0m" : "", static_cast<int>(line.size()), line.data());
    }
}

void Terminal::progress(const char* stage,
                        std::int64_t done,
                        std::int64_t total,
                        const char* unit) {
    if (!interactive_ || verbosity_ == Verbosity::Quiet || total <= 0) {
        return;
    }
    const double time = now();
    if (stage_ != stage) {
        stage_ = stage;
        stageStart_ = time;
        lastProgress_ = -1.0;
    }
    if (time - lastProgress_ < 0.1 && done < total) {
        return;
    }
    lastProgress_ = time;
    progressShown_ = true;
    const double share = static_cast<double>(done) / static_cast<double>(total);
    const double elapsed = time - stageStart_;
    std::array<char, 32> left{};
    if (share > 0.05 && done < total) {
        std::snprintf(left.data(), left.size(), ", %.0f s left", elapsed / share - elapsed);
    }
    std::string bar(20, '.');
    std::fill_n(bar.begin(), static_cast<std::size_t>(std::clamp(share, 0.0, 1.0) * 20), '#');
    const double rate = elapsed > 0.01 ? static_cast<double>(done) / elapsed : 0.0;
    std::fprintf(stderr, "\r\033[K%s [%s] %3.0f %%, %.0f %s/s%s", stage, bar.c_str(), share * 100,
                 rate, unit, left.data());
    std::fflush(stderr);
}

void Terminal::endProgress() {
    if (progressShown_) {
        std::fprintf(stderr, "\r\033[K");
        std::fflush(stderr);
        progressShown_ = false;
    }
}

Exit Terminal::fail(const Error& error) const {
    if (json()) {
        nlohmann::ordered_json json;
        json["error"] = {{"code", to_string(error.code)},
                         {"message", error.message},
                         {"context", error.context},
                         {"next_step", error.next_step}};
        out(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
        return exitFor(error.code);
    }
    const bool colour = colourWanted();
    std::fprintf(stderr, "%serror:%s %s\n", colour ? "\033[31m" : "", colour ? "\033[0m" : "",
                 error.text().c_str());
    return exitFor(error.code);
}

}  // namespace terrace::cli
