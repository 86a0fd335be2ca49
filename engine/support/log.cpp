#include "engine/support/log.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>

namespace terrace {
namespace {

std::string utc_now() {
    const auto now = std::chrono::system_clock::now();
    const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
    const auto since = now.time_since_epoch();
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(since).count() % 1000;
    std::tm parts = {};
    ::gmtime_r(&seconds, &parts);
    std::array<char, 32> text = {};
    const std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
    std::array<char, 8> tail = {};
    std::snprintf(tail.data(), tail.size(), ".%03dZ", static_cast<int>(ms));
    return std::string(text.data(), length) + tail.data();
}

/// Values with spaces, quotes or control characters are quoted: one event stays one line.
void append_value(std::string& line, const std::string& value) {
    constexpr std::string_view kNeedsQuotes = " \"\\=\n\r\t";
    if (!value.empty() && value.find_first_of(kNeedsQuotes) == std::string::npos) {
        line += value;
        return;
    }
    line += '"';
    for (const char c : value) {
        if (c == '"' || c == '\\') {
            line += '\\';
            line += c;
        } else if (c == '\n') {
            line += "\\n";
        } else if (static_cast<unsigned char>(c) < 0x20) {
            line += ' ';
        } else {
            line += c;
        }
    }
    line += '"';
}

}  // namespace

const char* to_string(LogLevel level) {
    switch (level) {
        case LogLevel::Debug:
            return "debug";
        case LogLevel::Info:
            return "info";
        case LogLevel::Warning:
            return "warning";
        case LogLevel::Error:
            return "error";
    }
    return "error";
}

void TextLog::write(LogLevel level,
                    std::string_view event,
                    std::initializer_list<LogField> fields) {
    if (level < least_) {
        return;
    }
    std::string line = utc_now();
    line += ' ';
    line += to_string(level);
    line += ' ';
    line += event;
    for (const LogField& field : fields) {
        line += ' ';
        line += field.name;
        line += '=';
        append_value(line, field.value);
    }
    line += '\n';
    const std::lock_guard lock(mutex_);
    out_ << line;
    out_.flush();
}

}  // namespace terrace
