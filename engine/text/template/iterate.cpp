// Walking over values: lists, code points of strings, keys of dicts, lazy sequences.
#include <utility>

#include "engine/text/template/characters.h"
#include "engine/text/template/operations.h"

namespace terrace::jinja {

namespace {

using Next = std::function<bool(Runtime&, Value&)>;

Next walk_items(const std::vector<Value>& items) {
    return [&items, i = std::size_t{0}](Runtime& rt, Value& out) mutable {
        if (i >= items.size() || !rt.spend(1)) {
            return false;
        }
        out = items[i++];
        return true;
    };
}

Next walk_text(const Text& text) {
    return [&text, at = std::size_t{0}](Runtime& rt, Value& out) mutable {
        if (at >= text.bytes.size() || !rt.spend(1)) {
            return false;
        }
        const std::size_t n_bytes = decode(text.bytes, at).n_bytes;
        TextBuilder builder(rt);
        builder.add_slice(text, at, at + n_bytes);
        out = builder.take();
        at += n_bytes;
        return true;
    };
}

Next walk_dict(const Dict& dict, ViewKind what) {
    return [&dict, what, i = std::size_t{0}](Runtime& rt, Value& out) mutable {
        if (i >= dict.entries.size() || !rt.spend(1)) {
            return false;
        }
        const auto& [key, value] = dict.entries[i++];
        out = what == ViewKind::Keys     ? key
              : what == ViewKind::Values ? value
                                         : rt.tuple({key, value});
        return true;
    };
}

Next walk_range(const Range& range) {
    return [&range, i = BigInt{0}](Runtime& rt, Value& out) mutable {
        if (i >= static_cast<BigInt>(range.size()) || !rt.spend(1)) {
            return false;
        }
        out = Value::of_int(range.start + range.step * i++);
        return true;
    };
}

Next walk_nothing() {
    return [](Runtime&, Value&) { return false; };
}

}  // namespace

bool is_iterable(const Value& value) {
    switch (value.kind) {
        case Kind::Undefined:
        case Kind::String:
        case Kind::Bytes:
        case Kind::List:
        case Kind::Tuple:
        case Kind::Dict:
        case Kind::View:
        case Kind::Range:
        case Kind::Iterator:
        case Kind::Loop:
            return true;
        default:
            return false;
    }
}

Next walk(Runtime& rt, const Value& value) {
    switch (value.kind) {
        case Kind::Undefined:
            return walk_nothing();
        case Kind::String:
        case Kind::Bytes:
            return walk_text(value.text());
        case Kind::List:
        case Kind::Tuple:
            return walk_items(value.items());
        case Kind::Dict:
            return walk_dict(value.dict(), ViewKind::Keys);
        case Kind::View:
            return walk_dict(value.as<View>().dict.dict(), value.as<View>().of);
        case Kind::Range:
            return walk_range(value.as<Range>());
        case Kind::Iterator:
            // Lazy sequences can stand on each other as deep as a template likes to build them.
            return [value](Runtime& r, Value& out) {
                const DepthScope scope(r);
                return scope.ok() && r.spend(1) && value.as<Iterator>().next(r, out);
            };
        default:
            rt.fail_type("'" + type_name(value) + "' object is not iterable");
            return walk_nothing();
    }
}

std::vector<Value> collect(Runtime& rt, const Value& value) {
    std::vector<Value> items;
    if (value.is_sequence()) {
        items = value.items();
    } else {
        const Next next = walk(rt, value);
        Value item;
        while (!rt.failed() && next(rt, item)) {
            items.push_back(item);
        }
    }
    rt.spend(items.size() / 8);
    return items;
}

std::optional<std::size_t> length(Runtime& rt, const Value& value) {
    switch (value.kind) {
        case Kind::Undefined:
            return 0;
        case Kind::String:
        case Kind::Bytes: {
            const Text& text = value.text();
            if (text.ascii) {
                return text.bytes.size();
            }
            rt.spend(text.bytes.size() / 16);
            return count_code_points(text.bytes);
        }
        case Kind::List:
        case Kind::Tuple:
            return value.items().size();
        case Kind::Dict:
            return value.dict().entries.size();
        case Kind::View:
            return value.as<View>().dict.dict().entries.size();
        case Kind::Range:
            return value.as<Range>().size();
        case Kind::Loop:
            return value.as<Loop>().items->size();
        default:
            rt.fail_type("object of type '" + type_name(value) + "' has no len()");
            return std::nullopt;
    }
}

}  // namespace terrace::jinja
