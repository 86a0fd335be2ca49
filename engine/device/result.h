// The error contract of the whole engine: what can happen is a value, never an exception.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace terrace {

/// What kind of failure it was; the command line derives its exit status from it.
enum class ErrorCode {
    WrongUse,     ///< the caller asked for something that does not exist or does not fit together
    NotFound,     ///< a file or folder is not there
    Unreadable,   ///< it is there and cannot be read (permission, I/O error)
    Corrupt,      ///< it can be read and breaks its own format
    Incomplete,   ///< parts are missing: a download or an upload that never finished
    Unsupported,  ///< well formed, but a kind that Terrace does not know
    TooLarge,     ///< over a limit, a budget or the context; refused before any work
    OutOfMemory,
    Io,            ///< a read or write failed while running
    Device,        ///< a compute device failed
    NumericFault,  ///< NaN or infinity in the forward pass
    Cancelled,     ///< the user stopped it; a result, never shown as a fault
    Internal,      ///< a promise between our own parts was broken
};

/// Snake-case name of a code, as printed in JSON ("corrupt").
const char* to_string(ErrorCode code);

/// One failure: a sentence a user can read (what was expected, what was found), where it happened,
/// and what to do next. Value type.
struct Error {
    ErrorCode code = ErrorCode::Internal;
    std::string message;
    std::string context;    ///< file, tensor, layer ...: outermost first, joined by ": "
    std::string next_step;  ///< what the user can do; may be empty

    /// Puts `where` in front of the context; for layer boundaries.
    [[nodiscard]] Error in(const std::string& where) &&;
    /// "context: message. next step", for terminals and logs.
    [[nodiscard]] std::string text() const;
};

/// A value or an Error. Look before you use it: value() on an error is a broken promise (CHECK).
template <typename T>
class [[nodiscard]] Result {
public:
    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}

    Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

    [[nodiscard]] bool ok() const { return state_.index() == 0; }

    explicit operator bool() const { return ok(); }

    [[nodiscard]] T& value() & { return std::get<0>(state_); }

    [[nodiscard]] const T& value() const& { return std::get<0>(state_); }

    [[nodiscard]] T&& value() && { return std::get<0>(std::move(state_)); }

    T* operator->() { return &std::get<0>(state_); }

    const T* operator->() const { return &std::get<0>(state_); }

    T& operator*() & { return std::get<0>(state_); }

    const T& operator*() const& { return std::get<0>(state_); }

    [[nodiscard]] const Error& error() const& { return std::get<1>(state_); }

    [[nodiscard]] Error&& error() && { return std::get<1>(std::move(state_)); }

private:
    std::variant<T, Error> state_;
};

/// Success or an Error.
class [[nodiscard]] Status {
public:
    Status() = default;

    Status(Error error) : error_(std::move(error)) {}

    [[nodiscard]] bool ok() const { return !error_.has_value(); }

    explicit operator bool() const { return ok(); }

    [[nodiscard]] const Error& error() const& { return *error_; }

    [[nodiscard]] Error&& error() && { return *std::move(error_); }

private:
    std::optional<Error> error_;
};

}  // namespace terrace
