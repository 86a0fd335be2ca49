// What can be done with values: comparing, arithmetic, looking things up, printing. All of it
// follows Python and the reference template environment; failures go to the Runtime.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/template/runtime.h"
#include "engine/text/template/value.h"

namespace terrace::jinja {

// compare.cpp
enum class Compare { Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual };

bool equals(Runtime& rt, const Value& a, const Value& b);
bool less(Runtime& rt, const Value& a, const Value& b);
Value compare(Runtime& rt, Compare how, const Value& a, const Value& b);
bool contains(Runtime& rt, const Value& needle, const Value& haystack);
bool check_hashable(Runtime& rt, const Value& key);
/// Stable, by `less_than`, which may fail.
using LessThan = std::function<bool(const Value&, const Value&)>;
void stable_sort(Runtime& rt, std::vector<Value>& items, const LessThan& less_than);

// iterate.cpp
bool is_iterable(const Value& value);
/// All items of anything iterable, strings as code points, dicts as keys; fails on the rest.
std::vector<Value> collect(Runtime& rt, const Value& value);
/// One walk over anything iterable. Empty after a failure.
std::function<bool(Runtime&, Value&)> walk(Runtime& rt, const Value& value);
/// len(); fails where Python has none.
std::optional<std::size_t> length(Runtime& rt, const Value& value);

// arithmetic.cpp
enum class Arithmetic { Add, Subtract, Multiply, Divide, FloorDivide, Modulo, Power };

Value arithmetic(Runtime& rt, Arithmetic how, const Value& a, const Value& b);
Value negate(Runtime& rt, const Value& value);
Value positive(Runtime& rt, const Value& value);
/// The whole part of a real, or nothing when it does not fit.
std::optional<BigInt> whole(double value);

// access.cpp
/// value.name: methods first, then keys.
Value get_attribute(Runtime& rt, const Value& value, std::string_view name);
/// value[key]: keys first, then methods.
Value get_item(Runtime& rt, const Value& value, const Value& key);

/// value[start:stop:step]; undefined kinds stand for missing parts.
struct SliceBounds {
    std::optional<Value> start;
    std::optional<Value> stop;
    std::optional<Value> step;
};

Value get_slice(Runtime& rt, const Value& value, const SliceBounds& bounds);

// print.cpp
std::string int_text(BigInt value);
std::string float_text(double value);
/// str(value) as a Text value; strings come back as they are.
Value to_text(Runtime& rt, const Value& value);
/// Appends str(value) to a builder.
void print(Runtime& rt, const Value& value, TextBuilder& out);
Value repr(Runtime& rt, const Value& value);
std::string repr_plain(Runtime& rt, const Value& value);
/// HTML-escapes &<>'" into `out`, keeping origins.
void print_escaped(const Text& text, TextBuilder& out);
/// The text as markup: escaped unless it is markup already.
Value escape(Runtime& rt, const Value& value);

// json_write.cpp
struct JsonStyle {
    bool ensure_ascii = false;
    bool sort_keys = false;
    std::optional<std::string> indent;
    std::string item_separator = ", ";
    std::string key_separator = ": ";
};

Value to_json(Runtime& rt, const Value& value, const JsonStyle& style);

// json_read.cpp
/// Parses JSON text into values whose strings all come from the user; fails with ValueError.
Value from_json(Runtime& rt, std::string_view json);

// format.cpp and str_format.cpp
/// Python's format % values.
Value format_percent(Runtime& rt, const Text& format, const Value& values);
/// Python's format.format(args).
Value format_braces(Runtime& rt, const Text& format, const Args& args);

// functions.cpp
/// raise_exception, range, dict, namespace, strftime_now, cycler, joiner, lipsum as a Function
/// value; nothing if unknown.
std::optional<Value> find_global(Runtime& rt, std::string_view name);

// filters.cpp, value_tests.cpp
using FilterFunction = Value (*)(Runtime&, const Value& subject, const Args&);
using TestFunction = bool (*)(Runtime&, const Value& subject, const Args&);
FilterFunction find_filter(std::string_view name);
TestFunction find_test(std::string_view name);

// methods.cpp
struct Method {
    std::string_view name;
    Value (*call)(Runtime&, const Value& self, const Args&);
};

/// The method of a value's type, or null.
const Method* find_method(const Value& value, std::string_view name);
/// Methods that exist in Python and change the value: naming them is allowed, using them is not.
bool is_unsafe_method(const Value& value, std::string_view name);

/// Binds arguments to names as Python does. After a failure every value is missing.
class Parameters {
public:
    Parameters(Runtime& rt,
               std::string_view function,
               const Args& args,
               std::initializer_list<std::string_view> names,
               std::size_t n_required = 0);

    [[nodiscard]] bool has(std::size_t i) const { return values_[i].has_value(); }

    /// Given and not None.
    [[nodiscard]] bool some(std::size_t i) const { return has(i) && !values_[i]->is(Kind::None); }

    [[nodiscard]] Value get(std::size_t i, const Value& otherwise = {}) const {
        return has(i) ? *values_[i] : otherwise;
    }

    [[nodiscard]] BigInt integer(std::size_t i, BigInt otherwise);

    [[nodiscard]] bool truth(std::size_t i, bool otherwise) const {
        return has(i) ? truthy(*values_[i]) : otherwise;
    }

    /// The text of a string argument; fails with TypeError on anything else.
    [[nodiscard]] const Text* string(std::size_t i);

private:
    Runtime& rt_;
    std::string function_;
    std::vector<std::optional<Value>> values_;
};

}  // namespace terrace::jinja
