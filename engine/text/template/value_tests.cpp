// The tests of `x is ...`.
#include <array>

#include "engine/text/template/filters.h"
#include "engine/text/template/operations.h"

namespace terrace::jinja {

namespace {

template <Kind kind>
bool is_kind(Runtime& rt, const Value& subject, const Args& args) {
    const Parameters none(rt, "test", args, {});
    return subject.is(kind);
}

bool is_defined(Runtime& rt, const Value& subject, const Args& args) {
    return !is_kind<Kind::Undefined>(rt, subject, args);
}

bool is_true(Runtime&, const Value& subject, const Args&) {
    return subject.is(Kind::Bool) && subject.flag;
}

bool is_false(Runtime&, const Value& subject, const Args&) {
    return subject.is(Kind::Bool) && !subject.flag;
}

bool is_number(Runtime&, const Value& subject, const Args&) {
    return subject.is_number();
}

bool is_callable(Runtime&, const Value& subject, const Args&) {
    return subject.is(Kind::Function) || subject.is(Kind::Macro) || subject.is(Kind::Loop) ||
           subject.is(Kind::Joiner) || subject.is(Kind::Undefined);
}

bool is_iterable_test(Runtime&, const Value& subject, const Args&) {
    return is_iterable(subject);
}

/// Something with a length and with items by index.
bool is_sequence(Runtime&, const Value& subject, const Args&) {
    switch (subject.kind) {
        case Kind::Undefined:
        case Kind::String:
        case Kind::Bytes:
        case Kind::List:
        case Kind::Tuple:
        case Kind::Dict:
        case Kind::Range:
            return true;
        default:
            return false;
    }
}

bool is_rest(Runtime& rt, const Value& subject, BigInt divisor, BigInt rest) {
    const Value left = arithmetic(rt, Arithmetic::Modulo, subject, Value::of_int(divisor));
    return !rt.failed() && equals(rt, left, Value::of_int(rest));
}

bool is_even(Runtime& rt, const Value& subject, const Args&) {
    return is_rest(rt, subject, 2, 0);
}

bool is_odd(Runtime& rt, const Value& subject, const Args&) {
    return is_rest(rt, subject, 2, 1);
}

bool is_divisible(Runtime& rt, const Value& subject, const Args& args) {
    Parameters in(rt, "test_divisibleby", args, {"num"}, 1);
    const BigInt divisor = in.integer(0, 1);
    return !rt.failed() && is_rest(rt, subject, divisor, 0);
}

template <Compare how>
bool compares(Runtime& rt, const Value& subject, const Args& args) {
    const Parameters in(rt, "comparison", args, {"other"}, 1);
    return !rt.failed() && compare(rt, how, subject, in.get(0)).flag;
}

bool is_in(Runtime& rt, const Value& subject, const Args& args) {
    const Parameters in(rt, "test_in", args, {"seq"}, 1);
    return !rt.failed() && contains(rt, subject, in.get(0));
}

/// Identity in Python; small values are the same object there, so equality of kind and value.
bool is_same(Runtime& rt, const Value& subject, const Args& args) {
    const Parameters in(rt, "test_sameas", args, {"other"}, 1);
    const Value other = in.get(0);
    if (subject.kind != other.kind) {
        return false;
    }
    const bool by_object = subject.is_sequence() || subject.is(Kind::Dict);
    return by_object ? subject.object == other.object : equals(rt, subject, other);
}

bool calls_true(Runtime& rt, const Value& subject, std::string_view method) {
    const Value text = to_text(rt, subject);
    const Method* found = find_method(text, method);
    return truthy(found->call(rt, text, {}));
}

bool is_lower(Runtime& rt, const Value& subject, const Args&) {
    return calls_true(rt, subject, "islower");
}

bool is_upper(Runtime& rt, const Value& subject, const Args&) {
    return calls_true(rt, subject, "isupper");
}

bool is_escaped(Runtime&, const Value& subject, const Args&) {
    return subject.is_string() && subject.text().markup;
}

bool names_filter(Runtime&, const Value& subject, const Args&) {
    return subject.is_string() && find_filter(subject.text().bytes) != nullptr;
}

bool names_test(Runtime&, const Value& subject, const Args&) {
    return subject.is_string() && find_test(subject.text().bytes) != nullptr;
}

struct Test {
    std::string_view name;
    TestFunction call;
};

constexpr std::array<Test, 39> kTests{{
    {"!=", compares<Compare::NotEqual>},
    {"<", compares<Compare::Less>},
    {"<=", compares<Compare::LessEqual>},
    {"==", compares<Compare::Equal>},
    {">", compares<Compare::Greater>},
    {">=", compares<Compare::GreaterEqual>},
    {"boolean", is_kind<Kind::Bool>},
    {"callable", is_callable},
    {"defined", is_defined},
    {"divisibleby", is_divisible},
    {"eq", compares<Compare::Equal>},
    {"equalto", compares<Compare::Equal>},
    {"escaped", is_escaped},
    {"even", is_even},
    {"false", is_false},
    {"filter", names_filter},
    {"float", is_kind<Kind::Float>},
    {"ge", compares<Compare::GreaterEqual>},
    {"greaterthan", compares<Compare::Greater>},
    {"gt", compares<Compare::Greater>},
    {"in", is_in},
    {"integer", is_kind<Kind::Int>},
    {"iterable", is_iterable_test},
    {"le", compares<Compare::LessEqual>},
    {"lessthan", compares<Compare::Less>},
    {"lower", is_lower},
    {"lt", compares<Compare::Less>},
    {"mapping", is_kind<Kind::Dict>},
    {"ne", compares<Compare::NotEqual>},
    {"none", is_kind<Kind::None>},
    {"number", is_number},
    {"odd", is_odd},
    {"sameas", is_same},
    {"sequence", is_sequence},
    {"string", is_kind<Kind::String>},
    {"test", names_test},
    {"true", is_true},
    {"undefined", is_kind<Kind::Undefined>},
    {"upper", is_upper},
}};

}  // namespace

TestFunction find_test(std::string_view name) {
    for (const Test& test : kTests) {
        if (test.name == name) {
            return test.call;
        }
    }
    return nullptr;
}

}  // namespace terrace::jinja
