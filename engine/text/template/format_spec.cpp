#include "engine/text/template/format_spec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "engine/text/template/characters.h"

namespace terrace::jinja {

namespace {

constexpr std::size_t kMaxPrecision = 300;

bool is_align(char c) {
    return c == '<' || c == '>' || c == '^' || c == '=';
}

std::string in_base(BigInt value, unsigned base, std::string_view digits) {
    std::string out;
    UnsignedBigInt rest =
        value < 0 ? -static_cast<UnsignedBigInt>(value) : static_cast<UnsignedBigInt>(value);
    do {
        out.push_back(digits[static_cast<std::size_t>(rest % base)]);
        rest /= base;
    } while (rest != 0);
    return {out.rbegin(), out.rend()};
}

std::string group_digits(const std::string& digits, char separator) {
    const std::size_t whole = std::min(digits.find_first_of(".e"), digits.size());
    std::string out;
    for (std::size_t i = 0; i < whole; ++i) {
        if (i != 0 && (whole - i) % 3 == 0) {
            out.push_back(separator);
        }
        out.push_back(digits[i]);
    }
    return out + digits.substr(whole);
}

std::string magnitude_of_float(double value, const FormatSpec& spec) {
    const double magnitude = std::fabs(value);
    char type = spec.type;
    if (std::isnan(value) || std::isinf(value)) {
        std::string word = std::isnan(value) ? "nan" : "inf";
        if (type == 'F' || type == 'E' || type == 'G') {
            std::transform(word.begin(), word.end(), word.begin(),
                           [](char c) { return static_cast<char>(c - 'a' + 'A'); });
        }
        return word;
    }
    if (type == 0 && !spec.precision) {
        return float_text(magnitude);
    }
    const std::size_t precision = std::min(spec.precision.value_or(6), kMaxPrecision);
    const bool percent = type == '%';
    type = percent ? 'f' : type == 0 ? 'g' : type;
    const std::array<char, 6> pattern{'%', '.', '*', type, 0, 0};
    std::array<char, 720> buffer{};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    std::snprintf(buffer.data(), buffer.size(), pattern.data(), static_cast<int>(precision),
                  percent ? magnitude * 100 : magnitude);
#pragma GCC diagnostic pop
    std::string out = buffer.data();
    if (spec.type == 0 && out.find_first_of(".e") == std::string::npos) {
        out += ".0";
    }
    return percent ? out + "%" : out;
}

std::string magnitude_of_int(BigInt value, const FormatSpec& spec) {
    switch (spec.type) {
        case 'x':
            return (spec.alternate ? "0x" : "") + in_base(value, 16, "0123456789abcdef");
        case 'X':
            return (spec.alternate ? "0X" : "") + in_base(value, 16, "0123456789ABCDEF");
        case 'o':
            return (spec.alternate ? "0o" : "") + in_base(value, 8, "01234567");
        case 'b':
            return (spec.alternate ? "0b" : "") + in_base(value, 2, "01");
        default:
            return in_base(value, 10, "0123456789");
    }
}

/// Pads `body` (with `n_chars` code points) to the width.
struct Padding {
    std::size_t before = 0;
    std::size_t after = 0;
};

Padding padding_for(const FormatSpec& spec, std::size_t n_chars, char default_align) {
    const std::size_t missing = spec.width > n_chars ? spec.width - n_chars : 0;
    const char align = spec.align != 0 ? spec.align : default_align;
    if (align == '<') {
        return {0, missing};
    }
    if (align == '^') {
        return {missing / 2, missing - missing / 2};
    }
    return {missing, 0};
}

void add_fill(const FormatSpec& spec, std::size_t count, TextBuilder& out) {
    for (std::size_t i = 0; i < count; ++i) {
        out.add(spec.fill, Origin::Trusted);
    }
}

void format_string(Runtime& rt, const Value& value, const FormatSpec& spec, TextBuilder& out) {
    if (spec.type != 0 && spec.type != 's') {
        rt.fail(kValueError,
                std::string("Unknown format code '") + spec.type + "' for object of type 'str'");
        return;
    }
    const Text& text = value.text();
    std::size_t end = 0;
    std::size_t n_chars = 0;
    while (end < text.bytes.size() && (!spec.precision || n_chars < *spec.precision)) {
        end += decode(text.bytes, end).n_bytes;
        ++n_chars;
    }
    const Padding padding = padding_for(spec, n_chars, '<');
    add_fill(spec, padding.before, out);
    out.add_slice(text, 0, end);
    add_fill(spec, padding.after, out);
}

bool is_float_type(char type) {
    return type != 0 && std::string_view("eEfFgG%").find(type) != std::string_view::npos;
}

void format_number(Runtime& rt, const Value& value, const FormatSpec& spec, TextBuilder& out) {
    const bool as_float = value.is(Kind::Float) || is_float_type(spec.type);
    if (value.is(Kind::Float) && spec.type != 0 && !is_float_type(spec.type)) {
        rt.fail(kValueError,
                std::string("Unknown format code '") + spec.type + "' for object of type 'float'");
        return;
    }
    if (spec.type == 's' || (!as_float && spec.precision)) {
        rt.fail(kValueError, "expected a format for a number, found one for a text");
        return;
    }
    if (spec.type == 'c') {
        rt.fail(kValueError, "the format code 'c' is not supported");
        return;
    }
    const bool negative = as_float ? std::signbit(value.as_real()) && !std::isnan(value.as_real())
                                   : value.as_int() < 0;
    std::string digits = as_float ? magnitude_of_float(value.as_real(), spec)
                                  : magnitude_of_int(value.as_int(), spec);
    if (spec.grouping != 0) {
        digits = group_digits(digits, spec.grouping);
    }
    const std::string sign = negative                               ? "-"
                             : spec.sign == '+' || spec.sign == ' ' ? std::string(1, spec.sign)
                                                                    : "";
    if (spec.align == '=') {
        out.add(sign, value.origin);
        const std::size_t n_chars = sign.size() + digits.size();
        add_fill(spec, spec.width > n_chars ? spec.width - n_chars : 0, out);
        out.add(digits, value.origin);
        return;
    }
    const Padding padding = padding_for(spec, sign.size() + digits.size(), '>');
    add_fill(spec, padding.before, out);
    out.add(sign + digits, value.origin);
    add_fill(spec, padding.after, out);
}

}  // namespace

std::optional<std::size_t> read_number(std::string_view text, std::size_t& at) {
    if (at >= text.size() || text[at] < '0' || text[at] > '9') {
        return std::nullopt;
    }
    std::size_t number = 0;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
        number =
            std::min(number * 10 + static_cast<std::size_t>(text[at] - '0'), kMaxFieldWidth + 1);
    }
    return number;
}

