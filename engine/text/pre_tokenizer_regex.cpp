// See pre_tokenizer_regex.h. A recursive descent parser; its depth, the number of sets and the size
// of repeated groups are bounded, since the pattern comes from a downloaded file.
#include "engine/text/pre_tokenizer_regex.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "engine/text/pre_tokenizer_cost.h"
#include "engine/text/pre_tokenizer_fold.h"
#include "engine/text/utf8.h"

namespace terrace {
namespace {

constexpr std::size_t kMaxPatternBytes = 8192;
constexpr std::size_t kMaxSets = 128;
constexpr int kMaxDepth = 40;
constexpr std::uint64_t kUnbounded = RegexCost::kUnbounded;
/// How often the inside of a repeated group may repeat in its turn: beyond this, a text that almost
/// matches could take time without end.
constexpr std::uint64_t kMaxNestedRepeats = 10'000;
constexpr std::uint64_t kMaxExpandedSize = 4'000;
constexpr std::uint64_t kMaxCount = 1'000;
/// Ways to try at one place of a text. One repeat without end that has to give back what it took
/// is usual in published patterns, two in a row are not.
constexpr std::uint64_t kMaxWays = 4'000'000;

/// A part that was just read.
struct Shape {
    RegexCost cost;
    bool is_group = false;
    bool can_repeat = true;
};

struct Repeat : RegexRepeat {
    std::string syntax;
};

enum class Case { Exact, Folded };

bool is_ascii_letter(char32_t c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_digit(char32_t c) {
    return c >= '0' && c <= '9';
}

/// The parser. Lives for one call; the first error stops it (failed() is true from then on).
class Parser {
public:
    explicit Parser(std::string_view pattern) : text_(pattern) {}

    Result<ParsedRegex> run() {
        alternation(Case::Exact, 0);
        if (!failed() && at_ < text_.size()) {
            broken("a closing parenthesis without an opening one");
        }
        if (failed()) {
            return *std::move(error_);
        }
        return std::move(out_);
    }

    void literal_text() {
        while (at_ < text_.size()) {
            add_literal(next(), Case::Exact);
        }
    }

    Result<ParsedRegex> take() {
        if (failed()) {
            return *std::move(error_);
        }
        return std::move(out_);
    }

private:
    [[nodiscard]] bool failed() const { return error_.has_value(); }

    [[nodiscard]] bool ended() const { return failed() || at_ >= text_.size(); }

    [[nodiscard]] bool sees(std::string_view what) const {
        return text_.substr(at_, what.size()) == what;
    }

    bool take_if(std::string_view what) {
        if (!sees(what)) {
            return false;
        }
        at_ += what.size();
        return true;
    }

    char32_t next() { return next_code_point(text_, at_); }

    void fail(ErrorCode code, const std::string& what, const std::string& next_step) {
        if (!failed()) {
            error_ =
                Error{code, "Regex of the pre-tokenizer, byte " + std::to_string(at_) + ": " + what,
                      "", next_step};
        }
    }

    void broken(const std::string& found) {
        fail(ErrorCode::Corrupt, "expected a regular expression, found " + found,
             "Download the file again");
    }

    void unsupported(const std::string& found) {
        fail(ErrorCode::Unsupported, found + " is not supported",
             "This tokenizer cannot be used with this version");
    }

    void emit(std::string syntax) { out_.parts.push_back({RegexPart::kNoSet, std::move(syntax)}); }

    void emit_set(CodePointSet set) {
        const auto found = std::find(out_.sets.begin(), out_.sets.end(), set);
        const auto index = static_cast<std::size_t>(found - out_.sets.begin());
        if (found == out_.sets.end()) {
            if (index == kMaxSets) {
                unsupported("more than " + std::to_string(kMaxSets) + " different characters");
                return;
            }
            out_.sets.push_back(std::move(set));
        }
        out_.parts.push_back({index, ""});
    }

    void add_literal(char32_t c, Case letter_case) {
        CodePointSet set({{c, c}});
        if (letter_case == Case::Folded) {
            if (!fold_ascii_case(set)) {
                unsupported("a letter outside ASCII without regard to case");
            }
            if (previous_literal_ && folds_as_pair(*previous_literal_, c)) {
                unsupported("a pair of letters that folds into one, without regard to case,");
            }
        }
        emit_set(std::move(set));
    }

    RegexCost alternation(Case letter_case, int depth) {
        RegexCost cost = sequence(letter_case, depth);
        while (!ended() && take_if("|")) {
            emit("|");
            cost = either(cost, sequence(letter_case, depth));
        }
        if (cost.stuck > kMaxWays) {
            unsupported("a pattern that can be tried in too many ways");
        }
        return cost;
    }

    RegexCost sequence(Case letter_case, int depth) {
        RegexCost cost = RegexCost::nothing();
        previous_literal_.reset();
        if (take_if("(?i)")) {
            letter_case = Case::Folded;
            if (depth > 0 || at_ != 4) {
                unsupported("(?i) inside the pattern");
            }
            whole_folded_ = true;
        } else if (depth == 0 && whole_folded_) {
            letter_case = Case::Folded;
        }
        while (!ended() && !sees("|") && !sees(")")) {
            cost = behind(cost, repeated(atom(letter_case, depth)));
        }
        return cost;
    }

    Shape atom(Case letter_case, int depth) {
        if (sees("(")) {
            previous_literal_.reset();
            const Shape shape = group(letter_case, depth + 1);
            previous_literal_.reset();
            return shape;
        }
        if (sees("\\")) {
            return escape(letter_case);
        }
        if (sees("[")) {
            previous_literal_.reset();
            CodePointSet set = bracket(letter_case, depth + 1);
            emit_set(std::move(set));
            return {};
        }
        const char32_t c = next();
        if (c == '.' || c == '^' || c == '$') {
            previous_literal_.reset();
            return dot_or_anchor(c);
        }
        if (c == '*' || c == '+' || c == '?') {
            broken("a repeat of nothing");
            return {};
        }
        add_literal(c, letter_case);
        previous_literal_ = c;
        return {};
    }

    Shape dot_or_anchor(char32_t c) {
        const CodePointSet line_feed({{'\n', '\n'}});
        Shape shape;
        shape.can_repeat = c == '.';
        if (c == '.') {
            emit_set(line_feed.complement());
        } else if (c == '^') {  // as in Ruby: at the start of every line
            emit("(?:\\A|(?<=");
            emit_set(line_feed);
            emit(")(?!\\z))");
        } else {
            emit("(?=\\z|");
            emit_set(line_feed);
            emit(")");
        }
        return shape;
    }

    Shape group(Case letter_case, int depth) {
        struct Opening {
            std::string_view in;
            std::string_view out;
            bool looks_around;
        };

        constexpr std::array<Opening, 6> kOpenings = {{{"(?:", "(?:", false},
                                                       {"(?>", "(?>", false},
                                                       {"(?=", "(?=", true},
                                                       {"(?!", "(?!", true},
                                                       {"(?<=", "(?<=", true},
                                                       {"(?<!", "(?<!", true}}};
        Shape shape;
        if (depth > kMaxDepth) {
            unsupported("nesting deeper than " + std::to_string(kMaxDepth));
            return shape;
        }
        bool looks_around = false;
        const bool is_atomic = sees("(?>");
        const auto* opening = std::find_if(kOpenings.begin(), kOpenings.end(),
                                           [this](const Opening& o) { return sees(o.in); });
        if (opening != kOpenings.end()) {
            at_ += opening->in.size();
            looks_around = opening->looks_around;
            emit(std::string(opening->out));
        } else if (take_if("(?i:")) {
            letter_case = Case::Folded;
            emit("(?:");
        } else if (sees("(?")) {
            unsupported("a group that starts with \"" + std::string(text_.substr(at_, 4)) + "\"");
            return shape;
        } else {
            at_ += 1;  // nothing can refer back to what a group caught
            emit("(?:");
        }
        shape.cost = alternation(letter_case, depth);
        if (!failed() && !take_if(")")) {
            broken("a group that is not closed");
        }
        emit(")");
        shape.is_group = true;
        shape.can_repeat = !looks_around;
        if (looks_around) {
            shape.cost.failing = RegexCost::Failing::Possible;
        }
        if (looks_around || is_atomic) {
            shape.cost.ways = 1;  // nothing inside is tried again once it has matched
        }
        return shape;
    }

    Shape escape(Case letter_case) {
        if (at_ + 1 >= text_.size()) {
            broken("a backslash at the end");
            return {};
        }
        const char c = text_[at_ + 1];
        if (c == 'A' || c == 'z') {
            at_ += 2;
            previous_literal_.reset();
            emit(c == 'A' ? "\\A" : "\\z");
            Shape shape;
            shape.can_repeat = false;
            return shape;
        }
        std::optional<char32_t> single;
        CodePointSet set = escaped_set(single);
        if (failed()) {
            return {};
        }
        if (single) {
            add_literal(*single, letter_case);
            previous_literal_ = single;
            return {};
        }
        previous_literal_.reset();
        emit_set(std::move(set));
        return {};
    }

    /// Reads an escape that stands for one character (`single`) or for a set, in or out of
    /// brackets.
    CodePointSet escaped_set(std::optional<char32_t>& single) {
        at_ += 1;
        if (at_ >= text_.size()) {
            broken("a backslash at the end");
            return {};
        }
        const char32_t c = next();
        constexpr std::string_view kNames = "nrtfvae";
        constexpr std::string_view kValues = "\n\r\t\f\v\a\x1B";
        const std::size_t named =
            c < 0x80 ? kNames.find(static_cast<char>(c)) : std::string_view::npos;
        if (named != std::string_view::npos) {
            single = static_cast<char32_t>(kValues[named]);
        } else if (c == 's' || c == 'S') {
            return c == 's' ? white_space() : white_space().complement();
        } else if (c == 'd' || c == 'D') {
            CodePointSet digits;
            find_property("Nd", digits);
            return c == 'd' ? digits : digits.complement();
        } else if (c == 'p' || c == 'P') {
            return property(c == 'P');
        } else if (c == 'x' || c == 'u') {
            single = hex_escape(c);
        } else if (is_ascii_letter(c) || is_digit(c)) {
            unsupported(std::string("\"\\") + static_cast<char>(c) + "\"");
        } else {
            single = c;
        }
        return {};
    }

    CodePointSet property(bool negated) {
        const std::size_t end = text_.find('}', at_);
        if (!take_if("{") || end == std::string_view::npos) {
            broken("\\p without a name in braces");
            return {};
        }
        negated = take_if("^") != negated;
        const std::string_view name = text_.substr(at_, end - at_);
        CodePointSet set;
        if (!find_property(name, set)) {
            unsupported("the property \\p{" + std::string(name.substr(0, 40)) + "}");
            return {};
        }
        at_ = end + 1;
        return negated ? set.complement() : set;
    }

    char32_t hex_escape(char32_t kind) {
        const bool braces = kind == 'x' && take_if("{");
        const std::size_t most = braces ? 6 : kind == 'x' ? 2 : 4;
        char32_t value = 0;
        std::size_t n_digits = 0;
        for (; n_digits < most && at_ < text_.size(); ++n_digits, ++at_) {
            const char c = text_[at_];
            const char lower = static_cast<char>(c | 0x20);
            if (is_digit(static_cast<unsigned char>(c))) {
                value = value * 16 + static_cast<char32_t>(c - '0');
            } else if (lower >= 'a' && lower <= 'f') {
                value = value * 16 + static_cast<char32_t>(lower - 'a' + 10);
            } else {
                break;
            }
        }
        const bool complete = braces ? n_digits > 0 && take_if("}") : n_digits == most;
        const bool is_raw_byte = kind == 'x' && !braces && value >= 0x80;
        if (!complete || is_raw_byte || value > kLastCodePoint ||
            (value >= 0xD800 && value <= 0xDFFF)) {
            broken("an escape that is no character");
        }
        return value;
    }

    CodePointSet bracket(Case letter_case, int depth) {
        if (depth > kMaxDepth) {
            unsupported("nesting deeper than " + std::to_string(kMaxDepth));
            return {};
        }
        at_ += 1;
        const bool negated = take_if("^");
        if (sees("]")) {
            unsupported("a bracket that starts with ]");
            return {};
        }
        std::optional<CodePointSet> together;  // what the parts before && have in common
        CodePointSet set;
        while (!ended() && !sees("]")) {
            if (take_if("&&")) {
                together = together ? together->intersection(set) : set;
                set = {};
                continue;
            }
            bracket_item(set, depth);
        }
        if (!failed() && !take_if("]")) {
            broken("a bracket that is not closed");
        }
        if (together) {
            set = together->intersection(set);
        }
        if (letter_case == Case::Folded && (negated || !fold_ascii_case(set))) {
            unsupported("a bracket with ^ or with letters outside ASCII, without regard to case,");
        }
        return negated ? set.complement() : set;
    }

    void bracket_item(CodePointSet& set, int depth) {
        if (sees("[:")) {
            unsupported("a named class in brackets");
            return;
        }
        if (sees("[")) {
            set.add(bracket(Case::Exact, depth + 1));
            return;
        }
        std::optional<char32_t> first;
        const CodePointSet several = bracket_character(first);
        if (failed()) {
            return;
        }
        const bool is_range = sees("-") && at_ + 1 < text_.size() && text_[at_ + 1] != ']';
        if (!first) {
            set.add(several);
            if (is_range) {
                unsupported("a range that starts with a class");
            }
            return;
        }
        if (!is_range) {
            set.add(*first, *first);
            return;
        }
        at_ += 1;
        std::optional<char32_t> last;
        if (sees("[") || sees("&&")) {
            unsupported("a range that ends with a bracket");
            return;
        }
        bracket_character(last);
        if (!failed() && (!last || *last < *first)) {
            broken("a range whose end does not lie behind its start");
        }
        if (!failed()) {
            set.add(*first, *last);
        }
    }

    CodePointSet bracket_character(std::optional<char32_t>& single) {
        if (sees("\\")) {
            return escaped_set(single);
        }
        single = next();
        return {};
    }

    /// Reads the repeat behind a part, if there is one, and weighs it.
    RegexCost repeated(const Shape& shape) {
        Repeat repeat;
        if (ended() || !read_repeat(repeat)) {
            return shape.cost;
        }
        previous_literal_.reset();
        emit(repeat.syntax);
        if (!shape.can_repeat) {
            unsupported("a repeat of something that takes no text");
        }
        if (repeat.most != kUnbounded && repeat.most > kMaxCount) {
            unsupported("a repeat of more than " + std::to_string(kMaxCount));
        }
        if (repeat.most > 1 && shape.cost.repeats > 1 &&
            repeat.most * shape.cost.repeats > kMaxNestedRepeats) {
            unsupported("a repeat inside a repeat, which can take time without end,");
        }
        RegexCost cost = repeated_cost(shape.cost, repeat);
        if (!shape.is_group) {
            cost.size = shape.cost.size;  // a set is repeated in place
        }
        if (cost.size > kMaxExpandedSize) {
            unsupported("a repeat this large");
        }
        Repeat more;
        if (!failed() &&
            (sees("*") || sees("+") || sees("?") || (sees("{") && read_braces(more)))) {
            unsupported("a repeat of a repeat");
        }
        return cost;
    }

    bool read_repeat(Repeat& out) {
        if (sees("{")) {
            if (!read_braces(out)) {
                return false;
            }
            // {n}? is an option in Ruby, and {n,m}+ a repeat of the repeat; not so in PCRE2.
            if (sees("+") || (sees("?") && out.least == out.most)) {
                unsupported("a sign behind a counted repeat");
            }
        } else if (take_if("*")) {
            out = {{0, kUnbounded}, "*"};
        } else if (take_if("+")) {
            out = {{1, kUnbounded}, "+"};
        } else if (take_if("?")) {
            out = {{0, 1}, "?"};
        } else {
            return false;
        }
        if (take_if("?")) {
            out.syntax += "?";
        } else if (take_if("+")) {
            out.syntax += "+";
            out.giving = RegexRepeat::Giving::Nothing;
        }
        return true;
    }

    /// {n}, {n,}, {,m} or {n,m}; anything else is an ordinary brace and is left alone.
    bool read_braces(Repeat& out) {
        std::size_t at = at_ + 1;
        const auto number = [&]() -> std::optional<std::uint64_t> {
            std::optional<std::uint64_t> value;
            for (; at < text_.size() && is_digit(static_cast<unsigned char>(text_[at])); ++at) {
                const auto digit = static_cast<std::uint64_t>(text_[at] - '0');
                value = std::min(kUnbounded, value.value_or(0) * 10 + digit);
            }
            return value;
        };
        const auto least = number();
        auto most = least;
        if (at < text_.size() && text_[at] == ',') {
            ++at;
            most = number();
            if (!least && !most) {
                return false;
            }
        }
        if (at >= text_.size() || text_[at] != '}' || (!least && !most)) {
            return false;
        }
        out.least = least.value_or(0);
        out.most = most.value_or(kUnbounded);
        out.syntax = "{" + std::to_string(out.least) + "," +
                     (most ? std::to_string(out.most) : std::string()) + "}";
        if (out.least > kMaxCount || out.most < out.least) {
            unsupported("the counted repeat " + out.syntax);
        }
        at_ = at + 1;
        return true;
    }

    std::string_view text_;
    std::size_t at_ = 0;
    bool whole_folded_ = false;
    std::optional<char32_t> previous_literal_;
    ParsedRegex out_;
    std::optional<Error> error_;
};

Status check_text(std::string_view text) {
    if (text.size() > kMaxPatternBytes || !is_valid_utf8(text)) {
        return Error{ErrorCode::Unsupported,
                     "Regex of the pre-tokenizer: expected at most " +
                         std::to_string(kMaxPatternBytes) + " bytes of UTF-8, found " +
                         std::to_string(text.size()) + " bytes",
                     "", "This tokenizer cannot be used with this version"};
    }
    return {};
}

}  // namespace

Result<ParsedRegex> parse_regex(std::string_view pattern) {
    if (Status status = check_text(pattern); !status.ok()) {
        return std::move(status).error();
    }
    return Parser(pattern).run();
}

Result<ParsedRegex> literal_regex(std::string_view text) {
    if (Status status = check_text(text); !status.ok()) {
        return std::move(status).error();
    }
    Parser parser(text);
    parser.literal_text();
    return parser.take();
}

}  // namespace terrace
