// The methods of Python's str.
#include <algorithm>
#include <array>

#include "engine/text/template/character_tables.h"
#include "engine/text/template/characters.h"
#include "engine/text/template/methods.h"
#include "engine/text/template/text_operations.h"
#include "engine/text/template/text_search.h"

namespace terrace::jinja {

namespace {

template <CaseChange how>
Value cased(Runtime& rt, const Value& self, const Args& args) {
    const Parameters none(rt, "case method", args, {});
    return change_case(rt, self.text(), how);
}

template <Sides sides>
Value stripped(Runtime& rt, const Value& self, const Args& args) {
    Parameters in(rt, "strip", args, {"chars"});
    return strip(rt, self.text(), sides, in.some(0) ? in.string(0) : nullptr);
}

template <From from>
Value splitted(Runtime& rt, const Value& self, const Args& args) {
    Parameters in(rt, "split", args, {"sep", "maxsplit"});
    const Text* separator = in.some(0) ? in.string(0) : nullptr;
    const BigInt limit = in.integer(1, -1);
    if (rt.failed()) {
        return {};
    }
    return rt.list(split(rt, self.text(), separator, limit, from));
}

Value splitlines(Runtime& rt, const Value& self, const Args& args) {
    const Parameters in(rt, "splitlines", args, {"keepends"});
    return rt.list(
        split_lines(rt, self.text(), in.truth(0, false) ? LineEnds::Keep : LineEnds::Drop));
}

template <From from>
Value partition(Runtime& rt, const Value& self, const Args& args) {
    Parameters in(rt, "partition", args, {"sep"}, 1);
    const Text* separator = in.string(0);
    if (separator == nullptr || separator->bytes.empty()) {
        return rt.fail(kValueError, "empty separator");
    }
    const Text& text = self.text();
    const std::size_t size = text.bytes.size();
    const std::size_t found = from == From::Left
                                  ? find_text(rt, text.bytes, separator->bytes, 0)
                                  : find_text_backwards(rt, text.bytes, separator->bytes, size);
    if (found == kNoMatch) {
        const Value empty = rt.literal("");
        return from == From::Left ? rt.tuple({self, empty, empty}) : rt.tuple({empty, empty, self});
    }
    const std::size_t end = found + separator->bytes.size();
    return rt.tuple({slice_bytes(rt, text, 0, found), slice_bytes(rt, text, found, end),
                     slice_bytes(rt, text, end, size)});
}

/// The part of a text between the optional arguments `start` and `end`.
struct Part {
    std::size_t begin = 0;
    std::size_t end = 0;
};

Part part_of(Runtime& rt, const Text& text, Parameters& in, std::size_t first) {
    Part part{0, text.bytes.size()};
    if (in.some(first)) {
        part.begin = byte_offset(rt, text, in.integer(first, 0));
    }
    if (in.some(first + 1)) {
        part.end = std::max(part.begin, byte_offset(rt, text, in.integer(first + 1, 0)));
    }
    return part;
}

enum class Missing { MinusOne, Raise };

template <From from, Missing missing>
Value found_at(Runtime& rt, const Value& self, const Args& args) {
    Parameters in(rt, "find", args, {"sub", "start", "end"}, 1);
    const Text* needle = in.string(0);
    if (needle == nullptr) {
        return {};
    }
    const Text& text = self.text();
    const Part part = part_of(rt, text, in, 1);
    const std::string_view searched = std::string_view(text.bytes).substr(0, part.end);
    std::size_t found = from == From::Left
                            ? find_text(rt, searched, needle->bytes, part.begin)
                            : find_text_backwards(rt, searched, needle->bytes, part.end);
    if (found != kNoMatch && found < part.begin) {
        found = kNoMatch;
    }
    if (found == kNoMatch) {
        return missing == Missing::Raise ? rt.fail(kValueError, "substring not found")
                                         : Value::of_int(-1);
    }
    rt.spend(found / 16);
    return Value::of_int(static_cast<BigInt>(count_code_points(searched.substr(0, found))));
}

Value counted(Runtime& rt, const Value& self, const Args& args) {
    Parameters in(rt, "count", args, {"sub", "start", "end"}, 1);
    const Text* needle = in.string(0);
    if (needle == nullptr) {
        return {};
    }
    const Part part = part_of(rt, self.text(), in, 1);
    const std::string_view searched = std::string_view(self.text().bytes).substr(0, part.end);
    if (needle->bytes.empty()) {
        return Value::of_int(static_cast<BigInt>(count_code_points(searched.substr(part.begin))) +
                             1);
    }
    BigInt count = 0;
    for (std::size_t at = part.begin; rt.spend(1); ++count) {
        const std::size_t found = find_text(rt, searched, needle->bytes, at);
        if (found == kNoMatch) {
            break;
        }
        at = found + needle->bytes.size();
    }
    return Value::of_int(count);
}

enum class End { Start, Finish };

template <End which>
Value has_end(Runtime& rt, const Value& self, const Args& args) {
    Parameters in(rt, which == End::Start ? "startswith" : "endswith", args,
                  {"prefix", "start", "end"}, 1);
    if (rt.failed()) {
        return {};
    }
    const Part part = part_of(rt, self.text(), in, 1);
    const std::string_view text =
        std::string_view(self.text().bytes).substr(part.begin, part.end - part.begin);
    const Value wanted = in.get(0);
    const std::vector<Value> one{wanted};
    for (const Value& item : wanted.is(Kind::Tuple) ? wanted.items() : one) {
        if (!item.is_string()) {
            return rt.fail_type("startswith first arg must be str or a tuple of str, not " +
                                type_name(item));
        }
        const std::string& end = item.text().bytes;
        if (which == End::Start ? text.starts_with(end) : text.ends_with(end)) {
            return Value::boolean(true);
        }
    }
    return Value::boolean(false);
}

template <End which>
Value removed_end(Runtime& rt, const Value& self, const Args& args) {
    Parameters in(rt, "removeprefix", args, {"prefix"}, 1);
    const Text* end = in.string(0);
    if (end == nullptr) {
        return {};
    }
    const Text& text = self.text();
    const std::size_t size = text.bytes.size();
    const std::size_t cut = end->bytes.size();
    if (which == End::Start) {
        return slice_bytes(rt, text, text.bytes.starts_with(end->bytes) ? cut : 0, size);
    }
    return slice_bytes(rt, text, 0, text.bytes.ends_with(end->bytes) ? size - cut : size);
}

Value replaced(Runtime& rt, const Value& self, const Args& args) {
    Parameters in(rt, "replace", args, {"old", "new", "count"}, 2);
    const Text* old = in.string(0);
    const Text* with = in.string(1);
    const BigInt count = in.integer(2, -1);
    if (old == nullptr || with == nullptr || rt.failed()) {
        return {};
    }
    const Value escaped = self.text().markup ? escape(rt, in.get(1)) : in.get(1);
    return rt.failed() ? Value{} : replace(rt, self.text(), *old, escaped.text(), count);
}

Value joined(Runtime& rt, const Value& self, const Args& args) {
    const Parameters in(rt, "join", args, {"iterable"}, 1);
    std::vector<Value> items = rt.failed() ? std::vector<Value>{} : collect(rt, in.get(0));
    for (std::size_t i = 0; i < items.size(); ++i) {
        if (!items[i].is_string() && !self.text().markup) {
            return rt.fail_type("sequence item " + std::to_string(i) + ": expected str instance, " +
                                type_name(items[i]) + " found");
        }
        if (self.text().markup) {
            items[i] = escape(rt, items[i]);
        }
    }
    const Value result = join(rt, self.text(), items);
    result.as<Text>().markup = self.text().markup;
    return result;
}

Value formatted(Runtime& rt, const Value& self, const Args& args) {
    return format_braces(rt, self.text(), args);
}

template <Sides side>
Value padded(Runtime& rt, const Value& self, const Args& args) {
    Parameters in(rt, "pad", args, {"width", "fillchar"}, 1);
    const BigInt width = in.integer(0, 0);
    const Text* fill = in.has(1) ? in.string(1) : nullptr;
    if (fill != nullptr && count_code_points(fill->bytes) != 1) {
        return rt.fail_type("The fill character must be exactly one character long");
    }
    return pad(rt, self.text(), width, fill == nullptr ? " " : fill->bytes, side);
}

Value zfill(Runtime& rt, const Value& self, const Args& args) {
    Parameters in(rt, "zfill", args, {"width"}, 1);
    const BigInt width = in.integer(0, 0);
    const Text& text = self.text();
    const std::size_t sign =
        !text.bytes.empty() && (text.bytes[0] == '+' || text.bytes[0] == '-') ? 1 : 0;
    const Value rest = slice_bytes(rt, text, sign, text.bytes.size());
    const Value zeros = pad(rt, rest.text(), width - static_cast<BigInt>(sign), "0", Sides::Right);
    TextBuilder builder(rt);
    builder.add_slice(text, 0, sign);
    if (!rt.failed()) {
        builder.add(zeros.text());
    }
    return take_like(builder, text);
}

Value encode(Runtime& rt, const Value& self, const Args&) {
    TextBuilder builder(rt);
    builder.add(self.text());
    Value bytes = builder.take();
    bytes.kind = Kind::Bytes;
    return bytes;
}

/// Whether every code point of a text that is not empty has one of the flags.
template <std::uint16_t flags>
Value all_have(Runtime& rt, const Value& self, const Args&) {
    const std::string& bytes = self.text().bytes;
    rt.spend(bytes.size() / 16);
    for (std::size_t at = 0; at < bytes.size();) {
        const CodePoint point = decode(bytes, at);
        if ((character_flags(point.value) & flags) == 0) {
            return Value::boolean(false);
        }
        at += point.n_bytes;
    }
    return Value::boolean(flags == tables::kPrintable || !bytes.empty());
}

Value is_all_space(Runtime& rt, const Value& self, const Args&) {
    const std::string& bytes = self.text().bytes;
    rt.spend(bytes.size() / 16);
    for (std::size_t at = 0; at < bytes.size();) {
        const CodePoint point = decode(bytes, at);
        if (!is_space(point.value)) {
            return Value::boolean(false);
        }
        at += point.n_bytes;
    }
    return Value::boolean(!bytes.empty());
}

Value is_ascii(Runtime&, const Value& self, const Args&) {
    return Value::boolean(self.text().ascii);
}

/// At least one letter of the wanted case and none of the other.
template <std::uint16_t wanted, std::uint16_t unwanted>
Value is_in_case(Runtime& rt, const Value& self, const Args&) {
    const std::string& bytes = self.text().bytes;
    rt.spend(bytes.size() / 16);
    bool any = false;
    for (std::size_t at = 0; at < bytes.size();) {
        const CodePoint point = decode(bytes, at);
        const std::uint16_t flags = character_flags(point.value);
        if ((flags & unwanted) != 0) {
            return Value::boolean(false);
        }
        any = any || (flags & wanted) != 0;
        at += point.n_bytes;
    }
    return Value::boolean(any);
}

Value is_title(Runtime& rt, const Value& self, const Args&) {
    const std::string& bytes = self.text().bytes;
    rt.spend(bytes.size() / 16);
    bool any = false;
    bool after_cased = false;
    for (std::size_t at = 0; at < bytes.size();) {
        const CodePoint point = decode(bytes, at);
        const std::uint16_t flags = character_flags(point.value);
        const bool capital = (flags & (tables::kUpper | tables::kTitle)) != 0;
        const bool small = (flags & tables::kLower) != 0;
        if ((capital && after_cased) || (small && !after_cased)) {
            return Value::boolean(false);
        }
        after_cased = capital || small;
        any = any || after_cased;
        at += point.n_bytes;
    }
    return Value::boolean(any);
}

constexpr std::uint16_t kNumber = tables::kDecimal | tables::kDigit | tables::kNumeric;

constexpr std::array<Method, 47> kTextMethods{{
    {"capitalize", cased<CaseChange::Capitalize>},
    {"casefold", nullptr},
    {"center", padded<Sides::Both>},
    {"count", counted},
    {"encode", encode},
    {"endswith", has_end<End::Finish>},
    {"expandtabs", nullptr},
    {"find", found_at<From::Left, Missing::MinusOne>},
    {"format", formatted},
    {"format_map", nullptr},
    {"index", found_at<From::Left, Missing::Raise>},
    {"isalnum", all_have<tables::kAlpha | kNumber>},
    {"isalpha", all_have<tables::kAlpha>},
    {"isascii", is_ascii},
    {"isdecimal", all_have<tables::kDecimal>},
    {"isdigit", all_have<tables::kDecimal | tables::kDigit>},
    {"isidentifier", nullptr},
    {"islower", is_in_case<tables::kLower, tables::kUpper | tables::kTitle>},
    {"isnumeric", all_have<kNumber>},
    {"isprintable", all_have<tables::kPrintable>},
    {"isspace", is_all_space},
    {"istitle", is_title},
    {"isupper", is_in_case<tables::kUpper, tables::kLower | tables::kTitle>},
    {"join", joined},
    {"ljust", padded<Sides::Left>},
    {"lower", cased<CaseChange::Lower>},
    {"lstrip", stripped<Sides::Left>},
    {"maketrans", nullptr},
    {"partition", partition<From::Left>},
    {"removeprefix", removed_end<End::Start>},
    {"removesuffix", removed_end<End::Finish>},
    {"replace", replaced},
    {"rfind", found_at<From::Right, Missing::MinusOne>},
    {"rindex", found_at<From::Right, Missing::Raise>},
    {"rjust", padded<Sides::Right>},
    {"rpartition", partition<From::Right>},
    {"rsplit", splitted<From::Right>},
    {"rstrip", stripped<Sides::Right>},
    {"split", splitted<From::Left>},
    {"splitlines", splitlines},
    {"startswith", has_end<End::Start>},
    {"strip", stripped<Sides::Both>},
    {"swapcase", cased<CaseChange::Swap>},
    {"title", cased<CaseChange::Title>},
    {"translate", nullptr},
    {"upper", cased<CaseChange::Upper>},
    {"zfill", zfill},
}};

}  // namespace

std::span<const Method> text_methods() {
    return kTextMethods;
}

}  // namespace terrace::jinja
