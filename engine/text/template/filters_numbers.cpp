// Filters of numbers: int, float, round, abs.
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "engine/text/template/filters.h"
#include "engine/text/template/text_operations.h"

namespace terrace::jinja {

namespace {

/// The text without white space around it and without the underscores Python allows in numbers;
/// nothing when an underscore stands where Python refuses it.
std::optional<std::string> plain_number(Runtime& rt, const Text& text) {
    const std::string stripped = strip(rt, text, Sides::Both, nullptr).text().bytes;
    std::string out;
    for (std::size_t i = 0; i < stripped.size(); ++i) {
        if (stripped[i] != '_') {
            out.push_back(stripped[i]);
        } else if (i == 0 || i + 1 == stripped.size() || stripped[i + 1] == '_') {
            return std::nullopt;
        }
    }
    return out.size() <= 400 ? std::optional(out) : std::nullopt;
}

int digit_value(char c) {
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    const char lower = static_cast<char>(c | 0x20);
    return lower >= 'a' && lower <= 'z' ? lower - 'a' + 10 : 99;
}

std::optional<BigInt> parse_int(const std::string& text, int base) {
    std::size_t at = 0;
    const bool negative = !text.empty() && text[0] == '-';
    at += !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
    if (text.size() > at + 1 && text[at] == '0') {
        const char mark = static_cast<char>(text[at + 1] | 0x20);
        const int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
        if (marked != 0 && (base == 0 || base == marked)) {
            base = marked;
            at += 2;
        }
    }
    base = base == 0 ? 10 : base;
    if (at >= text.size()) {
        return std::nullopt;
    }
    BigInt value = 0;
    for (; at < text.size(); ++at) {
        const int digit = digit_value(text[at]);
        if (digit >= base || value > (BigInt{1} << 120U)) {
            return std::nullopt;
        }
        value = value * base + digit;
    }
    return negative ? -value : value;
}

std::optional<double> parse_float(const std::string& text) {
    const bool odd = text.empty() || text.find_first_of("xXpP()") != std::string::npos;
    if (odd) {
        return std::nullopt;
    }
    // strtod would depend on the locale; from_chars does not, but takes no plus sign.
    const char* begin = text.data() + (text[0] == '+' ? 1 : 0);
    double value = 0;
    const auto end = std::from_chars(begin, text.data() + text.size(), value);
    if (end.ptr != text.data() + text.size() || end.ec == std::errc::invalid_argument) {
        return std::nullopt;
    }
    if (end.ec == std::errc::result_out_of_range) {
        const bool tiny =
            text.find("e-") != std::string::npos || text.find("E-") != std::string::npos;
        value = tiny ? 0.0 : (text[0] == '-' ? -HUGE_VAL : HUGE_VAL);
    }
    return value;
}

std::optional<double> float_of(Runtime& rt, const Value& value) {
    if (value.is_number()) {
        return value.as_real();
    }
    if (value.is_string()) {
        const auto text = plain_number(rt, value.text());
        return text ? parse_float(*text) : std::nullopt;
    }
    return std::nullopt;
}

Value int_filter(Runtime& rt, const Value& subject, const Args& args) {
    Parameters in(rt, "do_int", args, {"default", "base"});
    if (subject.is(Kind::Undefined)) {
        return rt.fail_undefined(subject);
    }
    const Value otherwise = in.get(0, Value::of_int(0));
    const BigInt base = in.integer(1, 10);
    if (subject.is_integral()) {
        return Value::of_int(subject.as_int());
    }
    if (subject.is_string() && base >= 0 && base <= 36 && base != 1) {
        const auto text = plain_number(rt, subject.text());
        const auto exact = text ? parse_int(*text, static_cast<int>(base)) : std::nullopt;
        if (exact) {
            return Value::of_int(*exact);
        }
    }
    const auto real = float_of(rt, subject);
    if (subject.is(Kind::Float) && std::isinf(*real)) {
        return rt.fail(kOverflowError, "cannot convert float infinity to integer");
    }
    const auto cut = real ? whole(*real) : std::nullopt;
    return cut ? Value::of_int(*cut) : otherwise;
}

Value float_filter(Runtime& rt, const Value& subject, const Args& args) {
    const Parameters in(rt, "do_float", args, {"default"});
    if (subject.is(Kind::Undefined)) {
        return rt.fail_undefined(subject);
    }
    const auto real = float_of(rt, subject);
    return real ? Value::of_float(*real) : in.get(0, Value::of_float(0.0));
}

/// Rounds to decimal places, exactly as written in decimal, halves to even: as Python does.
double round_decimal(double value, int places) {
    if (!std::isfinite(value)) {
        return value;
    }
    if (places < 0) {
        const double scale = std::pow(10.0, -places);
        return std::nearbyint(value / scale) * scale;
    }
    std::array<char, 800> buffer{};
    const int n = std::snprintf(buffer.data(), buffer.size(), "%.*f", places, value);
    double rounded = value;
    std::from_chars(buffer.data(), buffer.data() + n, rounded);
    return rounded;
}

Value round_filter(Runtime& rt, const Value& subject, const Args& args) {
    Parameters in(rt, "do_round", args, {"precision", "method"});
    const BigInt places = in.integer(0, 0);
    const std::string method = in.has(1) ? to_text(rt, in.get(1)).text().bytes : "common";
    if (method != "common" && method != "ceil" && method != "floor") {
        return rt.fail(kFilterArgumentError, "method must be common, ceil or floor");
    }
    if (!subject.is_number()) {
        return rt.fail_type("type " + type_name(subject) + " doesn't define __round__ method");
    }
    if (places > 300 || places < -300) {
        return rt.fail(kOverflowError, "expected a precision of at most 300 places");
    }
    Value result;
    if (method != "common") {
        const double scale = std::pow(10.0, static_cast<double>(places));
        const double scaled = subject.as_real() * scale;
        result =
            Value::of_float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
    } else if (subject.is_integral() && places >= 0) {
        result = Value::of_int(subject.as_int());
    } else {
        result = Value::of_float(round_decimal(subject.as_real(), static_cast<int>(places)));
    }
    result.origin = subject.origin;
    return result;
}

Value abs_filter(Runtime& rt, const Value& subject, const Args& args) {
    const Parameters none(rt, "abs", args, {});
    if (!subject.is_number()) {
        return rt.fail_type("bad operand type for abs(): '" + type_name(subject) + "'");
    }
    if (subject.is(Kind::Float)) {
        return Value::of_float(std::fabs(subject.real));
    }
    return subject.as_int() < 0 ? negate(rt, subject) : positive(rt, subject);
}

Value pprint(Runtime& rt, const Value& subject, const Args& args) {
    const Parameters none(rt, "pprint", args, {});
    return repr(rt, subject);
}

constexpr std::array<Filter, 5> kFilters{{
    {"abs", abs_filter},
    {"float", float_filter},
    {"int", int_filter},
    {"pprint", pprint},
    {"round", round_filter},
}};

}  // namespace

std::span<const Filter> number_filters() {
    return kFilters;
}

}  // namespace terrace::jinja
