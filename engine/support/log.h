// A small structured log: one line an event, with named fields. Passed by reference to whoever has
// something to tell; there is no global log.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <ostream>
#include <string>
#include <string_view>

namespace terrace {

enum class LogLevel : std::uint8_t { Debug, Info, Warning, Error };

[[nodiscard]] const char* to_string(LogLevel level);

struct LogField {
    LogField(std::string_view field_name, std::string_view text) : name(field_name), value(text) {}

    LogField(std::string_view field_name, std::int64_t number)
        : name(field_name), value(std::to_string(number)) {}

    std::string_view name;
    std::string value;
};

/// Where events go. Owner: whoever composes the program; outlives all who were given it.
/// Thread-safe. Failure: none; a line that cannot be written is lost.
class Log {
public:
    virtual ~Log() = default;

    /// `event` is a fact in a few words: "file read buffered".
    virtual void write(LogLevel level,
                       std::string_view event,
                       std::initializer_list<LogField> fields) = 0;

    void write(LogLevel level, std::string_view event) { write(level, event, {}); }
};

/// Writes lines like `2026-01-31T12:00:00.123Z warning file read buffered path="a b" errno=22`.
/// The stream outlives the log and is used by nobody else meanwhile.
class TextLog final : public Log {
public:
    TextLog(std::ostream& out, LogLevel least) : out_(out), least_(least) {}

    using Log::write;
    void write(LogLevel level,
               std::string_view event,
               std::initializer_list<LogField> fields) override;

private:
    std::mutex mutex_;  // guards out_
    std::ostream& out_;
    LogLevel least_;
};

/// Drops everything.
class NullLog final : public Log {
public:
    using Log::write;

    void write(LogLevel, std::string_view, std::initializer_list<LogField>) override {}
};

}  // namespace terrace
