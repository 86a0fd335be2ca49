// Equality, order and membership of values, as in Python.
#include <algorithm>
#include <cmath>

#include "engine/text/template/operations.h"
#include "engine/text/template/text_search.h"

namespace terrace::jinja {

namespace {

bool equal_numbers(const Value& a, const Value& b) {
    if (a.is_integral() && b.is_integral()) {
        return a.as_int() == b.as_int();
    }
    return a.as_real() == b.as_real();
}

bool equal_items(Runtime& rt, const std::vector<Value>& a, const std::vector<Value>& b) {
    if (a.size() != b.size()) {
        return false;
    }
    for (std::size_t i = 0; i < a.size(); ++i) {
        if (!equals(rt, a[i], b[i])) {
            return false;
        }
    }
    return true;
}

bool equal_dicts(Runtime& rt, const Dict& a, const Dict& b) {
    if (a.entries.size() != b.entries.size()) {
        return false;
    }
    for (const auto& [key, value] : a.entries) {
        const Value* other = b.find(rt, key);
        if (other == nullptr || !equals(rt, value, *other)) {
            return false;
        }
    }
    return true;
}

const char* sign(Compare how) {
    switch (how) {
        case Compare::Equal:
            return "==";
        case Compare::NotEqual:
            return "!=";
        case Compare::Less:
            return "<";
        case Compare::LessEqual:
            return "<=";
        case Compare::Greater:
            return ">";
        case Compare::GreaterEqual:
            break;
    }
    return ">=";
}

bool order_holds(Compare how, int order) {
    switch (how) {
        case Compare::Less:
            return order < 0;
        case Compare::LessEqual:
            return order <= 0;
        case Compare::Greater:
            return order > 0;
        default:
            return order >= 0;
    }
}

bool ordered(Runtime& rt, Compare how, const Value& a, const Value& b);

/// Python compares the first items that differ, and the lengths when none does.
bool ordered_items(Runtime& rt, Compare how, const Value& a, const Value& b) {
    const auto& left = a.items();
    const auto& right = b.items();
    const std::size_t n = std::min(left.size(), right.size());
    for (std::size_t i = 0; i < n; ++i) {
        if (!equals(rt, left[i], right[i])) {
            return ordered(rt, how, left[i], right[i]);
        }
    }
    const int order = left.size() < right.size() ? -1 : left.size() > right.size() ? 1 : 0;
    return order_holds(how, order);
}

bool ordered(Runtime& rt, Compare how, const Value& a, const Value& b) {
    const DepthScope scope(rt);
    if (!scope.ok() || !rt.spend(1)) {
        return false;
    }
    if (a.is(Kind::Undefined) || b.is(Kind::Undefined)) {
        rt.fail_undefined(a.is(Kind::Undefined) ? a : b);
        return false;
    }
    if (a.is_integral() && b.is_integral()) {
        const BigInt x = a.as_int();
        const BigInt y = b.as_int();
        return order_holds(how, x < y ? -1 : x > y ? 1 : 0);
    }
    if (a.is_number() && b.is_number()) {
        const double x = a.as_real();
        const double y = b.as_real();
        if (std::isnan(x) || std::isnan(y)) {
            return false;
        }
        return order_holds(how, x < y ? -1 : x > y ? 1 : 0);
    }
    if (a.is_string() && b.is_string()) {
        rt.spend(std::min(a.text().bytes.size(), b.text().bytes.size()) / 64);
        return order_holds(how, a.text().bytes.compare(b.text().bytes));
    }
    if (a.is_sequence() && a.kind == b.kind) {
        return ordered_items(rt, how, a, b);
    }
    rt.fail_type("'" + std::string(sign(how)) + "' not supported between instances of '" +
                 type_name(a) + "' and '" + type_name(b) + "'");
    return false;
}

}  // namespace

bool equals(Runtime& rt, const Value& a, const Value& b) {
    const DepthScope scope(rt);
    if (!scope.ok() || !rt.spend(1)) {
        return false;
    }
    if (a.is_number() && b.is_number()) {
        return equal_numbers(a, b);
    }
    if (a.kind != b.kind) {
        return false;
    }
    switch (a.kind) {
        case Kind::Undefined:
        case Kind::None:
            return true;
        case Kind::String:
        case Kind::Bytes:
            rt.spend(std::min(a.text().bytes.size(), b.text().bytes.size()) / 64);
            return a.text().bytes == b.text().bytes;
        case Kind::List:
        case Kind::Tuple:
            return equal_items(rt, a.items(), b.items());
        case Kind::Dict:
            return equal_dicts(rt, a.dict(), b.dict());
        case Kind::Range: {
            const auto& x = a.as<Range>();
            const auto& y = b.as<Range>();
            return x.size() == y.size() &&
                   (x.size() == 0 || (x.start == y.start && (x.size() == 1 || x.step == y.step)));
        }
        case Kind::Function:
            return a.as<Function>().call == b.as<Function>().call &&
                   a.as<Function>().name == b.as<Function>().name &&
                   a.as<Function>().self.object == b.as<Function>().self.object;
        default:
            return a.object == b.object;
    }
}

bool less(Runtime& rt, const Value& a, const Value& b) {
    return ordered(rt, Compare::Less, a, b);
}

Value compare(Runtime& rt, Compare how, const Value& a, const Value& b) {
    if (how == Compare::Equal) {
        return Value::boolean(equals(rt, a, b));
    }
    if (how == Compare::NotEqual) {
        return Value::boolean(!equals(rt, a, b));
    }
    return Value::boolean(ordered(rt, how, a, b));
}

bool contains(Runtime& rt, const Value& needle, const Value& haystack) {
    if (haystack.is_string()) {
        if (!needle.is_string()) {
            rt.fail_type("'in <string>' requires string as left operand, not " + type_name(needle));
            return false;
        }
        return find_text(rt, haystack.text().bytes, needle.text().bytes, 0) != kNoMatch;
    }
    if (haystack.is(Kind::Dict)) {
        return check_hashable(rt, needle) && haystack.dict().find(rt, needle) != nullptr;
    }
    if (!is_iterable(haystack)) {
        rt.fail_type("argument of type '" + type_name(haystack) + "' is not iterable");
        return false;
    }
    const auto next = walk(rt, haystack);
    Value item;
    while (!rt.failed() && next(rt, item)) {
        if (equals(rt, item, needle)) {
            return true;
        }
    }
    return false;
}

bool check_hashable(Runtime& rt, const Value& key) {
    if (key.is(Kind::List) || key.is(Kind::Dict)) {
        rt.fail_type("unhashable type: '" + type_name(key) + "'");
        return false;
    }
    if (key.is(Kind::Tuple)) {
        const DepthScope scope(rt);
        if (!scope.ok()) {
            return false;
        }
        for (const Value& item : key.items()) {
            if (!rt.spend(1) || !check_hashable(rt, item)) {
                return false;
            }
        }
    }
    return !rt.failed();
}

void stable_sort(Runtime& rt, std::vector<Value>& items, const LessThan& less_than) {
    // Bottom-up merges: safe with an order that fails or contradicts itself, unlike std::sort.
    std::vector<Value> merged(items.size());
    rt.charge(items.size() * sizeof(Value));
    for (std::size_t width = 1; width < items.size() && !rt.failed(); width *= 2) {
        for (std::size_t begin = 0; begin < items.size(); begin += 2 * width) {
            const std::size_t middle = std::min(begin + width, items.size());
            const std::size_t end = std::min(begin + 2 * width, items.size());
            std::size_t left = begin;
            std::size_t right = middle;
            for (std::size_t at = begin; at < end; ++at) {
                rt.spend(1);
                const bool take_right =
                    left == middle || (right < end && less_than(items[right], items[left]));
                merged[at] = take_right ? items[right++] : items[left++];
            }
        }
        items.swap(merged);
    }
}

}  // namespace terrace::jinja
