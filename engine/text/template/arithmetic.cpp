// The operators + - * / // % ** of Python on numbers, texts and lists.
#include <cmath>
#include <limits>

#include "engine/text/template/operations.h"

namespace terrace::jinja {

namespace {

constexpr BigInt kMaxInt = static_cast<BigInt>(~static_cast<UnsignedBigInt>(0) >> 1U);
constexpr BigInt kMinInt = -kMaxInt - 1;

const char* sign(Arithmetic how) {
    switch (how) {
        case Arithmetic::Add:
            return "+";
        case Arithmetic::Subtract:
            return "-";
        case Arithmetic::Multiply:
            return "*";
        case Arithmetic::Divide:
            return "/";
        case Arithmetic::FloorDivide:
            return "//";
        case Arithmetic::Modulo:
            return "%";
        case Arithmetic::Power:
            break;
    }
    return "** or pow()";
}

Value overflow(Runtime& rt) {
    return rt.fail(kOverflowError, "expected integers of at most 128 bits, found a bigger result");
}

Value unsupported(Runtime& rt, Arithmetic how, const Value& a, const Value& b) {
    return rt.fail_type("unsupported operand type(s) for " + std::string(sign(how)) + ": '" +
                        type_name(a) + "' and '" + type_name(b) + "'");
}

/// a * b without overflow, or nothing.
std::optional<BigInt> product(BigInt a, BigInt b) {
    if (a == 0 || b == 0) {
        return BigInt{0};
    }
    if (a == kMinInt || b == kMinInt) {
        return a == 1 ? std::optional(b) : b == 1 ? std::optional(a) : std::nullopt;
    }
    const BigInt x = a < 0 ? -a : a;
    const BigInt y = b < 0 ? -b : b;
    if (x > kMaxInt / y) {
        return std::nullopt;
    }
    return a * b;
}

Value power_of_ints(Runtime& rt, BigInt base, BigInt exponent) {
    if (exponent < 0) {
        if (base == 0) {
            return rt.fail(kZeroDivisionError, "0.0 cannot be raised to a negative power");
        }
        return Value::of_float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
    }
    if (base == 0 || base == 1) {
        return Value::of_int(exponent == 0 ? 1 : base);
    }
    if (base == -1) {
        return Value::of_int(exponent % 2 == 0 ? 1 : -1);
    }
    BigInt result = 1;
    for (BigInt i = 0; i < exponent; ++i) {  // ends after 127 turns: the result has left 128 bits
        const auto next = product(result, base);
        if (!next) {
            return overflow(rt);
        }
        result = *next;
    }
    return Value::of_int(result);
}

Value divide_ints(Runtime& rt, Arithmetic how, BigInt a, BigInt b) {
    if (b == 0) {
        return rt.fail(kZeroDivisionError, how == Arithmetic::Divide ? "division by zero"
                                           : how == Arithmetic::Modulo
                                               ? "integer modulo by zero"
                                               : "integer division or modulo by zero");
    }
    if (how == Arithmetic::Divide) {
        return Value::of_float(static_cast<double>(a) / static_cast<double>(b));
    }
    if (a == kMinInt && b == -1) {
        return how == Arithmetic::Modulo ? Value::of_int(0) : overflow(rt);
    }
    const BigInt rest = a % b;
    const bool rounds_down = rest != 0 && (rest < 0) != (b < 0);
    if (how == Arithmetic::Modulo) {
        return Value::of_int(rounds_down ? rest + b : rest);
    }
    return Value::of_int(a / b - (rounds_down ? 1 : 0));
}

Value on_ints(Runtime& rt, Arithmetic how, BigInt a, BigInt b) {
    BigInt result = 0;
    switch (how) {
        case Arithmetic::Add:
            return __builtin_add_overflow(a, b, &result) ? overflow(rt) : Value::of_int(result);
        case Arithmetic::Subtract:
            return __builtin_sub_overflow(a, b, &result) ? overflow(rt) : Value::of_int(result);
        case Arithmetic::Multiply: {
            const auto exact = product(a, b);
            return exact ? Value::of_int(*exact) : overflow(rt);
        }
        case Arithmetic::Power:
            return power_of_ints(rt, a, b);
        default:
            return divide_ints(rt, how, a, b);
    }
}

/// Python's float modulo: the sign of the divisor.
double float_modulo(double a, double b) {
    double rest = std::fmod(a, b);
    if (rest != 0.0 && (rest < 0) != (b < 0)) {
        rest += b;
    }
    return rest == 0.0 ? std::copysign(0.0, b) : rest;
}

Value on_floats(Runtime& rt, Arithmetic how, double a, double b) {
    switch (how) {
        case Arithmetic::Add:
            return Value::of_float(a + b);
        case Arithmetic::Subtract:
            return Value::of_float(a - b);
        case Arithmetic::Multiply:
            return Value::of_float(a * b);
        case Arithmetic::Power:
            if (a == 0.0 && b < 0.0) {
                return rt.fail(kZeroDivisionError, "0.0 cannot be raised to a negative power");
            }
            if (a < 0.0 && std::floor(b) != b) {
                return rt.fail_type("complex numbers are not supported");
            }
            if (!std::isinf(a) && !std::isinf(b) && std::isinf(std::pow(a, b))) {
                return rt.fail(kOverflowError, "(34, 'Numerical result out of range')");
            }
            return Value::of_float(std::pow(a, b));
        default:
            break;
    }
    if (b == 0.0) {
        return rt.fail(kZeroDivisionError, how == Arithmetic::Divide ? "float division by zero"
                                           : how == Arithmetic::Modulo
                                               ? "float modulo"
                                               : "float floor division by zero");
    }
    if (how == Arithmetic::Divide) {
        return Value::of_float(a / b);
    }
    if (how == Arithmetic::Modulo) {
        return Value::of_float(float_modulo(a, b));
    }
    return Value::of_float(std::floor((a - float_modulo(a, b)) / b + 0.5));
}

Value join_texts(Runtime& rt, const Value& a, const Value& b) {
    TextBuilder builder(rt);
    if (!a.text().markup && !b.text().markup) {
        builder.add(a.text());
        builder.add(b.text());
        return builder.take();
    }
    for (const Value* side : {&a, &b}) {
        if (side->text().markup) {
            builder.add(side->text());
        } else {
            print_escaped(side->text(), builder);
        }
    }
    return builder.take_markup();
}

Value add(Runtime& rt, const Value& a, const Value& b) {
    if (a.is_string()) {
        if (!b.is_string()) {
            return rt.fail_type("can only concatenate str (not \"" + type_name(b) + "\") to str");
        }
        return join_texts(rt, a, b);
    }
    if (a.is_sequence()) {
        if (a.kind != b.kind) {
            return rt.fail_type("can only concatenate " + type_name(a) + " (not \"" + type_name(b) +
                                "\") to " + type_name(a));
        }
        std::vector<Value> items = a.items();
        items.insert(items.end(), b.items().begin(), b.items().end());
        return rt.sequence(a.kind, std::move(items));
    }
    return unsupported(rt, Arithmetic::Add, a, b);
}

Value repeat(Runtime& rt, const Value& what, BigInt times) {
    const std::size_t size =
        what.is_string() ? what.text().bytes.size() : what.items().size() * sizeof(Value);
    const BigInt limit = static_cast<BigInt>(rt.limits().max_memory_bytes);
    if (times > 0 && size > 0 && times > limit / static_cast<BigInt>(size)) {
        return rt.fail_limit("a repetition that needs more memory than allowed");
    }
    if (size == 0) {
        times = 0;
    }
    if (what.is_string()) {
        TextBuilder builder(rt);
        for (BigInt i = 0; i < times && !rt.failed(); ++i) {
            builder.add(what.text());
        }
        return what.text().markup ? builder.take_markup() : builder.take();
    }
    std::vector<Value> items;
    for (BigInt i = 0; i < times && rt.spend(1 + what.items().size() / 8); ++i) {
        items.insert(items.end(), what.items().begin(), what.items().end());
    }
    return rt.sequence(what.kind, std::move(items));
}

Value on_others(Runtime& rt, Arithmetic how, const Value& a, const Value& b) {
    if (how == Arithmetic::Modulo && a.is_string()) {
        return format_percent(rt, a.text(), b);
    }
    if (a.is(Kind::Undefined) || b.is(Kind::Undefined)) {
        return rt.fail_undefined(a.is(Kind::Undefined) ? a : b);
    }
    if (how == Arithmetic::Add) {
        return add(rt, a, b);
    }
    if (how == Arithmetic::Multiply) {
        const bool a_repeats = a.is_string() || a.is_sequence();
        const bool b_repeats = b.is_string() || b.is_sequence();
        if (a_repeats && b.is_integral()) {
            return repeat(rt, a, b.as_int());
        }
        if (b_repeats && a.is_integral()) {
            return repeat(rt, b, a.as_int());
        }
        if (a_repeats || b_repeats) {
            return rt.fail_type("can't multiply sequence by non-int of type '" +
                                type_name(a_repeats ? b : a) + "'");
        }
    }
    return unsupported(rt, how, a, b);
}

}  // namespace

Value arithmetic(Runtime& rt, Arithmetic how, const Value& a, const Value& b) {
    if (rt.failed()) {
        return {};
    }
    if (!a.is_number() || !b.is_number()) {
        return on_others(rt, how, a, b);
    }
    Value result = a.is_integral() && b.is_integral()
                       ? on_ints(rt, how, a.as_int(), b.as_int())
                       : on_floats(rt, how, a.as_real(), b.as_real());
    result.origin = mix(a.origin, b.origin);
    return result;
}

Value negate(Runtime& rt, const Value& value) {
    if (value.is(Kind::Undefined)) {
        return rt.failed() ? Value{} : rt.fail_undefined(value);
    }
    Value result;
    if (value.is(Kind::Float)) {
        result = Value::of_float(-value.real);
    } else if (value.is_integral()) {
        result = on_ints(rt, Arithmetic::Subtract, 0, value.as_int());
    } else {
        return rt.fail_type("bad operand type for unary -: '" + type_name(value) + "'");
    }
    result.origin = value.origin;
    return result;
}

Value positive(Runtime& rt, const Value& value) {
    if (value.is(Kind::Undefined)) {
        return rt.failed() ? Value{} : rt.fail_undefined(value);
    }
    if (!value.is_number()) {
        return rt.fail_type("bad operand type for unary +: '" + type_name(value) + "'");
    }
    Value result = value.is(Kind::Float) ? value : Value::of_int(value.as_int());
    result.origin = value.origin;
    return result;
}

std::optional<BigInt> whole(double value) {
    constexpr double kBound = 1.7014118346046923e38;  // 2^127
    if (std::isnan(value) || value >= kBound || value <= -kBound) {
        return std::nullopt;
    }
    return static_cast<BigInt>(value);
}

}  // namespace terrace::jinja
