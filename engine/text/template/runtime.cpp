#include "engine/text/template/runtime.h"

#include <algorithm>

#include "engine/text/template/operations.h"

namespace terrace::jinja {

bool Runtime::spend(std::size_t steps) {
    steps_ += steps;
    if (steps_ > limits_.max_steps && !failed_) {
        fail_limit("more than " + std::to_string(limits_.max_steps) + " steps of work");
    }
    return !failed_;
}

void Runtime::charge(std::size_t bytes) {
    bytes_ += bytes;
    if (bytes_ > limits_.max_memory_bytes && !failed_) {
        fail_limit("more than " + std::to_string(limits_.max_memory_bytes) + " bytes of memory");
    }
}

Value Runtime::fail(const char* error_class, std::string message) {
    if (!failed_) {
        failed_ = true;
        failure_ = {error_class, std::move(message), position.line, position.column};
    }
    return {};
}

Value Runtime::fail_type(std::string message) {
    return fail(kTypeError, std::move(message));
}

Value Runtime::fail_limit(const std::string& what) {
    return fail(kLimitError, "expected a template that stays within its limits, found " + what);
}

Value Runtime::text(std::string bytes, Origin origin) {
    TextBuilder builder(*this);
    builder.add(bytes, origin);
    return builder.take();
}

Value Runtime::literal(std::string_view bytes) {
    return text(std::string(bytes), Origin::Trusted);
}

Value Runtime::sequence(Kind kind, std::vector<Value> items) {
    auto* object = make<Sequence>();
    charge(items.size() * sizeof(Value));
    spend(items.size() / 8);
    object->items = std::move(items);
    return Value::of(kind, object);
}

Value Runtime::list(std::vector<Value> items) {
    return sequence(Kind::List, std::move(items));
}

Value Runtime::tuple(std::vector<Value> items) {
    return sequence(Kind::Tuple, std::move(items));
}

Value Runtime::new_dict() {
    return Value::of(Kind::Dict, make<Dict>());
}

Value Runtime::undefined(std::string message) {
    auto* info = make<UndefinedInfo>();
    info->error_class = kUndefinedError;
    info->message = std::move(message);
    return Value::of(Kind::Undefined, info);
}

Value Runtime::undefined_attribute(const Value& of, const Value& name) {
    const std::string owner = of.is(Kind::None) ? "None" : type_name(of) + " object";
    if (name.is_string()) {
        return undefined("'" + owner + "' has no attribute " + repr_plain(*this, name));
    }
    return undefined(owner + " has no element " + repr_plain(*this, name));
}

Value Runtime::unsafe_attribute(const Value& of, std::string_view name) {
    Value value = undefined("access to attribute '" + std::string(name) + "' of '" + type_name(of) +
                            "' object is unsafe.");
    value.as<UndefinedInfo>().error_class = kSecurityError;
    return value;
}

Value Runtime::iterator(std::function<bool(Runtime&, Value&)> next) {
    auto* object = make<Iterator>();
    object->next = std::move(next);
    return Value::of(Kind::Iterator, object);
}

Value Runtime::fail_undefined(const Value& undefined) {
    if (undefined.object == nullptr) {
        return fail(kUndefinedError, "the value is undefined");
    }
    const auto& info = undefined.as<UndefinedInfo>();
    return fail(info.error_class, info.message);
}

DepthScope::DepthScope(Runtime& rt) : rt_(rt), ok_(true) {
    if (++rt_.depth > rt_.limits().max_depth) {
        rt_.fail_limit("nesting deeper than " + std::to_string(rt_.limits().max_depth));
        ok_ = false;
    }
}

void TextBuilder::add(std::string_view bytes, Origin origin) {
    if (bytes.empty() || rt_.failed()) {
        return;
    }
    if (bytes.size() >
        rt_.limits().max_memory_bytes - std::min(bytes_.size(), rt_.limits().max_memory_bytes)) {
        rt_.fail_limit("a text of more than " + std::to_string(rt_.limits().max_memory_bytes) +
                       " bytes");
        return;
    }
    rt_.spend(1 + bytes.size() / 64);
    const std::size_t begin = bytes_.size();
    bytes_.append(bytes);
    if (origin == Origin::User) {
        mark(begin, bytes_.size());
    }
}

void TextBuilder::add(const Text& text) {
    add_slice(text, 0, text.bytes.size());
}

void TextBuilder::add_slice(const Text& text, std::size_t begin, std::size_t end) {
    const std::size_t base = bytes_.size();
    add(std::string_view(text.bytes).substr(begin, end - begin), Origin::Trusted);
    if (bytes_.size() == base) {
        return;
    }
    auto span = std::lower_bound(text.user.begin(), text.user.end(), begin,
                                 [](const TextSpan& s, std::size_t at) { return s.end <= at; });
    for (; span != text.user.end() && span->begin < end; ++span) {
        mark(base + std::max(span->begin, begin) - begin, base + std::min(span->end, end) - begin);
    }
}

void TextBuilder::mark(std::size_t begin, std::size_t end) {
    if (!user_.empty() && user_.back().end == begin) {
        user_.back().end = end;
    } else {
        user_.push_back({begin, end});
    }
}

Value TextBuilder::take() {
    auto* text = rt_.make<Text>();
    rt_.charge(bytes_.size() + user_.size() * sizeof(TextSpan));
    text->ascii = std::all_of(bytes_.begin(), bytes_.end(),
                              [](char c) { return static_cast<unsigned char>(c) < 0x80; });
    text->bytes = std::move(bytes_);
    text->user = std::move(user_);
    return Value::of(Kind::String, text);
}

Value TextBuilder::take_markup() {
    const Value value = take();
    value.as<Text>().markup = true;
    return value;
}

Origin origin_of(const Text& text) {
    return text.has_user() ? Origin::User : Origin::Trusted;
}

Origin origin_at(const Text& text, std::size_t at) {
    const auto span =
        std::upper_bound(text.user.begin(), text.user.end(), at,
                         [](std::size_t value, const TextSpan& s) { return value < s.end; });
    return span != text.user.end() && span->begin <= at ? Origin::User : Origin::Trusted;
}

Value slice_bytes(Runtime& rt, const Text& text, std::size_t begin, std::size_t end) {
    TextBuilder builder(rt);
    builder.add_slice(text, begin, end);
    return text.markup ? builder.take_markup() : builder.take();
}

}  // namespace terrace::jinja
