// x.name, x[key] and x[a:b:c]. Attribute syntax finds methods before keys, bracket syntax the
// other way round; what is missing is undefined, what is unsafe may be named but not used.
#include <algorithm>
#include <array>

#include "engine/text/template/characters.h"
#include "engine/text/template/operations.h"

namespace terrace::jinja {

namespace {

/// Names that every Python object has; a template may name them and nothing else.
bool is_internal_name(std::string_view name) {
    static constexpr std::array<std::string_view, 28> kNames{
        "__class__",  "__delattr__",   "__dir__",          "__doc__",
        "__eq__",     "__format__",    "__ge__",           "__getattribute__",
        "__gt__",     "__hash__",      "__init__",         "__init_subclass__",
        "__le__",     "__lt__",        "__ne__",           "__new__",
        "__reduce__", "__reduce_ex__", "__repr__",         "__setattr__",
        "__sizeof__", "__str__",       "__subclasshook__", "__len__",
        "__iter__",   "__contains__",  "__getitem__",      "__add__"};
    return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

Value bound(Runtime& rt, const Value& self, const Method& method) {
    auto* function = rt.make<Function>();
    function->name = method.name;
    function->self = self;
    function->call = method.call;
    return Value::of(Kind::Function, function);
}

Value loop_attribute(Runtime& rt, const Value& value, std::string_view name) {
    const auto& loop = value.as<Loop>();
    const auto number = [](std::size_t n) { return Value::of_int(static_cast<BigInt>(n)); };
    const std::size_t n = loop.items->size();
    if (name == "index") {
        return number(loop.index + 1);
    }
    if (name == "index0") {
        return number(loop.index);
    }
    if (name == "revindex") {
        return number(n - loop.index);
    }
    if (name == "revindex0") {
        return number(n - loop.index - 1);
    }
    if (name == "first") {
        return Value::boolean(loop.index == 0);
    }
    if (name == "last") {
        return Value::boolean(loop.index + 1 == n);
    }
    if (name == "length") {
        return number(n);
    }
    if (name == "depth") {
        return number(loop.depth + 1);
    }
    if (name == "depth0") {
        return number(loop.depth);
    }
    if (name == "previtem") {
        return loop.index == 0 ? rt.undefined("there is no previous item")
                               : (*loop.items)[loop.index - 1];
    }
    if (name == "nextitem") {
        return loop.index + 1 == n ? rt.undefined("there is no next item")
                                   : (*loop.items)[loop.index + 1];
    }
    return rt.undefined_attribute(value, rt.literal(name));
}

/// What Python's getattr would find, or nothing.
std::optional<Value> python_attribute(Runtime& rt, const Value& value, std::string_view name) {
    if (is_internal_name(name) || is_unsafe_method(value, name)) {
        return rt.unsafe_attribute(value, name);
    }
    if (const Method* method = find_method(value, name)) {
        return bound(rt, value, *method);
    }
    if (value.is(Kind::Namespace)) {
        const Value* found = value.as<Namespace>().attributes.dict().find(name);
        return found == nullptr ? std::nullopt : std::optional(*found);
    }
    if (value.is(Kind::Loop)) {
        return loop_attribute(rt, value, name);
    }
    if (value.is(Kind::Macro)) {
        const auto& macro = value.as<Macro>();
        if (name == "name") {
            return rt.literal(macro.name);
        }
        if (name == "arguments") {
            return macro.arguments;
        }
        if (name == "catch_kwargs" || name == "catch_varargs" || name == "caller") {
            return Value::boolean(name == "caller"         ? macro.takes_caller
                                  : name == "catch_kwargs" ? macro.takes_kwargs
                                                           : macro.takes_varargs);
        }
    }
    if (value.is(Kind::Cycler) && name == "current") {
        return value.as<Cycler>().items[value.as<Cycler>().at];
    }
    if (value.is_integral() && (name == "real" || name == "numerator")) {
        return Value::of_int(value.as_int());
    }
    return std::nullopt;
}

std::optional<Value> item_at(Runtime& rt, const Value& value, BigInt index) {
    const auto size = length(rt, value);
    if (!size) {
        return std::nullopt;
    }
    const BigInt n = static_cast<BigInt>(*size);
    const BigInt at = index < 0 ? index + n : index;
    if (at < 0 || at >= n) {
        return std::nullopt;
    }
    if (value.is_sequence()) {
        return value.items()[static_cast<std::size_t>(at)];
    }
    if (value.is(Kind::Range)) {
        const auto& range = value.as<Range>();
        return Value::of_int(range.start + range.step * at);
    }
    const Text& text = value.text();
    std::size_t begin = static_cast<std::size_t>(at);
    if (!text.ascii) {
        rt.spend(text.bytes.size() / 16);
        begin = 0;
        for (BigInt i = 0; i < at; ++i) {
            begin += decode(text.bytes, begin).n_bytes;
        }
    }
    return slice_bytes(rt, text, begin, begin + decode(text.bytes, begin).n_bytes);
}

/// value[key] of Python itself, or nothing where that raises.
std::optional<Value> python_item(Runtime& rt, const Value& value, const Value& key) {
    if (value.is(Kind::Dict)) {
        if (key.is(Kind::List) || key.is(Kind::Dict)) {
            return std::nullopt;
        }
        const Value* found = value.dict().find(rt, key);
        return found == nullptr ? std::nullopt : std::optional(*found);
    }
    const bool indexed = value.is_string() || value.is_sequence() || value.is(Kind::Range);
    return indexed && key.is_integral() ? item_at(rt, value, key.as_int()) : std::nullopt;
}

/// The bounds of a slice as Python's slice.indices gives them.
struct Indices {
    BigInt start = 0;
    BigInt stop = 0;
    BigInt step = 1;
};

std::optional<BigInt> bound_of(Runtime& rt, const std::optional<Value>& part) {
    if (!part || part->is(Kind::None)) {
        return std::nullopt;
    }
    if (!part->is_integral()) {
        rt.fail_type("slice indices must be integers or None or have an __index__ method");
        return std::nullopt;
    }
    return part->as_int();
}

Indices indices_of(Runtime& rt, const SliceBounds& bounds, BigInt n) {
    Indices out;
    out.step = bound_of(rt, bounds.step).value_or(1);
    if (out.step == 0) {
        rt.fail(kValueError, "slice step cannot be zero");
        return {0, 0, 1};
    }
    const bool forward = out.step > 0;
    const auto place = [&](const std::optional<Value>& part, BigInt otherwise) {
        const auto given = bound_of(rt, part);
        if (!given) {
            return otherwise;
        }
        const BigInt at = *given < 0 ? *given + n : *given;
        const BigInt low = forward ? 0 : -1;
        const BigInt high = forward ? n : n - 1;
        return at < low ? low : at > high ? high : at;
    };
    out.start = place(bounds.start, forward ? 0 : n - 1);
    out.stop = place(bounds.stop, forward ? n : -1);
    // A step past the end is a step of n: keeps the sums below inside the type.
    out.step = std::clamp(out.step, -n - 1, n + 1);
    return out;
}

Value slice_text(Runtime& rt, const Value& value, const SliceBounds& bounds) {
    const Text& text = value.text();
    std::vector<std::size_t> offsets;  // of code points; only when they differ from bytes
    if (!text.ascii) {
        for (std::size_t at = 0; at < text.bytes.size(); at += decode(text.bytes, at).n_bytes) {
            offsets.push_back(at);
        }
        rt.spend(text.bytes.size() / 16);
        offsets.push_back(text.bytes.size());
    }
    const std::size_t n = text.ascii ? text.bytes.size() : offsets.size() - 1;
    const auto offset = [&](BigInt i) {
        const auto at = static_cast<std::size_t>(i);
        return text.ascii ? at : offsets[at];
    };
    const Indices at = indices_of(rt, bounds, static_cast<BigInt>(n));
    if (at.step == 1) {
        return slice_bytes(rt, text, offset(at.start), offset(std::max(at.start, at.stop)));
    }
    TextBuilder builder(rt);
    for (BigInt i = at.start; (at.step > 0 ? i < at.stop : i > at.stop) && rt.spend(1);
         i += at.step) {
        builder.add_slice(text, offset(i), offset(i + 1));
    }
    return text.markup ? builder.take_markup() : builder.take();
}

}  // namespace

Value get_attribute(Runtime& rt, const Value& value, std::string_view name) {
    if (rt.failed()) {
        return {};
    }
    if (value.is(Kind::Undefined)) {
        return is_internal_name(name) ? rt.unsafe_attribute(value, name) : rt.fail_undefined(value);
    }
    if (const auto found = python_attribute(rt, value, name)) {
        return *found;
    }
    if (value.is(Kind::Dict)) {
        if (const Value* found = value.dict().find(name)) {
            return *found;
        }
    }
    return rt.undefined_attribute(value, rt.literal(name));
}

Value get_item(Runtime& rt, const Value& value, const Value& key) {
    if (rt.failed()) {
        return {};
    }
    if (value.is(Kind::Undefined)) {
        return rt.fail_undefined(value);
    }
    if (const auto found = python_item(rt, value, key)) {
        return *found;
    }
    if (key.is_string()) {
        if (const auto found = python_attribute(rt, value, key.text().bytes)) {
            return *found;
        }
    }
    return rt.undefined_attribute(value, key);
}

Value get_slice(Runtime& rt, const Value& value, const SliceBounds& bounds) {
    if (rt.failed()) {
        return {};
    }
    if (value.is(Kind::Undefined)) {
        return rt.fail_undefined(value);
    }
    if (value.is_string()) {
        return slice_text(rt, value, bounds);
    }
    if (value.is(Kind::Dict)) {
        return rt.fail_type("unhashable type: 'slice'");
    }
    if (!value.is_sequence() && !value.is(Kind::Range)) {
        return rt.fail_type("'" + type_name(value) + "' object is not subscriptable");
    }
    if (value.is(Kind::Range)) {
        return get_slice(rt, rt.list(collect(rt, value)), bounds);
    }
    const auto& items = value.items();
    const Indices at = indices_of(rt, bounds, static_cast<BigInt>(items.size()));
    std::vector<Value> out;
    for (BigInt i = at.start; at.step > 0 ? i < at.stop : i > at.stop; i += at.step) {
        out.push_back(items[static_cast<std::size_t>(i)]);
    }
    return rt.sequence(value.kind, std::move(out));
}

}  // namespace terrace::jinja
