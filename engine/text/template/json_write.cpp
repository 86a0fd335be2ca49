// The tojson filter: Python's json.dumps. The whole output counts as the user's when any part of
// the value came from a request: quotes and commas between user bytes are no one else's.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "engine/text/template/characters.h"
#include "engine/text/template/operations.h"

namespace terrace::jinja {

namespace {

void append_unit(std::string& out, unsigned unit) {
    std::array<char, 16> buffer{};
    std::snprintf(buffer.data(), buffer.size(), "\\u%04x", unit);
    out += buffer.data();
}

void append_escaped(std::string& out, char32_t c) {
    if (c >= 0x10000) {
        append_unit(out, static_cast<unsigned>(0xD800 + ((c - 0x10000) >> 10U)));
        append_unit(out, static_cast<unsigned>(0xDC00 + ((c - 0x10000) & 0x3FFU)));
    } else {
        append_unit(out, static_cast<unsigned>(c));
    }
}

class JsonWriter {
public:
    JsonWriter(Runtime& rt, const JsonStyle& style) : rt_(rt), style_(style) {}

    void write(const Value& value);
    std::string out;
    Origin origin = Origin::Trusted;

private:
    void write_text(const Text& text);
    void write_items(const std::vector<Value>& items);
    void write_dict(const Dict& dict);
    void write_key(const Value& key);
    void new_line();
    Runtime& rt_;
    const JsonStyle& style_;
    std::size_t level_ = 0;
};

std::string json_float(double value) {
    if (std::isnan(value)) {
        return "NaN";
    }
    if (std::isinf(value)) {
        return value < 0 ? "-Infinity" : "Infinity";
    }
    return float_text(value);
}

void JsonWriter::write(const Value& value) {
    const DepthScope scope(rt_);
    if (!scope.ok() || !rt_.spend(1)) {
        return;
    }
    if (out.size() > rt_.limits().max_memory_bytes) {
        rt_.fail_limit("JSON text larger than the memory allowed");
        return;
    }
    origin = mix(origin, value.origin);
    switch (value.kind) {
        case Kind::None:
            out += "null";
            break;
        case Kind::Bool:
            out += value.flag ? "true" : "false";
            break;
        case Kind::Int:
            out += int_text(value.integer);
            break;
        case Kind::Float:
            out += json_float(value.real);
            break;
        case Kind::String:
            write_text(value.text());
            break;
        case Kind::List:
        case Kind::Tuple:
            write_items(value.items());
            break;
        case Kind::Dict:
            write_dict(value.dict());
            break;
        default:
            rt_.fail_type("Object of type " + type_name(value) + " is not JSON serializable");
    }
}

void JsonWriter::write_text(const Text& text) {
    origin = mix(origin, origin_of(text));
    rt_.spend(text.bytes.size() / 32);
    out.push_back('"');
    for (std::size_t at = 0; at < text.bytes.size();) {
        const CodePoint point = decode(text.bytes, at);
        const char32_t c = point.value;
        if (c == '"' || c == '\\') {
            out.push_back('\\');
            out.push_back(static_cast<char>(c));
        } else if (c == '\n') {
            out += "\\n";
        } else if (c == '\r') {
            out += "\\r";
        } else if (c == '\t') {
            out += "\\t";
        } else if (c == '\f') {
            out += "\\f";
        } else if (c == '\b') {
            out += "\\b";
        } else if (c < 0x20 || (style_.ensure_ascii && c >= 0x7F && c != 0x7F)) {
            append_escaped(out, c);
        } else {
            out.append(text.bytes, at, point.n_bytes);
        }
        at += point.n_bytes;
    }
    out.push_back('"');
}

void JsonWriter::new_line() {
    if (style_.indent) {
        out.push_back('\n');
        for (std::size_t i = 0; i < level_; ++i) {
            out += *style_.indent;
        }
    }
}

void JsonWriter::write_items(const std::vector<Value>& items) {
    if (items.empty()) {
        out += "[]";
        return;
    }
    out.push_back('[');
    ++level_;
    for (std::size_t i = 0; i < items.size() && !rt_.failed(); ++i) {
        out += i == 0 ? "" : style_.item_separator;
        new_line();
        write(items[i]);
    }
    --level_;
    new_line();
    out.push_back(']');
}

void JsonWriter::write_key(const Value& key) {
    origin = mix(origin, key.origin);
    switch (key.kind) {
        case Kind::String:
            write_text(key.text());
            break;
        case Kind::None:
        case Kind::Bool:
        case Kind::Int:
        case Kind::Float:
            out.push_back('"');
            write(key);
            out.push_back('"');
            break;
        default:
            rt_.fail_type("keys must be str, int, float, bool or None, not " + type_name(key));
    }
}

void JsonWriter::write_dict(const Dict& dict) {
    if (dict.entries.empty()) {
        out += "{}";
        return;
    }
    std::vector<const std::pair<Value, Value>*> order;
    for (const auto& entry : dict.entries) {
        order.push_back(&entry);
    }
    if (style_.sort_keys) {
        std::vector<Value> keys;
        for (const auto& entry : dict.entries) {
            keys.push_back(entry.first);
        }
        stable_sort(rt_, keys, [this](const Value& a, const Value& b) { return less(rt_, a, b); });
        for (std::size_t i = 0; i < keys.size() && !rt_.failed(); ++i) {
            const Value* found = dict.find(rt_, keys[i]);
            for (const auto& entry : dict.entries) {
                if (&entry.second == found) {
                    order[i] = &entry;
                }
            }
            rt_.spend(dict.entries.size() / 8);
        }
    }
    out.push_back('{');
    ++level_;
    for (std::size_t i = 0; i < order.size() && !rt_.failed(); ++i) {
        out += i == 0 ? "" : style_.item_separator;
        new_line();
        write_key(order[i]->first);
        out += style_.key_separator;
        write(order[i]->second);
    }
    --level_;
    new_line();
    out.push_back('}');
}

}  // namespace

Value to_json(Runtime& rt, const Value& value, const JsonStyle& style) {
    JsonWriter writer(rt, style);
    writer.write(value);
    return rt.text(std::move(writer.out), writer.origin);
}

}  // namespace terrace::jinja
