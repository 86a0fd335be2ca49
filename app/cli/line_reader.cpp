#include "app/cli/line_reader.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <system_error>

// readline's own header needs stdio first.
#include <readline/history.h>
#include <readline/readline.h>

namespace terrace::cli {

namespace {

constexpr int kHistoryLines = 1000;

}  // namespace

LineReader::LineReader(std::filesystem::path historyFile)
    : historyFile_(std::move(historyFile)),
      interactive_(::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0) {
    if (!interactive_) {
        return;
    }
    std::error_code ignored;
    std::filesystem::create_directories(historyFile_.parent_path(), ignored);
    // The signal watcher owns Ctrl-C.
    rl_catch_signals = 0;
    using_history();
    read_history(historyFile_.c_str());
    stifle_history(kHistoryLines);
}

LineReader::~LineReader() {
    if (interactive_) {
        write_history(historyFile_.c_str());
    }
}

std::optional<std::string> LineReader::read(const char* prompt) {
    if (!interactive_) {
        std::string line;
        if (!std::getline(std::cin, line)) {
            return std::nullopt;
        }
        return line;
    }
    char* text = ::readline(prompt);
    if (text == nullptr) {
        std::puts("");
        return std::nullopt;
    }
    std::string line(text);
    std::free(text);
    if (!line.empty()) {
        add_history(line.c_str());
    }
    return line;
}

}  // namespace terrace::cli
