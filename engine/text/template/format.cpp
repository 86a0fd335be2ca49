// The two formatters of Python strings: `'%s' % x` and `'{}'.format(x)`.
#include "engine/text/template/characters.h"
#include "engine/text/template/format_spec.h"
#include "engine/text/template/operations.h"

namespace terrace::jinja {

namespace {

/// Values for a % format: a tuple is consumed item by item, a dict by name, all else is one.
class PercentArguments {
public:
    PercentArguments(Runtime& rt, const Value& values) : rt_(rt), values_(values) {}

    Value next() {
        if (values_.is(Kind::Tuple)) {
            if (used_ >= values_.items().size()) {
                return rt_.fail_type("not enough arguments for format string");
            }
            return values_.items()[used_++];
        }
        if (used_++ != 0) {
            return rt_.fail_type("not enough arguments for format string");
        }
        return values_;
    }

    Value named(const Value& key) {
        if (!values_.is(Kind::Dict)) {
            return rt_.fail_type("format requires a mapping");
        }
        const Value* found = values_.dict().find(rt_, key);
        named_ = true;
        return found != nullptr ? *found : rt_.fail(kKeyError, repr_plain(rt_, key));
    }

    void check_all_used() {
        // Whatever can be asked for keys may be left unused: in Python that includes lists.
        const bool has_keys = values_.is(Kind::Dict) || values_.is(Kind::List) ||
                              values_.is(Kind::Undefined) || values_.is(Kind::Range);
        const bool left_over =
            values_.is(Kind::Tuple) ? used_ < values_.items().size() : used_ == 0 && !has_keys;
        if (left_over && !named_) {
            rt_.fail_type("not all arguments converted during string formatting");
        }
    }

private:
    Runtime& rt_;
    const Value& values_;
    std::size_t used_ = 0;
    bool named_ = false;
};

class PercentFormatter {
public:
    PercentFormatter(Runtime& rt, const Text& format, const Value& values)
        : rt_(rt), format_(format), arguments_(rt, values), out_(rt) {}

    Value run();

private:
    void field();
    void flags(FormatSpec& spec);
    std::size_t size_argument();
    void put(const Value& value, FormatSpec spec, char type);

    [[nodiscard]] char peek() const {
        return at_ < format_.bytes.size() ? format_.bytes[at_] : '\0';
    }

    Runtime& rt_;
    const Text& format_;
    PercentArguments arguments_;
    TextBuilder out_;
    std::size_t at_ = 0;
};

Value PercentFormatter::run() {
    while (at_ < format_.bytes.size() && !rt_.failed()) {
        const std::size_t mark = std::min(format_.bytes.find('%', at_), format_.bytes.size());
        out_.add_slice(format_, at_, mark);
        at_ = mark;
        if (at_ < format_.bytes.size()) {
            ++at_;
            field();
        }
    }
    if (!rt_.failed()) {
        arguments_.check_all_used();
    }
    return format_.markup ? out_.take_markup() : out_.take();
}

void PercentFormatter::flags(FormatSpec& spec) {
    for (;; ++at_) {
        if (peek() == '-') {
            spec.align = '<';
        } else if (peek() == '0') {
            spec.zero = true;
        } else if (peek() == '+' || (peek() == ' ' && spec.sign == 0)) {
            spec.sign = peek();
        } else if (peek() == '#') {
            spec.alternate = true;
        } else if (peek() != ' ') {
            return;
        }
    }
}

std::size_t PercentFormatter::size_argument() {
    if (peek() != '*') {
        return read_number(format_.bytes, at_).value_or(0);
    }
    ++at_;
    const Value width = arguments_.next();
    if (!width.is_integral() || width.as_int() < 0 ||
        width.as_int() > static_cast<BigInt>(kMaxFieldWidth)) {
        rt_.fail_type("* wants a small positive int");
        return 0;
    }
    return static_cast<std::size_t>(width.as_int());
}

void PercentFormatter::field() {
    std::optional<Value> value;
    if (peek() == '(') {
        const std::size_t end = format_.bytes.find(')', at_);
        if (end == std::string::npos) {
            rt_.fail(kValueError, "incomplete format key");
            return;
        }
        value = arguments_.named(slice_bytes(rt_, format_, at_ + 1, end));
        at_ = end + 1;
    }
    FormatSpec spec;
    flags(spec);
    spec.width = size_argument();
    if (peek() == '.') {
        ++at_;
        spec.precision = size_argument();
    }
    while (peek() == 'l' || peek() == 'h' || peek() == 'L') {
        ++at_;
    }
    if (at_ >= format_.bytes.size()) {
        rt_.fail(kValueError, "incomplete format");
        return;
    }
    const char type = format_.bytes[at_++];
    if (type == '%') {
        out_.add("%", origin_at(format_, at_ - 1));
        return;
    }
    if (!value) {
        value = arguments_.next();
    }
    put(*value, spec, type);
}

void PercentFormatter::put(const Value& value, FormatSpec spec, char type) {
    if (rt_.failed()) {
        return;
    }
    if (type == 's' || type == 'r' || type == 'a') {
        Value text = type == 's' ? to_text(rt_, value) : repr(rt_, value);
        if (format_.markup) {
            text = escape(rt_, text);
        }
        spec.align = spec.align == '<' ? '<' : '>';
        format_field(rt_, text, spec, out_);
        return;
    }
    if (std::string_view("diuoxXeEfFgG").find(type) == std::string_view::npos) {
        rt_.fail(kValueError, std::string("unsupported format character '") + type + "'");
        return;
    }
    if (!value.is_number()) {
        if (value.is(Kind::Undefined)) {
            rt_.fail_undefined(value);
            return;
        }
        rt_.fail_type(std::string("%") + type + " format: a real number is required, not " +
                      type_name(value));
        return;
    }
    if (spec.zero && spec.align == 0) {
        spec.align = '=';
        spec.fill = "0";
    }
    Value number = value;
    if (std::string_view("diu").find(type) != std::string_view::npos) {
        const auto cut = value.is(Kind::Float) ? whole(value.real) : std::optional(value.as_int());
        if (!cut) {
            rt_.fail(kOverflowError, "cannot convert float to integer");
            return;
        }
        number = Value::of_int(*cut);
        number.origin = value.origin;
        type = 'd';
        spec.precision.reset();
    } else if ((type == 'x' || type == 'X' || type == 'o')) {
        if (!value.is_integral()) {
            rt_.fail_type(std::string("%") + type + " format: an integer is required, not float");
            return;
        }
        spec.precision.reset();
    }
    spec.type = type;
    format_field(rt_, number, spec, out_);
}

class BraceFormatter {
public:
    BraceFormatter(Runtime& rt, const Text& format, const Args& args)
        : rt_(rt), format_(format), args_(args), out_(rt) {}

