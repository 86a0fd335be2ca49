// Finding filters by name, and what several of them share.
#include "engine/text/template/filters.h"

#include "engine/text/template/text_operations.h"

namespace terrace::jinja {

namespace {

Value not_supported(Runtime& rt, const Value&, const Args&) {
    return rt.fail(kRuntimeError, "this filter is known to the reference and not supported here");
}

bool is_number_text(std::string_view text) {
    return !text.empty() && text.size() < 18 &&
           text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

FilterFunction find_filter(std::string_view name) {
    for (const auto table : {text_filters(), item_filters(), choice_filters(), number_filters()}) {
        for (const Filter& filter : table) {
            if (filter.name == name) {
                return filter.call != nullptr ? filter.call : not_supported;
            }
        }
    }
    return nullptr;
}

Value soft_text(Runtime& rt, const Value& subject) {
    return to_text(rt, subject);
}

Value ignore_case(Runtime& rt, const Value& value) {
    return value.is_string() ? change_case(rt, value.text(), CaseChange::Lower) : value;
}

AttributePath::AttributePath(Runtime& rt, const Value& path) {
    if (path.is(Kind::None)) {
        return;
    }
    if (!path.is_string()) {
        parts_.push_back(path);
        return;
    }
    const Value dot = rt.literal(".");
    for (const Value& part : split(rt, path.text(), &dot.text(), -1, From::Left)) {
        const std::string& text = part.text().bytes;
        parts_.push_back(is_number_text(text) ? Value::of_int(std::stoll(text)) : part);
    }
}

Value AttributePath::read(Runtime& rt, Value item, const Value* otherwise) const {
    for (const Value& part : parts_) {
        item = get_item(rt, item, part);
        if (otherwise != nullptr && item.is(Kind::Undefined) && !rt.failed()) {
            item = *otherwise;
        }
    }
    return item;
}

}  // namespace terrace::jinja
