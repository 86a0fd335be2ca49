// Methods of lists, tuples, dicts, loops and small helpers, and which methods are unsafe: those
// that change what they are called on.
#include "engine/text/template/methods.h"

#include <algorithm>
#include <array>
#include <span>

#include "engine/text/template/operations.h"

namespace terrace::jinja {

namespace {

Value view_of(Runtime& rt, const Value& self, const Args& args, ViewKind kind) {
    const Parameters none(rt, "dict view", args, {});
    auto* view = rt.make<View>();
    view->dict = self;
    view->of = kind;
    return Value::of(Kind::View, view);
}

Value dict_get(Runtime& rt, const Value& self, const Args& args) {
    const Parameters in(rt, "get", args, {"key", "default"}, 1);
    if (rt.failed() || !check_hashable(rt, in.get(0))) {
        return {};
    }
    const Value* found = self.dict().find(rt, in.get(0));
    return found != nullptr ? *found : in.get(1, Value::none());
}

Value dict_items(Runtime& rt, const Value& self, const Args& args) {
    return view_of(rt, self, args, ViewKind::Items);
}

Value dict_keys(Runtime& rt, const Value& self, const Args& args) {
    return view_of(rt, self, args, ViewKind::Keys);
}

Value dict_values(Runtime& rt, const Value& self, const Args& args) {
    return view_of(rt, self, args, ViewKind::Values);
}

Value dict_copy(Runtime& rt, const Value& self, const Args& args) {
    const Parameters none(rt, "copy", args, {});
    const Value copy = rt.new_dict();
    for (const auto& [key, value] : self.dict().entries) {
        copy.as<Dict>().set(rt, key, value);
    }
    return copy;
}

Value list_copy(Runtime& rt, const Value& self, const Args& args) {
    const Parameters none(rt, "copy", args, {});
    return rt.list(self.items());
}

Value items_count(Runtime& rt, const Value& self, const Args& args) {
    const Parameters in(rt, "count", args, {"value"}, 1);
    BigInt count = 0;
    for (const Value& item : self.items()) {
        count += equals(rt, item, in.get(0)) ? 1 : 0;
    }
    return Value::of_int(count);
}

Value items_index(Runtime& rt, const Value& self, const Args& args) {
    const Parameters in(rt, "index", args, {"value"}, 1);
    for (std::size_t i = 0; i < self.items().size() && !rt.failed(); ++i) {
        if (equals(rt, self.items()[i], in.get(0))) {
            return Value::of_int(static_cast<BigInt>(i));
        }
    }
    return rt.fail(kValueError, repr_plain(rt, in.get(0)) + " is not in list");
}

Value loop_cycle(Runtime& rt, const Value& self, const Args& args) {
    if (args.positional.empty()) {
        return rt.fail_type("no items for cycling given");
    }
    return args.positional[self.as<Loop>().index % args.positional.size()];
}

Value loop_changed(Runtime& rt, const Value& self, const Args& args) {
    auto& loop = self.as<Loop>();
    const Value now = rt.tuple(args.positional);
    const bool changed = !loop.last_changed.is(Kind::Tuple) || !equals(rt, loop.last_changed, now);
    loop.last_changed = now;
    return Value::boolean(changed);
}

Value cycler_next(Runtime&, const Value& self, const Args&) {
    auto& cycler = self.as<Cycler>();
    const Value now = cycler.items[cycler.at];
    cycler.at = (cycler.at + 1) % cycler.items.size();
    return now;
}

Value cycler_reset(Runtime&, const Value& self, const Args&) {
    self.as<Cycler>().at = 0;
    return Value::none();
}

Value bytes_decode(Runtime& rt, const Value& self, const Args&) {
    return slice_bytes(rt, self.text(), 0, self.text().bytes.size());
}

constexpr std::array<Method, 5> kDictMethods{{{"copy", dict_copy},
                                              {"get", dict_get},
                                              {"items", dict_items},
                                              {"keys", dict_keys},
                                              {"values", dict_values}}};
constexpr std::array<Method, 3> kListMethods{
    {{"copy", list_copy}, {"count", items_count}, {"index", items_index}}};
constexpr std::array<Method, 2> kTupleMethods{{{"count", items_count}, {"index", items_index}}};
constexpr std::array<Method, 2> kLoopMethods{{{"changed", loop_changed}, {"cycle", loop_cycle}}};
constexpr std::array<Method, 2> kCyclerMethods{{{"next", cycler_next}, {"reset", cycler_reset}}};
constexpr std::array<Method, 1> kBytesMethods{{{"decode", bytes_decode}}};

std::span<const Method> methods_of(const Value& value) {
    switch (value.kind) {
        case Kind::String:
            return text_methods();
        case Kind::Dict:
            return kDictMethods;
        case Kind::List:
            return kListMethods;
        case Kind::Tuple:
            return kTupleMethods;
        case Kind::Loop:
            return kLoopMethods;
        case Kind::Cycler:
            return kCyclerMethods;
        case Kind::Bytes:
            return kBytesMethods;
        default:
            return {};
    }
}

}  // namespace

const Method* find_method(const Value& value, std::string_view name) {
    for (const Method& method : methods_of(value)) {
        if (method.name == name) {
            return &method;
        }
    }
    return nullptr;
}

bool is_unsafe_method(const Value& value, std::string_view name) {
    static constexpr std::array<std::string_view, 8> kList{"append", "clear",  "extend",  "insert",
                                                           "pop",    "remove", "reverse", "sort"};
    static constexpr std::array<std::string_view, 5> kDict{"clear", "pop", "popitem", "setdefault",
                                                           "update"};
    if (value.is(Kind::List)) {
        return std::find(kList.begin(), kList.end(), name) != kList.end();
    }
    return value.is(Kind::Dict) && std::find(kDict.begin(), kDict.end(), name) != kDict.end();
}

}  // namespace terrace::jinja
