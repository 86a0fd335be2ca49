#include "engine/model/json_text.h"

#include <algorithm>
#include <exception>

#include "engine/model/printable.h"
#include "engine/support/file.h"

namespace terrace {
namespace {

namespace fs = std::filesystem;

const char* kind_name(fs::file_type type) {
    switch (type) {
        case fs::file_type::directory:
            return "a folder";
        case fs::file_type::fifo:
            return "a named pipe";
        case fs::file_type::socket:
            return "a socket";
        case fs::file_type::character:
        case fs::file_type::block:
            return "a device";
        default:
            return "something else";
    }
}

/// The line around `byte`, so that a reader sees the key that is to blame.
std::string excerpt(std::string_view text, std::size_t byte) {
    const std::size_t at = std::min(byte, text.size());
    std::size_t begin = at > 50 ? at - 50 : 0;
    std::size_t end = std::min(at + 20, text.size());
    const std::size_t line = text.substr(begin, at - begin).rfind('\n');
    if (line != std::string_view::npos && at - (begin + line) > 5) {
        begin += line + 1;
    }
    const std::size_t line_end = text.substr(at, end - at).find('\n');
    if (line_end != std::string_view::npos) {
        end = at + line_end;
    }
    while (begin < end && text[begin] == ' ') {
        ++begin;
    }
    return printable(text.substr(begin, end - begin), 120);
}

template <typename Json>
Result<Json> parse_as(std::string_view text) {
    if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
        return Error{ErrorCode::Corrupt, "JSON was expected, the file is empty", "",
                     "Download the file again."};
    }
    if (json_depth(text, kMaxJsonDepth) > kMaxJsonDepth) {
        return Error{ErrorCode::Corrupt,
                     "at most " + std::to_string(kMaxJsonDepth) +
                         " levels of brackets were expected, the text is nested deeper",
                     "", "Download the file again."};
    }
    try {
        return Json::parse(text);
    } catch (const nlohmann::json::parse_error& e) {
        return Error{ErrorCode::Corrupt,
                     "valid JSON was expected, at byte " + std::to_string(e.byte) +
                         " it breaks off: " + excerpt(text, e.byte),
                     "", "Download the file again."};
    } catch (const std::exception& e) {
        return Error{ErrorCode::Corrupt,
                     std::string("valid JSON was expected: ") + printable(e.what()), "",
                     "Download the file again."};
    }
}

}  // namespace

Status check_regular_file(const fs::path& path) {
    std::error_code link_error;
    std::error_code error;
    const bool is_link = fs::is_symlink(fs::symlink_status(path, link_error));
    const fs::file_status status = fs::status(path, error);
    const std::string name = printable_path(path.filename());
    if (status.type() == fs::file_type::regular) {
        return {};
    }
    if (status.type() == fs::file_type::not_found) {
        if (is_link) {
            return Error{ErrorCode::Incomplete, "the link points to a file that does not exist",
                         name, "Download the model again, or remove the link."};
        }
        return Error{ErrorCode::NotFound, "the file does not exist", name,
                     "Check that the download is complete."};
    }
    if (status.type() == fs::file_type::none) {
        return Error{ErrorCode::Unreadable, "the file cannot be examined: " + error.message(), name,
                     is_link ? "Remove the link, or download the model again."
                             : "Check the permissions of the folder."};
    }
    return Error{
        ErrorCode::Corrupt,
        std::string("a regular file was expected, ") + kind_name(status.type()) + " was found",
        name, "Put the model's own file in its place."};
}

Result<std::string> read_folder_text(const fs::path& path, std::int64_t max_bytes) {
    if (Status regular = check_regular_file(path); !regular) {
        return std::move(regular).error();
    }
    Result<std::string> text = read_text_file(path, max_bytes);
    if (!text) {
        Error error = std::move(text).error();
        error.context = printable_path(path.filename());
        return error;
    }
    return text;
}

int json_depth(std::string_view text, int limit) {
    int depth = 0;
    int deepest = 0;
    bool in_string = false;
    for (std::size_t i = 0; i < text.size() && deepest <= limit; ++i) {
        const char c = text[i];
        if (in_string) {
            i += c == '\\' ? 1 : 0;
            in_string = c != '"';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            deepest = std::max(deepest, ++depth);
        } else if (c == '}' || c == ']') {
            --depth;
        }
    }
    return deepest;
}

Result<nlohmann::json> parse_json(std::string_view text) {
    return parse_as<nlohmann::json>(text);
}

Result<nlohmann::ordered_json> parse_ordered_json(std::string_view text) {
    return parse_as<nlohmann::ordered_json>(text);
}

std::string quoted(const nlohmann::json& value) {
    try {
        return printable(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), 80);
    } catch (const std::exception&) {
        return "a value that cannot be shown";
    }
}

}  // namespace terrace
