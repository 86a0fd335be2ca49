// Filters of texts: case, trimming, replacing, indenting, markup, JSON.
#include <algorithm>
#include <array>

#include "engine/text/template/character_tables.h"
#include "engine/text/template/characters.h"
#include "engine/text/template/filters.h"
#include "engine/text/template/text_operations.h"

namespace terrace::jinja {

namespace {

template <CaseChange how>
Value cased(Runtime& rt, const Value& subject, const Args& args) {
    const Parameters none(rt, "case filter", args, {});
    return change_case(rt, soft_text(rt, subject).text(), how);
}

/// The filter `title` splits words at white space, - ( { [ < only, unlike the method.
Value title(Runtime& rt, const Value& subject, const Args& args) {
    const Parameters none(rt, "title", args, {});
    const Value value = soft_text(rt, subject);
    const Text& text = value.text();
    TextBuilder builder(rt);
    std::string mapped;
    bool at_start = true;
    for (std::size_t at = 0; at < text.bytes.size() && rt.spend(1);) {
        const CodePoint point = decode(text.bytes, at);
        const char32_t c = point.value;
        const bool splits = is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
        mapped.clear();
        append_mapped(mapped, c, at_start ? Case::Upper : Case::Lower);
        builder.add(mapped, origin_at(text, at));
        at_start = splits;
        at += point.n_bytes;
    }
    return builder.take();
}

Value trim(Runtime& rt, const Value& subject, const Args& args) {
    Parameters in(rt, "trim", args, {"chars"});
    const Value value = soft_text(rt, subject);
    return strip(rt, value.text(), Sides::Both, in.some(0) ? in.string(0) : nullptr);
}

Value replace_filter(Runtime& rt, const Value& subject, const Args& args) {
    Parameters in(rt, "do_replace", args, {"old", "new", "count"}, 2);
    const BigInt count = in.some(2) ? in.integer(2, -1) : -1;
    if (rt.failed()) {
        return {};
    }
    // Plain text comes out, markup or not: autoescape is off.
    TextBuilder plain(rt);
    print(rt, subject, plain);
    const Value text = plain.take();
    const Value old = to_text(rt, in.get(0));
    const Value with = to_text(rt, in.get(1));
    return replace(rt, text.text(), old.text(), with.text(), count);
}

Value string(Runtime& rt, const Value& subject, const Args& args) {
    const Parameters none(rt, "string", args, {});
    return to_text(rt, subject);
}

Value indent(Runtime& rt, const Value& subject, const Args& args) {
    Parameters in(rt, "do_indent", args, {"width", "first", "blank"});
    TextBuilder indention(rt);
    if (in.has(0) && in.get(0).is_string()) {
        indention.add(in.get(0).text());
    } else {
        const BigInt width = std::min(in.integer(0, 4), BigInt{100'000});
        indention.add(std::string(static_cast<std::size_t>(std::max(width, BigInt{0})), ' '),
                      Origin::Trusted);
    }
    const Value prefix = indention.take();
    if (subject.is(Kind::List)) {
        return rt.fail("AttributeError", "'list' object has no attribute 'splitlines'");
    }
    if (!subject.is_string()) {
        return subject.is(Kind::Undefined) ? rt.fail_undefined(subject)
                                           : rt.fail_type("unsupported operand type(s) for +=: '" +
                                                          type_name(subject) + "' and 'str'");
    }
    const Value& value = subject;
    if (rt.failed()) {
        return {};
    }
    // Python adds a line break first, so that a last empty line counts as a line.
    TextBuilder with_break(rt);
    with_break.add(value.text());
    with_break.add("\n", Origin::Trusted);
    const Value whole = with_break.take();
    const std::vector<Value> lines = split_lines(rt, whole.text(), LineEnds::Drop);
    TextBuilder out(rt);
    for (std::size_t i = 0; i < lines.size() && !rt.failed(); ++i) {
        const Text& line = lines[i].text();
        const bool indented =
            i == 0 ? in.truth(1, false) : in.truth(2, false) || !line.bytes.empty();
        out.add(i == 0 ? "" : "\n", Origin::Trusted);
        if (indented) {
            out.add(prefix.text());
        }
        out.add(line);
    }
    return take_like(out, value.text());
}

Value safe(Runtime& rt, const Value& subject, const Args& args) {
    const Parameters none(rt, "safe", args, {});
    TextBuilder builder(rt);
    print(rt, subject, builder);
    return builder.take_markup();
}

Value escape_filter(Runtime& rt, const Value& subject, const Args& args) {
    const Parameters none(rt, "escape", args, {});
    return escape(rt, subject);
}

Value force_escape(Runtime& rt, const Value& subject, const Args& args) {
    const Parameters none(rt, "forceescape", args, {});
    const Value value = soft_text(rt, subject);
    TextBuilder builder(rt);
    print_escaped(value.text(), builder);
    return builder.take_markup();
}

Value center(Runtime& rt, const Value& subject, const Args& args) {
    Parameters in(rt, "center", args, {"width"});
    const BigInt width = in.integer(0, 80);
    return pad(rt, soft_text(rt, subject).text(), width, " ", Sides::Both);
}

Value truncate(Runtime& rt, const Value& subject, const Args& args) {
    Parameters in(rt, "do_truncate", args, {"length", "killwords", "end", "leeway"});
    const BigInt wanted = in.integer(0, 255);
    const BigInt leeway = in.some(3) ? in.integer(3, 5) : 5;
    const Value dots = in.has(2) ? to_text(rt, in.get(2)) : rt.literal("...");
    const Value& value = subject;
    const BigInt n_end = static_cast<BigInt>(count_code_points(dots.text().bytes));
    const BigInt n_chars = static_cast<BigInt>(length(rt, value).value_or(0));
    if (wanted < n_end) {
        return rt.fail("AssertionError",
                       "expected length >= " + int_text(n_end) + ", got " + int_text(wanted));
    }
    if (rt.failed() || n_chars <= wanted + leeway) {
        return value;
    }
    if (!value.is_string()) {
        return rt.fail_type("can only concatenate " + type_name(value) + " (not \"str\") to " +
                            type_name(value));
    }
    std::size_t end = byte_offset(rt, value.text(), wanted - n_end);
    if (!in.truth(1, false)) {
        const std::size_t space = value.text().bytes.substr(0, end).rfind(' ');
        end = space == std::string::npos ? end : space;
    }
    TextBuilder builder(rt);
    builder.add_slice(value.text(), 0, end);
    builder.add(dots.text());
    return take_like(builder, value.text());
}

Value word_count(Runtime& rt, const Value& subject, const Args& args) {
    const Parameters none(rt, "wordcount", args, {});
    const Value value = soft_text(rt, subject);
    const std::string& bytes = value.text().bytes;
    rt.spend(bytes.size() / 8);
    BigInt count = 0;
    bool inside = false;
    for (std::size_t at = 0; at < bytes.size();) {
        const CodePoint point = decode(bytes, at);
        constexpr std::uint16_t kWord =
            tables::kAlpha | tables::kDecimal | tables::kDigit | tables::kNumeric;
        const bool word = point.value == '_' || (character_flags(point.value) & kWord) != 0;
        count += word && !inside ? 1 : 0;
        inside = word;
        at += point.n_bytes;
    }
    return Value::of_int(count);
}

Value format_filter(Runtime& rt, const Value& subject, const Args& args) {
    if (!args.named.empty() && !args.positional.empty()) {
        return rt.fail(kFilterArgumentError,
                       "can't handle positional and keyword arguments at the same time");
    }
    const Value text = soft_text(rt, subject);
    if (args.named.empty()) {
        return format_percent(rt, text.text(), rt.tuple(args.positional));
    }
    const Value names = rt.new_dict();
    for (const auto& [key, value] : args.named) {
        names.as<Dict>().set(rt, rt.literal(key), value);
    }
    return format_percent(rt, text.text(), names);
}

/// Removes everything from `open` to the next `close`, as often as there is a pair.
std::string without_between(const std::string& text,
                            std::string_view open,
                            std::string_view close) {
    std::string out;
    std::size_t at = 0;
    while (true) {
        const std::size_t begin = text.find(open, at);
        const std::size_t end =
            begin == std::string::npos ? begin : text.find(close, begin + open.size());
        if (end == std::string::npos) {
            return out + text.substr(at);
        }
        out.append(text, at, begin - at);
        at = end + close.size();
    }
}

std::string unescaped(const std::string& text) {
    static constexpr std::array<std::pair<std::string_view, char>, 6> kNames{{{"&amp;", '&'},
                                                                              {"&lt;", '<'},
                                                                              {"&gt;", '>'},
                                                                              {"&#39;", '\''},
                                                                              {"&#34;", '"'},
                                                                              {"&quot;", '"'}}};
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
        const auto* found = std::find_if(kNames.begin(), kNames.end(), [&](const auto& name) {
            return std::string_view(text).substr(at).starts_with(name.first);
        });
        out.push_back(found == kNames.end() ? text[at] : found->second);
        at += found == kNames.end() ? 1 : found->first.size();
    }
    return out;
}

Value strip_tags(Runtime& rt, const Value& subject, const Args& args) {
    const Parameters none(rt, "striptags", args, {});
    const Value value = soft_text(rt, subject);
    const Origin origin = origin_of(value.text());
    rt.spend(value.text().bytes.size() / 4);
    std::string bytes = without_between(value.text().bytes, "<!--", "-->");
    bytes = without_between(bytes, "<", ">");
    const Value stripped = rt.text(bytes, origin);
    const Value space = rt.literal(" ");
    const Value joined =
        join(rt, space.text(), split(rt, stripped.text(), nullptr, -1, From::Left));
    return rt.text(unescaped(joined.text().bytes), origin);
}

Value url_encode(Runtime& rt, const Value& subject, const Args& args) {
    const Parameters none(rt, "urlencode", args, {});
    if (!subject.is_string() && is_iterable(subject) && !subject.is(Kind::Undefined)) {
        return rt.fail(kRuntimeError, "urlencode of anything but a text is not supported");
    }
    const Value value = soft_text(rt, subject);
    static constexpr std::string_view kHex = "0123456789ABCDEF";
    std::string out;
    for (const char byte : value.text().bytes) {
        const auto c = static_cast<unsigned char>(byte);
        const bool kept = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') ||
                          std::string_view("_.-~/").find(byte) != std::string_view::npos;
        if (kept) {
            out.push_back(byte);
        } else {
            out += {'%', kHex[c >> 4U], kHex[c & 15U]};
        }
    }
    return rt.text(std::move(out), origin_of(value.text()));
}

/// Python's json.dumps as the reference environment calls it: the first positional argument is
/// ensure_ascii, not indent.
Value to_json_filter(Runtime& rt, const Value& subject, const Args& args) {
    Parameters in(rt, "tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
    JsonStyle style;
    style.ensure_ascii = in.truth(0, false);
    style.sort_keys = in.truth(3, false);
    if (in.some(1)) {
        if (in.get(1).is_string()) {
            style.indent = in.get(1).text().bytes;
        } else {
            const BigInt width = std::clamp(in.integer(1, 0), BigInt{0}, BigInt{1000});
            style.indent = std::string(static_cast<std::size_t>(width), ' ');
        }
        style.item_separator = ",";
    }
    if (in.some(2)) {
        const std::vector<Value> pair = collect(rt, in.get(2));
        if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
            return rt.fail(kValueError, "expected separators of two texts");
        }
        style.item_separator = pair[0].text().bytes;
        style.key_separator = pair[1].text().bytes;
    }
    return rt.failed() ? Value{} : to_json(rt, subject, style);
}

constexpr std::array<Filter, 23> kFilters{{
    {"capitalize", cased<CaseChange::Capitalize>},
    {"center", center},
    {"e", escape_filter},
    {"escape", escape_filter},
    {"forceescape", force_escape},
    {"format", format_filter},
    {"indent", indent},
    {"lower", cased<CaseChange::Lower>},
    {"replace", replace_filter},
    {"safe", safe},
    {"string", string},
    {"striptags", strip_tags},
    {"title", title},
    {"tojson", to_json_filter},
    {"trim", trim},
    {"truncate", truncate},
    {"upper", cased<CaseChange::Upper>},
    {"urlencode", url_encode},
    {"wordcount", word_count},
    {"filesizeformat", nullptr},
    {"urlize", nullptr},
    {"wordwrap", nullptr},
    {"xmlattr", nullptr},
}};

}  // namespace

std::span<const Filter> text_filters() {
    return kFilters;
}

}  // namespace terrace::jinja
