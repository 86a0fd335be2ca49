// Lines from a person, with editing and a history that outlives the program.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace terrace::cli {

/// On a terminal GNU readline edits; otherwise plain lines are read. Owner: one command; at most
/// one at a time, because readline has one state for the whole program.
class LineReader {
public:
    explicit LineReader(std::filesystem::path historyFile);
    ~LineReader();
    LineReader(const LineReader&) = delete;
    LineReader& operator=(const LineReader&) = delete;

    /// The next line without its end; empty at the end of input.
    [[nodiscard]] std::optional<std::string> read(const char* prompt);

private:
    std::filesystem::path historyFile_;
    bool interactive_;
};

}  // namespace terrace::cli
