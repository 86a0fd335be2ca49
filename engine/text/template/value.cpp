#include "engine/text/template/value.h"

#include "engine/text/template/operations.h"
#include "engine/text/template/runtime.h"

namespace terrace::jinja {

namespace {

constexpr std::size_t kNotFound = static_cast<std::size_t>(-1);

}  // namespace

Value Value::none() {
    Value v;
    v.kind = Kind::None;
    return v;
}

Value Value::boolean(bool flag) {
    Value v;
    v.kind = Kind::Bool;
    v.flag = flag;
    return v;
}

Value Value::of_int(BigInt value) {
    Value v;
    v.kind = Kind::Int;
    v.integer = value;
    return v;
}

Value Value::of_float(double value) {
    Value v;
    v.kind = Kind::Float;
    v.real = value;
    return v;
}

Value Value::of(Kind kind, Object* object) {
    Value v;
    v.kind = kind;
    v.object = object;
    return v;
}

const Text& Value::text() const {
    return as<Text>();
}

const std::vector<Value>& Value::items() const {
    return as<Sequence>().items;
}

const Dict& Value::dict() const {
    return as<Dict>();
}

BigInt Value::as_int() const {
    return kind == Kind::Bool ? BigInt{flag ? 1 : 0} : integer;
}

double Value::as_real() const {
    return kind == Kind::Float ? real : static_cast<double>(as_int());
}

const Value* Dict::find(std::string_view key) const {
    const auto found = by_text_.find(key);
    return found == by_text_.end() ? nullptr : &entries[found->second].second;
}

const Value* Dict::find(Runtime& rt, const Value& key) const {
    const std::size_t index = index_of(rt, key);
    return index == kNotFound ? nullptr : &entries[index].second;
}

std::size_t Dict::index_of(Runtime& rt, const Value& key) const {
    if (key.is_string()) {
        const auto found = by_text_.find(key.text().bytes);
        return found == by_text_.end() ? kNotFound : found->second;
    }
    if (n_other_keys_ == 0) {
        return kNotFound;
    }
    for (std::size_t i = 0; i < entries.size() && rt.spend(1); ++i) {
        if (!entries[i].first.is_string() && equals(rt, entries[i].first, key)) {
            return i;
        }
    }
    return kNotFound;
}

void Dict::set(Runtime& rt, const Value& key, const Value& value) {
    if (!check_hashable(rt, key)) {
        return;
    }
    const std::size_t index = index_of(rt, key);
    if (index != kNotFound) {
        entries[index].second = value;
        return;
    }
    rt.charge(2 * sizeof(Value) + (key.is_string() ? 48 : 0));
    if (key.is_string()) {
        by_text_.emplace(key.text().bytes, entries.size());
    } else {
        ++n_other_keys_;
    }
    entries.emplace_back(key, value);
}

std::size_t Range::size() const {
    if (step > 0 && start < stop) {
        return static_cast<std::size_t>((stop - start - 1) / step + 1);
    }
    if (step < 0 && start > stop) {
        return static_cast<std::size_t>((start - stop - 1) / -step + 1);
    }
    return 0;
}

std::string type_name(const Value& value) {
    switch (value.kind) {
        case Kind::Undefined:
            return "Undefined";
        case Kind::None:
            return "NoneType";
        case Kind::Bool:
            return "bool";
        case Kind::Int:
            return "int";
        case Kind::Float:
            return "float";
        case Kind::String:
            return value.text().markup ? "Markup" : "str";
        case Kind::Bytes:
            return "bytes";
        case Kind::List:
            return "list";
        case Kind::Tuple:
            return "tuple";
        case Kind::Dict:
            return "dict";
        case Kind::View: {
            const ViewKind of = value.as<View>().of;
            return of == ViewKind::Keys     ? "dict_keys"
                   : of == ViewKind::Values ? "dict_values"
                                            : "dict_items";
        }
        case Kind::Range:
            return "range";
        case Kind::Iterator:
            return value.as<Iterator>().type_name;
        case Kind::Namespace:
            return "Namespace";
        case Kind::Macro:
            return "Macro";
        case Kind::Function:
            return value.as<Function>().type_name;
        case Kind::Loop:
            return "LoopContext";
        case Kind::Cycler:
            return "Cycler";
        case Kind::Joiner:
            return "Joiner";
        case Kind::Opaque:
            break;
    }
    return "TemplateReference";
}

bool truthy(const Value& value) {
    switch (value.kind) {
        case Kind::Undefined:
        case Kind::None:
            return false;
        case Kind::Bool:
            return value.flag;
        case Kind::Int:
            return value.integer != 0;
        case Kind::Float:
            return value.real != 0.0;
        case Kind::String:
        case Kind::Bytes:
            return !value.text().bytes.empty();
        case Kind::List:
        case Kind::Tuple:
            return !value.items().empty();
        case Kind::Dict:
            return !value.dict().entries.empty();
        case Kind::View:
            return !value.as<View>().dict.dict().entries.empty();
        case Kind::Range:
            return value.as<Range>().size() != 0;
        case Kind::Loop:
            return !value.as<Loop>().items->empty();
        default:
            return true;
    }
}

}  // namespace terrace::jinja