std::optional<FormatSpec> parse_format_spec(std::string_view text) {
    FormatSpec spec;
    std::size_t at = 0;
    const auto peek = [&](std::size_t offset) {
        return at + offset < text.size() ? text[at + offset] : '\0';
    };
    if (!text.empty()) {
        const std::size_t n_bytes = decode(text, 0).n_bytes;
        if (is_align(peek(n_bytes))) {
            spec.fill = text.substr(0, n_bytes);
            spec.align = text[n_bytes];
            at = n_bytes + 1;
        } else if (is_align(peek(0))) {
            spec.align = text[at++];
        }
    }
    if (peek(0) == '+' || peek(0) == '-' || peek(0) == ' ') {
        spec.sign = text[at++];
    }
    if (peek(0) == '#') {
        spec.alternate = true;
        ++at;
    }
    if (peek(0) == '0') {
        spec.zero = true;
        ++at;
        if (spec.align == 0) {
            spec.align = '=';
            spec.fill = "0";
        }
    }
    spec.width = read_number(text, at).value_or(0);
    if (peek(0) == ',' || peek(0) == '_') {
        spec.grouping = text[at++];
    }
    if (peek(0) == '.') {
        ++at;
        spec.precision = read_number(text, at);
        if (!spec.precision) {
            return std::nullopt;
        }
    }
    if (at < text.size()) {
        spec.type = text[at++];
    }
    const bool known = spec.type == 0 || std::string_view("bcdeEfFgGnosxX%").find(spec.type) !=
                                             std::string_view::npos;
    return at == text.size() && known ? std::optional(spec) : std::nullopt;
}

void format_field(Runtime& rt, const Value& value, const FormatSpec& spec, TextBuilder& out) {
    if (spec.width > kMaxFieldWidth || spec.precision.value_or(0) > kMaxFieldWidth) {
        rt.fail_limit("a format wider than " + std::to_string(kMaxFieldWidth));
        return;
    }
    rt.spend(spec.width / 8);
    if (value.is_string()) {
        FormatSpec text_spec = spec;
        if (spec.zero && spec.align == '=') {
            text_spec.align = '<';
        }
        format_string(rt, value, text_spec, out);
    } else if (value.is_number() && !(value.is(Kind::Bool) && spec.type == 0)) {
        format_number(rt, value, spec, out);
    } else {
        format_string(rt, to_text(rt, value), spec, out);
    }
}

}  // namespace terrace::jinja
