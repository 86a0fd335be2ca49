// The values a chat template computes with: Python's types as far as templates see them. Every
// string remembers which of its bytes came from the request (people's text) and not the template.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/text/template/text_span.h"

namespace terrace::jinja {

/// Python's integers have no bound; ours have 128 bits and an OverflowError.
__extension__ typedef __int128 BigInt;
__extension__ typedef unsigned __int128 UnsignedBigInt;

/// Who wrote something: the template and its special tokens, or somebody who sent the request.
enum class Origin : std::uint8_t { Trusted, User };

inline Origin mix(Origin a, Origin b) {
    return a == Origin::User ? a : b;
}

enum class Kind : std::uint8_t {
    Undefined,
    None,
    Bool,
    Int,
    Float,
    String,
    Bytes,
    List,
    Tuple,
    Dict,
    View,
    Range,
    Iterator,
    Namespace,
    Macro,
    Function,
    Loop,
    Cycler,
    Joiner,
    Opaque,
};

class Runtime;
struct Value;

/// Base of everything a Value points to. Owner: the Runtime of one rendering (or the syntax tree,
/// for literals); lives until that goes. One thread.
struct Object {
    Object() = default;
    Object(const Object&) = delete;
    Object& operator=(const Object&) = delete;
    virtual ~Object() = default;
};

struct Text;
struct Sequence;
struct Dict;

/// A handle, cheap to copy; never owns what it points to. What it points to is constant, but for
/// namespaces, loops and iterators.
struct Value {
    Kind kind = Kind::Undefined;
    Origin origin = Origin::Trusted;  ///< of the handle itself; a Text has its own spans

    union {
        Object* object = nullptr;
        BigInt integer;
        double real;
        bool flag;
    };

    static Value none();
    static Value boolean(bool flag);
    static Value of_int(BigInt value);
    static Value of_float(double value);
    static Value of(Kind kind, Object* object);

    template <typename T>
    [[nodiscard]] T& as() const {
        return *static_cast<T*>(object);
    }

    [[nodiscard]] const Text& text() const;
    [[nodiscard]] const std::vector<Value>& items() const;  ///< of a List or Tuple
    [[nodiscard]] const Dict& dict() const;

    [[nodiscard]] bool is(Kind k) const { return kind == k; }

    [[nodiscard]] bool is_string() const { return kind == Kind::String; }

    [[nodiscard]] bool is_sequence() const { return kind == Kind::List || kind == Kind::Tuple; }

    [[nodiscard]] bool is_integral() const { return kind == Kind::Int || kind == Kind::Bool; }

    [[nodiscard]] bool is_number() const { return is_integral() || kind == Kind::Float; }

    [[nodiscard]] BigInt as_int() const;   ///< of an Int or Bool
    [[nodiscard]] double as_real() const;  ///< of any number
};

/// A string. `user` are the byte ranges that came from the request, in order and apart.
struct Text final : Object {
    std::string bytes;
    std::vector<TextSpan> user;
    bool markup = false;  ///< made by `safe` or `escape`: joining it escapes the other side
    bool ascii = true;    ///< byte offsets are code point offsets

    [[nodiscard]] bool has_user() const { return !user.empty(); }
};

/// Items of a list or tuple.
struct Sequence final : Object {
    std::vector<Value> items;
};

/// A dict in the order of insertion. Keys follow Python: 1, 1.0 and True are the same key.
struct Dict final : Object {
    std::vector<std::pair<Value, Value>> entries;

    [[nodiscard]] const Value* find(std::string_view key) const;
    [[nodiscard]] const Value* find(Runtime& rt, const Value& key) const;
    /// Keeps the first key and its place, takes the new value. Fails on keys without a hash.
    void set(Runtime& rt, const Value& key, const Value& value);

private:
    [[nodiscard]] std::size_t index_of(Runtime& rt, const Value& key) const;
    std::unordered_map<std::string_view, std::size_t> by_text_;  ///< string keys only
    std::size_t n_other_keys_ = 0;
};

/// Why a value is missing; the message of the error when it is used after all.
struct UndefinedInfo final : Object {
    const char* error_class = nullptr;
    std::string message;
};

enum class ViewKind { Keys, Values, Items };

struct View final : Object {
    Value dict;
    ViewKind of = ViewKind::Items;
};

struct Range final : Object {
    BigInt start = 0;
    BigInt stop = 0;
    BigInt step = 1;

    [[nodiscard]] std::size_t size() const;
};

/// A lazy sequence (generator): can be walked once, has no length and no index.
struct Iterator final : Object {
    const char* type_name = "generator";
    /// Writes the next item; false at the end or after a failure.
    std::function<bool(Runtime&, Value&)> next;
};

struct Namespace final : Object {
    Value attributes;  ///< a Dict
};

struct Args {
    std::vector<Value> positional;
    std::vector<std::pair<std::string, Value>> named;
};

/// A function of ours or a method bound to `self`.
struct Function final : Object {
    std::string_view name;
    const char* type_name = "builtin_function_or_method";
    Value self;
    Value (*call)(Runtime&, const Value& self, const Args&) = nullptr;
};

struct Cycler final : Object {
    std::vector<Value> items;
    std::size_t at = 0;
};

struct Joiner final : Object {
    Value separator;
    bool used = false;
};

/// The `loop` variable. `call` state for recursive loops belongs to the evaluator.
struct Loop final : Object {
    const std::vector<Value>* items = nullptr;  ///< outlives the loop: held by a Sequence
    std::size_t index = 0;
    std::size_t depth = 0;
    Value last_changed;  ///< arguments of the latest changed(), a Tuple
    const void* node = nullptr;
    void* scope = nullptr;
};

/// A macro or the body of a call block: its part of the syntax tree and the scope around it. Only
/// the evaluator looks inside.
struct Macro final : Object {
    const void* node = nullptr;
    void* scope = nullptr;
    std::string_view name;
    Value arguments;  ///< a Tuple of names
    bool takes_kwargs = false;
    bool takes_varargs = false;
    bool takes_caller = false;
};

/// Python's name of the type ("str", "NoneType"), for messages.
std::string type_name(const Value& value);
/// Truth as in `if`.
bool truthy(const Value& value);

}  // namespace terrace::jinja
