// What methods and filters of strings share. Every operation keeps the origin of each byte.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "engine/text/template/operations.h"

namespace terrace::jinja {

enum class CaseChange { Lower, Upper, Title, Capitalize, Swap };
enum class Sides { Left, Right, Both };
enum class From { Left, Right };
enum class LineEnds { Drop, Keep };

/// Ends a builder as the kind of string that `like` is.
Value take_like(TextBuilder& builder, const Text& like);
Value change_case(Runtime& rt, const Text& text, CaseChange how);
/// Strips the set of characters `chars`, or white space when null.
Value strip(Runtime& rt, const Text& text, Sides sides, const Text* chars);
/// Splits at `separator`, or at white space when null; `limit` < 0 is no limit.
std::vector<Value> split(
    Runtime& rt, const Text& text, const Text* separator, BigInt limit, From from);
std::vector<Value> split_lines(Runtime& rt, const Text& text, LineEnds ends);
/// `count` < 0 replaces all.
Value replace(Runtime& rt, const Text& text, const Text& old, const Text& with, BigInt count);
/// Pads with `fill` to `width` code points: Left puts the text left.
Value pad(Runtime& rt, const Text& text, BigInt width, std::string_view fill, Sides text_side);
/// Joins str() of the items.
Value join(Runtime& rt, const Text& separator, const std::vector<Value>& items);
/// Byte offset of code point `index` (clamped; negative counts from the end).
std::size_t byte_offset(Runtime& rt, const Text& text, BigInt index);

}  // namespace terrace::jinja
