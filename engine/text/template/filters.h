// The filter tables, by what they work on.
#pragma once

#include <span>
#include <string_view>

#include "engine/text/template/operations.h"

namespace terrace::jinja {

struct Filter {
    std::string_view name;
    FilterFunction call;  ///< null: known to the reference environment, not supported here
};

std::span<const Filter> text_filters();
std::span<const Filter> item_filters();
std::span<const Filter> choice_filters();
std::span<const Filter> number_filters();

/// The subject as a Text: str() of it, markup kept. Valid even after a failure.
Value soft_text(Runtime& rt, const Value& subject);
/// The lower-case form of a string, anything else as it is: what sorting without case compares.
Value ignore_case(Runtime& rt, const Value& value);

/// Reads `attribute` paths such as "a.0.b" from items.
class AttributePath {
public:
    AttributePath(Runtime& rt, const Value& path);

    /// The attribute of `item`; `otherwise`, when given, stands for undefined parts.
    [[nodiscard]] Value read(Runtime& rt, Value item, const Value* otherwise = nullptr) const;

private:
    std::vector<Value> parts_;
};

}  // namespace terrace::jinja