    Value run();

private:
    void field(std::string_view inside);
    Value look_up(std::string_view path);
    Value first_part(std::string_view name);

    Runtime& rt_;
    const Text& format_;
    const Args& args_;
    TextBuilder out_;
    std::size_t next_ = 0;
};

Value BraceFormatter::run() {
    const std::string& text = format_.bytes;
    for (std::size_t at = 0; at < text.size() && !rt_.failed();) {
        const std::size_t brace = std::min(text.find_first_of("{}", at), text.size());
        out_.add_slice(format_, at, brace);
        at = brace;
        if (at >= text.size()) {
            break;
        }
        if (at + 1 < text.size() && text[at + 1] == text[at]) {
            out_.add_slice(format_, at, at + 1);
            at += 2;
            continue;
        }
        const std::size_t end = text[at] == '{' ? text.find('}', at) : std::string::npos;
        if (end == std::string::npos) {
            rt_.fail(kValueError, text[at] == '{' ? "expected '}' before end of string"
                                                  : "Single '}' encountered in format string");
            break;
        }
        field(std::string_view(text).substr(at + 1, end - at - 1));
        at = end + 1;
    }
    return format_.markup ? out_.take_markup() : out_.take();
}

void BraceFormatter::field(std::string_view inside) {
    if (inside.find('{') != std::string_view::npos) {
        rt_.fail(kValueError, "nested replacement fields are not supported");
        return;
    }
    const std::size_t colon = inside.find(':');
    std::string_view path = inside.substr(0, colon);
    const auto spec = parse_format_spec(colon == std::string_view::npos ? std::string_view{}
                                                                        : inside.substr(colon + 1));
    if (!spec) {
        rt_.fail(kValueError, "Invalid format specifier");
        return;
    }
    char conversion = 0;
    if (const std::size_t mark = path.find('!'); mark != std::string_view::npos) {
        conversion = mark + 2 == path.size() ? path[mark + 1] : '?';
        path = path.substr(0, mark);
        if (conversion != 's' && conversion != 'r' && conversion != 'a') {
            rt_.fail(kValueError, "expected one of !s, !r, !a in a replacement field");
            return;
        }
    }
    Value value = look_up(path);
    if (rt_.failed()) {
        return;
    }
    if (conversion != 0) {
        value = conversion == 's' ? to_text(rt_, value) : repr(rt_, value);
    }
    if (format_.markup) {
        value = value.is_string() ? escape(rt_, value) : value;
    }
    format_field(rt_, value, *spec, out_);
}

Value BraceFormatter::first_part(std::string_view name) {
    std::size_t at = 0;
    const auto number = read_number(name, at);
    if (name.empty() || (number && at == name.size())) {
        const std::size_t index = name.empty() ? next_++ : *number;
        return index < args_.positional.size()
                   ? args_.positional[index]
                   : rt_.fail("IndexError", "Replacement index " + std::to_string(index) +
                                                " out of range for positional args tuple");
    }
    for (const auto& [key, value] : args_.named) {
        if (key == name) {
            return value;
        }
    }
    return rt_.fail(kKeyError, "'" + std::string(name) + "'");
}

Value BraceFormatter::look_up(std::string_view path) {
    std::size_t at = std::min(path.find_first_of(".["), path.size());
    Value value = first_part(path.substr(0, at));
    while (at < path.size() && !rt_.failed()) {
        if (path[at] == '.') {
            const std::size_t end = std::min(path.find_first_of(".[", at + 1), path.size());
            value = get_attribute(rt_, value, path.substr(at + 1, end - at - 1));
            at = end;
            continue;
        }
        const std::size_t end = path[at] == '[' ? path.find(']', at) : std::string_view::npos;
        if (end == std::string_view::npos) {
            return rt_.fail(kValueError, "Missing ']' in format string");
        }
        const std::string_view key = path.substr(at + 1, end - at - 1);
        std::size_t digits = 0;
        const auto index = read_number(key, digits);
        value = get_item(rt_, value,
                         index && digits == key.size() ? Value::of_int(static_cast<BigInt>(*index))
                                                       : rt_.literal(key));
        at = end + 1;
    }
    return value;
}

}  // namespace

Value format_percent(Runtime& rt, const Text& format, const Value& values) {
    return PercentFormatter(rt, format, values).run();
}

Value format_braces(Runtime& rt, const Text& format, const Args& args) {
    return BraceFormatter(rt, format, args).run();
}

}  // namespace terrace::jinja
