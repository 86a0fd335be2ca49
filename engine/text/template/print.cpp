// str() and repr() of values as Python prints them, and HTML escaping for markup.
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "engine/text/template/character_tables.h"
#include "engine/text/template/characters.h"
#include "engine/text/template/operations.h"

namespace terrace::jinja {

namespace {

void append_hex(std::string& out, const char* prefix, char32_t value, int digits) {
    std::array<char, 16> buffer{};
    std::snprintf(buffer.data(), buffer.size(), "%0*x", digits, static_cast<unsigned>(value));
    out += prefix;
    out += buffer.data();
}

void append_repr_char(std::string& out, char32_t c, char quote) {
    if (c == static_cast<char32_t>(quote) || c == '\\') {
        out.push_back('\\');
        out.push_back(static_cast<char>(c));
    } else if (c == '\n') {
        out += "\\n";
    } else if (c == '\r') {
        out += "\\r";
    } else if (c == '\t') {
        out += "\\t";
    } else if (c < 0x20 || c == 0x7F) {
        append_hex(out, "\\x", c, 2);
    } else if (c < 0x7F || (character_flags(c) & tables::kPrintable) != 0) {
        append_utf8(out, c);
    } else if (c < 0x100) {
        append_hex(out, "\\x", c, 2);
    } else if (c < 0x10000) {
        append_hex(out, "\\u", c, 4);
    } else {
        append_hex(out, "\\U", c, 8);
    }
}

std::string quoted(std::string_view text) {
    const bool has_single = text.find('\'') != std::string_view::npos;
    const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
    std::string out(1, quote);
    for (std::size_t at = 0; at < text.size();) {
        const CodePoint point = decode(text, at);
        append_repr_char(out, point.value, quote);
        at += point.n_bytes;
    }
    out.push_back(quote);
    return out;
}

std::string quoted_bytes(std::string_view text) {
    const bool has_single = text.find('\'') != std::string_view::npos;
    const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
    std::string out = std::string("b") + quote;
    for (const char byte : text) {
        const auto c = static_cast<unsigned char>(byte);
        if (c >= 0x80) {
            append_hex(out, "\\x", c, 2);
        } else {
            append_repr_char(out, c, quote);
        }
    }
    out.push_back(quote);
    return out;
}

/// Writes repr() of nested values; remembers whether anything in it came from the user.
class ReprWriter {
public:
    explicit ReprWriter(Runtime& rt) : rt_(rt) {}

