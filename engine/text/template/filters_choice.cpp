// Filters that choose or turn items one by one (lazily), and those that stand in for a missing
// value: map, select, reject, selectattr, rejectattr, default, attr.
#include <array>

#include "engine/text/template/filters.h"

namespace terrace::jinja {

namespace {

Args rest_of(const Args& args, std::size_t skip) {
    Args rest;
    rest.named = args.named;
    for (std::size_t i = skip; i < args.positional.size(); ++i) {
        rest.positional.push_back(args.positional[i]);
    }
    return rest;
}

Value empty_iterator(Runtime& rt) {
    return rt.iterator([](Runtime&, Value&) { return false; });
}

/// map(attribute='x', default=y)
Value map_attribute(Runtime& rt, const Value& subject, const Args& args) {
    Value attribute;
    std::optional<Value> otherwise;
    for (const auto& [key, value] : args.named) {
        if (key == "attribute") {
            attribute = value;
        } else if (key == "default") {
            otherwise = value;
        } else {
            return rt.fail(kFilterArgumentError, "Unexpected keyword argument '" + key + "'");
        }
    }
    const AttributePath path(rt, attribute);
    const auto next = walk(rt, subject);
    return rt.iterator([path, next, otherwise](Runtime& r, Value& out) {
        Value item;
        if (!next(r, item)) {
            return false;
        }
        const bool given = otherwise && !otherwise->is(Kind::None);
        out = path.read(r, item, given ? &*otherwise : nullptr);
        return !r.failed();
    });
}

Value map(Runtime& rt, const Value& subject, const Args& args) {
    if (!truthy(subject)) {
        return empty_iterator(rt);
    }
    if (args.positional.empty()) {
        for (const auto& entry : args.named) {
            if (entry.first == "attribute") {
                return map_attribute(rt, subject, args);
            }
        }
        return rt.fail(kFilterArgumentError, "map requires a filter argument");
    }
    const std::string name = to_text(rt, args.positional[0]).text().bytes;
    const FilterFunction filter = find_filter(name);
    const auto next = walk(rt, subject);
    return rt.iterator([name, filter, next, rest = rest_of(args, 1)](Runtime& r, Value& out) {
        if (filter == nullptr) {
            r.fail(kRuntimeError, "No filter named '" + name + "'.");
            return false;
        }
        Value item;
        if (!next(r, item)) {
            return false;
        }
        out = filter(r, item, rest);
        return !r.failed();
    });
}

enum class Keep { Passing, Failing };
enum class Look { Item, Attribute };

template <Keep keep, Look look>
Value choose(Runtime& rt, const Value& subject, const Args& args) {
    if (!truthy(subject)) {
        return empty_iterator(rt);
    }
    const std::size_t off = look == Look::Attribute ? 1 : 0;
    if (args.positional.size() < off) {
        return rt.fail(kFilterArgumentError, "Missing parameter for attribute name");
    }
    const AttributePath path(rt, off == 0 ? Value::none() : args.positional[0]);
    const bool has_test = args.positional.size() > off;
    const std::string name = has_test ? to_text(rt, args.positional[off]).text().bytes : "";
    const TestFunction test = has_test ? find_test(name) : nullptr;
    const auto next = walk(rt, subject);
    return rt.iterator([=, rest = rest_of(args, off + 1)](Runtime& r, Value& out) {
        if (has_test && test == nullptr) {
            r.fail(kRuntimeError, "No test named '" + name + "'.");
            return false;
        }
        Value item;
        while (next(r, item) && !r.failed()) {
            const Value looked_at = path.read(r, item);
            const bool passes = has_test ? test(r, looked_at, rest) : truthy(looked_at);
            if (passes == (keep == Keep::Passing) && !r.failed()) {
                out = item;
                return true;
            }
        }
        return false;
    });
}

Value default_filter(Runtime& rt, const Value& subject, const Args& args) {
    const Parameters in(rt, "do_default", args, {"default_value", "boolean"});
    const bool missing = subject.is(Kind::Undefined) || (in.truth(1, false) && !truthy(subject));
    if (!missing) {
        return subject;
    }
    return in.has(0) ? in.get(0) : rt.literal("");
}

/// Attributes only, never keys.
Value attr(Runtime& rt, const Value& subject, const Args& args) {
    Parameters in(rt, "do_attr", args, {"name"}, 1);
    const Text* name = in.string(0);
    if (name == nullptr) {
        return {};
    }
    if (subject.is(Kind::Dict) && find_method(subject, name->bytes) == nullptr) {
        return is_unsafe_method(subject, name->bytes) ? rt.unsafe_attribute(subject, name->bytes)
                                                      : rt.undefined_attribute(subject, in.get(0));
    }
    return get_attribute(rt, subject, name->bytes);
}

constexpr std::array<Filter, 8> kFilters{{
    {"attr", attr},
    {"d", default_filter},
    {"default", default_filter},
    {"map", map},
    {"reject", choose<Keep::Failing, Look::Item>},
    {"rejectattr", choose<Keep::Failing, Look::Attribute>},
    {"select", choose<Keep::Passing, Look::Item>},
    {"selectattr", choose<Keep::Passing, Look::Attribute>},
}};

}  // namespace

std::span<const Filter> choice_filters() {
    return kFilters;
}

}  // namespace terrace::jinja
