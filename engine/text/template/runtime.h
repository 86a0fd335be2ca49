// One rendering: it owns all values, counts work and memory, and keeps the first failure. After a
// failure every operation is a quick no-op that yields undefined, so callers check in loops only.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/template/chat_template.h"
#include "engine/text/template/value.h"

namespace terrace::jinja {

// Classes of errors, named as the reference environment names them.
inline constexpr const char* kSyntaxError = "TemplateSyntaxError";
inline constexpr const char* kAssertionError = "TemplateAssertionError";
inline constexpr const char* kUndefinedError = "UndefinedError";
inline constexpr const char* kRuntimeError = "TemplateRuntimeError";
inline constexpr const char* kSecurityError = "SecurityError";
inline constexpr const char* kTemplateError = "TemplateError";
inline constexpr const char* kTypeError = "TypeError";
inline constexpr const char* kValueError = "ValueError";
inline constexpr const char* kOverflowError = "OverflowError";
inline constexpr const char* kZeroDivisionError = "ZeroDivisionError";
inline constexpr const char* kFilterArgumentError = "FilterArgumentError";
inline constexpr const char* kKeyError = "KeyError";
inline constexpr const char* kLimitError = "LimitError";  ///< ours: over a bound of TemplateLimits

struct Position {
    std::size_t line = 0;
    std::size_t column = 0;
};

/// Owner: the caller of one rendering, on its stack; one thread; dies with the rendering.
class Runtime {
public:
    Runtime(const TemplateLimits& limits, const TemplateClock& clock)
        : limits_(limits), clock_(clock) {}

    template <typename T>
    T* make() {
        auto owned = std::make_unique<T>();
        T* object = owned.get();
        objects_.push_back(std::move(owned));
        charge(sizeof(T) + 2 * sizeof(void*));
        return object;
    }

    /// Counts work; false when the budget is used up or something failed before.
    bool spend(std::size_t steps);
    /// Counts memory; fails when over the limit.
    void charge(std::size_t bytes);

    /// Keeps the first failure, with the present position. Returns undefined.
    Value fail(const char* error_class, std::string message);
    Value fail_type(std::string message);
    Value fail_limit(const std::string& what);

    [[nodiscard]] bool failed() const { return failed_; }

    [[nodiscard]] const TemplateFailure& failure() const { return failure_; }

    [[nodiscard]] const TemplateLimits& limits() const { return limits_; }

    [[nodiscard]] const TemplateClock& clock() const { return clock_; }

    // Makers of values.
    Value text(std::string bytes, Origin origin);
    Value literal(std::string_view bytes);
    Value list(std::vector<Value> items);
    Value tuple(std::vector<Value> items);
    Value sequence(Kind kind, std::vector<Value> items);
    Value new_dict();
    Value undefined(std::string message);
    Value undefined_attribute(const Value& of, const Value& name);
    Value unsafe_attribute(const Value& of, std::string_view name);
    Value iterator(std::function<bool(Runtime&, Value&)> next);
    /// The error of touching an undefined value.
    Value fail_undefined(const Value& undefined);

    Position position;   ///< of the expression now evaluated
    Position statement;  ///< of the statement or printed expression now executed

    /// Counts nested walks over values (printing, comparing); see DepthScope.
    std::size_t depth = 0;

private:
    TemplateLimits limits_;
    TemplateClock clock_;
    std::vector<std::unique_ptr<Object>> objects_;
    std::size_t steps_ = 0;
    std::size_t bytes_ = 0;
    bool failed_ = false;
    TemplateFailure failure_;
};

/// One level of nesting, for as long as it lives; ok() is false when there are too many.
class DepthScope {
public:
    explicit DepthScope(Runtime& rt);

    ~DepthScope() { --rt_.depth; }

    DepthScope(const DepthScope&) = delete;
    DepthScope& operator=(const DepthScope&) = delete;

    [[nodiscard]] bool ok() const { return ok_; }

private:
    Runtime& rt_;
    bool ok_;
};

/// Builds a string piece by piece with the origin of every piece, within the memory limit.
class TextBuilder {
public:
    explicit TextBuilder(Runtime& rt) : rt_(rt) {}

    void add(std::string_view bytes, Origin origin);
    void add(const Text& text);
    /// Bytes [begin, end) of `text` with their origins.
    void add_slice(const Text& text, std::size_t begin, std::size_t end);

    [[nodiscard]] std::size_t size() const { return bytes_.size(); }

    [[nodiscard]] const std::string& bytes() const { return bytes_; }

    [[nodiscard]] const std::vector<TextSpan>& user() const { return user_; }

    /// Ends the building.
    Value take();
    Value take_markup();

private:
    void mark(std::size_t begin, std::size_t end);
    Runtime& rt_;
    std::string bytes_;
    std::vector<TextSpan> user_;
};

/// User when any byte of it is.
Origin origin_of(const Text& text);
/// Origin of the byte at `at`.
Origin origin_at(const Text& text, std::size_t at);
Value slice_bytes(Runtime& rt, const Text& text, std::size_t begin, std::size_t end);

}  // namespace terrace::jinja