    void write(const Value& value);
    std::string out;
    Origin origin = Origin::Trusted;

private:
    void write_items(const std::vector<Value>& items, const char* open, const char* close);
    void write_dict(const Dict& dict);
    void write_view(const View& view);
    void write_object(const Value& value);
    Runtime& rt_;
};

void ReprWriter::write(const Value& value) {
    const DepthScope scope(rt_);
    if (!scope.ok() || !rt_.spend(1)) {
        return;
    }
    if (out.size() > rt_.limits().max_memory_bytes) {
        rt_.fail_limit("a printed value larger than the memory allowed");
        return;
    }
    origin = mix(origin, value.origin);
    switch (value.kind) {
        case Kind::Undefined:
            out += "Undefined";
            break;
        case Kind::None:
            out += "None";
            break;
        case Kind::Bool:
            out += value.flag ? "True" : "False";
            break;
        case Kind::Int:
            out += int_text(value.integer);
            break;
        case Kind::Float:
            out += float_text(value.real);
            break;
        case Kind::String: {
            const Text& text = value.text();
            origin = mix(origin, origin_of(text));
            rt_.spend(text.bytes.size() / 32);
            out += text.markup ? "Markup(" + quoted(text.bytes) + ")" : quoted(text.bytes);
            break;
        }
        case Kind::Bytes:
            origin = mix(origin, origin_of(value.text()));
            out += quoted_bytes(value.text().bytes);
            break;
        case Kind::List:
            write_items(value.items(), "[", "]");
            break;
        case Kind::Tuple:
            write_items(value.items(), "(", value.items().size() == 1 ? ",)" : ")");
            break;
        case Kind::Dict:
            write_dict(value.dict());
            break;
        case Kind::View:
            write_view(value.as<View>());
            break;
        default:
            write_object(value);
    }
}

void ReprWriter::write_items(const std::vector<Value>& items, const char* open, const char* close) {
    out += open;
    for (std::size_t i = 0; i < items.size() && !rt_.failed(); ++i) {
        out += i == 0 ? "" : ", ";
        write(items[i]);
    }
    out += close;
}

void ReprWriter::write_dict(const Dict& dict) {
    out += "{";
    bool first = true;
    for (const auto& [key, value] : dict.entries) {
        if (rt_.failed()) {
            return;
        }
        out += first ? "" : ", ";
        first = false;
        write(key);
        out += ": ";
        write(value);
    }
    out += "}";
}

void ReprWriter::write_view(const View& view) {
    const auto& entries = view.dict.dict().entries;
    out += view.of == ViewKind::Keys     ? "dict_keys(["
           : view.of == ViewKind::Values ? "dict_values(["
                                         : "dict_items([";
    for (std::size_t i = 0; i < entries.size() && !rt_.failed(); ++i) {
        out += i == 0 ? "" : ", ";
        if (view.of == ViewKind::Items) {
            out += "(";
        }
        if (view.of != ViewKind::Values) {
            write(entries[i].first);
        }
        if (view.of == ViewKind::Items) {
            out += ", ";
        }
        if (view.of != ViewKind::Keys) {
            write(entries[i].second);
        }
        if (view.of == ViewKind::Items) {
            out += ")";
        }
    }
    out += "])";
}

void ReprWriter::write_object(const Value& value) {
    if (value.is(Kind::Range)) {
        const auto& range = value.as<Range>();
        out += "range(" + int_text(range.start) + ", " + int_text(range.stop);
        out += range.step == 1 ? ")" : ", " + int_text(range.step) + ")";
    } else if (value.is(Kind::Namespace)) {
        out += "<Namespace ";
        write(value.as<Namespace>().attributes);
        out += ">";
    } else if (value.is(Kind::Loop)) {
        const auto& loop = value.as<Loop>();
        out += "<LoopContext " + std::to_string(loop.index + 1) + "/" +
               std::to_string(loop.items->size()) + ">";
    } else {
        // Python prints an address here; a prompt with one is a mistake anyway.
        out += "<" + type_name(value) + " object>";
    }
}

}  // namespace

std::string int_text(BigInt value) {
    if (value == 0) {
        return "0";
    }
    // The negative of a positive 128-bit number always fits; the other way round it may not.
    BigInt rest = value < 0 ? value : -value;
    std::string digits;
    for (; rest != 0; rest /= 10) {
        digits.push_back(static_cast<char>('0' - static_cast<int>(rest % 10)));
    }
    if (value < 0) {
        digits.push_back('-');
    }
    return {digits.rbegin(), digits.rend()};
}

std::string float_text(double value) {
    if (std::isnan(value)) {
        return "nan";
    }
    if (std::isinf(value)) {
        return value < 0 ? "-inf" : "inf";
    }
    std::array<char, 64> buffer{};
    const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                   std::chars_format::scientific);
    const std::string_view text(buffer.data(), static_cast<std::size_t>(end.ptr - buffer.data()));
    const std::size_t mark = text.find('e');
    int exponent = 0;
    std::string_view exponent_text = text.substr(mark + 1);
    exponent_text.remove_prefix(exponent_text.front() == '+' ? 1 : 0);
    std::from_chars(exponent_text.data(), exponent_text.data() + exponent_text.size(), exponent);
    if (exponent >= -4 && exponent < 16) {
        const auto fixed = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                         std::chars_format::fixed);
        std::string out(buffer.data(), fixed.ptr);
        return out.find('.') == std::string::npos ? out + ".0" : out;
    }
    return std::string(text);  // both print the exponent with a sign and two digits at least
}

void print(Runtime& rt, const Value& value, TextBuilder& out) {
    if (value.is_string()) {
        out.add(value.text());
    } else if (!value.is(Kind::Undefined)) {
        ReprWriter writer(rt);
        writer.write(value);
        out.add(writer.out, writer.origin);
    }
}

Value to_text(Runtime& rt, const Value& value) {
    if (value.is_string()) {
        return value;
    }
    TextBuilder builder(rt);
    print(rt, value, builder);
    return builder.take();
}

Value repr(Runtime& rt, const Value& value) {
    ReprWriter writer(rt);
    writer.write(value);
    return rt.text(std::move(writer.out), writer.origin);
}

std::string repr_plain(Runtime& rt, const Value& value) {
    ReprWriter writer(rt);
    writer.write(value);
    return writer.out;
}

void print_escaped(const Text& text, TextBuilder& out) {
    std::size_t begin = 0;
    for (std::size_t at = 0; at < text.bytes.size(); ++at) {
        std::string_view replacement;
        switch (text.bytes[at]) {
            case '&':
                replacement = "&amp;";
                break;
            case '<':
                replacement = "&lt;";
                break;
            case '>':
                replacement = "&gt;";
                break;
            case '\'':
                replacement = "&#39;";
                break;
            case '"':
                replacement = "&#34;";
                break;
            default:
                continue;
        }
        out.add_slice(text, begin, at);
        out.add(replacement, origin_at(text, at));
        begin = at + 1;
    }
    out.add_slice(text, begin, text.bytes.size());
}

Value escape(Runtime& rt, const Value& value) {
    if (value.is_string() && value.text().markup) {
        return value;
    }
    const Value plain = to_text(rt, value);
    TextBuilder builder(rt);
    print_escaped(plain.text(), builder);
    return builder.take_markup();
}

}  // namespace terrace::jinja
