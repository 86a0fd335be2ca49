#include "engine/text/template/lexer.h"

#include <algorithm>
#include <array>
#include <optional>

#include "engine/text/template/characters.h"

namespace terrace::jinja {

namespace {

/// Line breaks of every kind become \n; one at the very end is dropped.
std::string normalised(std::string_view source) {
    std::string out;
    out.reserve(source.size());
    for (std::size_t i = 0; i < source.size(); ++i) {
        if (source[i] == '\r') {
            out.push_back('\n');
            i += i + 1 < source.size() && source[i + 1] == '\n' ? 1 : 0;
        } else {
            out.push_back(source[i]);
        }
    }
    if (!out.empty() && out.back() == '\n') {
        out.pop_back();
    }
    return out;
}

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

bool is_digit_of(char c, char mark) {
    if (mark == 'b') {
        return c == '0' || c == '1';
    }
    if (mark == 'o') {
        return c >= '0' && c <= '7';
    }
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

class Lexer {
public:
    explicit Lexer(std::string source) : source_(std::move(source)) {}

    std::vector<Token> run();

private:
    void root();
    void tag(TokenType end);
    bool tag_end(TokenType end);
    void tag_token();
    void comment(std::size_t begin);
    void raw_block(std::size_t body);
    void data_before(std::size_t begin, std::size_t end, char sign, bool may_lstrip);
    [[nodiscard]] std::optional<std::size_t> raw_begin(std::size_t at) const;

    void name();
    bool number();
    bool string();
    bool symbol();
    bool balance(char c);
    std::optional<std::string> unescape(std::string_view body);

    void add(TokenType type, std::string text, std::size_t at);
    void fail(std::string message, std::size_t at);
    [[nodiscard]] Position position_of(std::size_t at);
    [[nodiscard]] std::size_t after_space(std::size_t at) const;

    [[nodiscard]] bool starts(std::size_t at, std::string_view what) const {
        return std::string_view(source_).substr(std::min(at, source_.size())).starts_with(what);
    }

    [[nodiscard]] char peek(std::size_t at) const {
        return at < source_.size() ? source_[at] : '\0';
    }

    std::string source_;
    std::size_t at_ = 0;
    bool line_starting_ = true;
    bool failed_ = false;
    std::vector<char> open_;  ///< the closing brackets that are awaited
    std::vector<Token> tokens_;
    // Where position_of() has counted to.
    std::size_t counted_ = 0;
    Position counted_position_{1, 1};
};

Position Lexer::position_of(std::size_t at) {
    if (at < counted_) {
        counted_ = 0;
        counted_position_ = {1, 1};
    }
    while (counted_ < at && counted_ < source_.size()) {
        if (source_[counted_] == '\n') {
            counted_position_ = {counted_position_.line + 1, 1};
            ++counted_;
        } else {
            counted_ += decode(source_, counted_).n_bytes;
            ++counted_position_.column;
        }
    }
    return counted_position_;
}

std::size_t Lexer::after_space(std::size_t at) const {
    while (at < source_.size()) {
        const CodePoint point = decode(source_, at);
        if (!is_space(point.value)) {
            break;
        }
        at += point.n_bytes;
    }
    return at;
}

void Lexer::add(TokenType type, std::string text, std::size_t at) {
    tokens_.push_back({type, std::move(text), position_of(at)});
}

void Lexer::fail(std::string message, std::size_t at) {
    if (!failed_) {
        failed_ = true;
        add(TokenType::Error, std::move(message), at);
    }
}

std::vector<Token> Lexer::run() {
    while (at_ < source_.size() && !failed_) {
        root();
    }
    if (!failed_) {
        add(TokenType::End, "", source_.size());
    }
    return std::move(tokens_);
}

/// The text [begin, end) in front of a tag whose opening has this sign (-, + or none).
void Lexer::data_before(std::size_t begin, std::size_t end, char sign, bool may_lstrip) {
    if (sign == '-') {
        while (end > begin) {
            const CodePoint point =
                decode_before(std::string_view(source_).substr(begin), end - begin);
            if (!is_space(point.value)) {
                break;
            }
            end -= point.n_bytes;
        }
    } else if (sign != '+' && may_lstrip) {
        const std::size_t line_break =
            end == begin ? std::string::npos : source_.rfind('\n', end - 1);
        const bool has_break = line_break != std::string::npos && line_break >= begin;
        const std::size_t line = has_break ? line_break + 1 : begin;
        if ((has_break || line_starting_) && line < end && after_space(line) >= end) {
            end = line;
        }
    }
    if (end > begin) {
        add(TokenType::Data, source_.substr(begin, end - begin), begin);
    }
}

/// If a `{% raw %}` stands at `at`: where its body begins.
std::optional<std::size_t> Lexer::raw_begin(std::size_t at) const {
    std::size_t next = at + 2;
    next += peek(next) == '-' || peek(next) == '+' ? 1 : 0;
    next = after_space(next);
    if (!starts(next, "raw")) {
        return std::nullopt;
    }
    next = after_space(next + 3);
    if (starts(next, "-%}")) {
        return after_space(next + 3);
    }
    return starts(next, "%}") ? std::optional(next + 2) : std::nullopt;
}

void Lexer::root() {
    const std::size_t begin = at_;
    std::size_t brace = begin;
    while ((brace = source_.find('{', brace)) != std::string::npos) {
        const char next = peek(brace + 1);
        if (next == '%' || next == '{' || next == '#') {
            break;
        }
        ++brace;
    }
    if (brace == std::string::npos) {
        add(TokenType::Data, source_.substr(begin), begin);
        at_ = source_.size();
        return;
    }
    const char kind = source_[brace + 1];
    const char mark = peek(brace + 2);
    const char sign = mark == '-' || mark == '+' ? mark : '\0';
    data_before(begin, brace, sign, kind != '{');
    const std::size_t inside = brace + (sign == '\0' ? 2 : 3);
    line_starting_ = false;
    if (kind == '#') {
        comment(inside);
        return;
    }
    if (kind == '%') {
        if (const auto body = raw_begin(brace)) {
            raw_block(*body);
            return;
        }
    }
    at_ = inside;
    add(kind == '{' ? TokenType::VariableBegin : TokenType::BlockBegin, "", brace);
    tag(kind == '{' ? TokenType::VariableEnd : TokenType::BlockEnd);
}

void Lexer::comment(std::size_t begin) {
    const std::size_t end = source_.find("#}", begin);
    if (end == std::string::npos) {
        fail("Missing end of comment tag", begin);
        return;
    }
    at_ = end + 2;
    if (end > begin && source_[end - 1] == '-') {
        at_ = after_space(at_);
    } else if (!(end > begin && source_[end - 1] == '+') && peek(at_) == '\n') {
        ++at_;
    }
    line_starting_ = source_[at_ - 1] == '\n';
}

void Lexer::raw_block(std::size_t body) {
    line_starting_ = source_[body - 1] == '\n';
    for (std::size_t open = body; (open = source_.find("{%", open)) != std::string::npos; ++open) {
        const char mark = peek(open + 2);
        const char sign = mark == '-' || mark == '+' ? mark : '\0';
        std::size_t next = after_space(open + (sign == '\0' ? 2 : 3));
        if (!starts(next, "endraw")) {
            continue;
        }
        next = after_space(next + 6);
        if (starts(next, "-%}")) {
            at_ = after_space(next + 3);
        } else if (starts(next, "+%}")) {
            at_ = next + 3;
        } else if (starts(next, "%}")) {
            at_ = next + 2 + (peek(next + 2) == '\n' ? 1 : 0);
        } else {
            continue;
        }
        data_before(body, open, sign, true);
        line_starting_ = source_[at_ - 1] == '\n';
        return;
    }
    fail("Missing end of raw directive", body);
}

void Lexer::tag(TokenType end) {
    open_.clear();
    while (!failed_) {
        at_ = after_space(at_);
        if (at_ >= source_.size()) {
            return;  // the parser meets the end of the template
        }
        if (open_.empty() && tag_end(end)) {
            return;
        }
        tag_token();
    }
}

bool Lexer::tag_end(TokenType end) {
    const std::string_view close = end == TokenType::VariableEnd ? "}}" : "%}";
    const std::size_t begin = at_;
    const bool strips = peek(at_) == '-' && starts(at_ + 1, close);
    const bool keeps = end == TokenType::BlockEnd && peek(at_) == '+' && starts(at_ + 1, close);
    if (!strips && !keeps && !starts(at_, close)) {
        return false;
    }
    at_ += strips || keeps ? 3 : 2;
    if (strips) {
        at_ = after_space(at_);
    } else if (!keeps && end == TokenType::BlockEnd && peek(at_) == '\n') {
        ++at_;
    }
    line_starting_ = source_[at_ - 1] == '\n';
    add(end, "", begin);
    return true;
}

void Lexer::tag_token() {
    const CodePoint point = decode(source_, at_);
    if (is_digit(source_[at_]) ? number() : string() || symbol()) {
        return;
    }
    if (failed_) {
        return;
    }
    if (is_identifier_start(point.value)) {
        name();
        return;
    }
    const std::string shown = source_.substr(at_, point.n_bytes);
    const std::string quote = shown == "'" ? "\"" : "'";
    fail("unexpected char " + quote + shown + quote + " at " +
             std::to_string(count_code_points(std::string_view(source_).substr(0, at_))),
         at_);
}

void Lexer::name() {
    const std::size_t begin = at_;
    while (at_ < source_.size()) {
        const CodePoint point = decode(source_, at_);
        if (!is_identifier_part(point.value)) {
            break;
        }
        at_ += point.n_bytes;
    }
    add(TokenType::Name, source_.substr(begin, at_ - begin), begin);
}

bool Lexer::number() {
    const std::size_t begin = at_;
    const auto digits = [this](std::size_t at) {
        while (is_digit(peek(at)) || (peek(at) == '_' && is_digit(peek(at + 1)))) {
            ++at;
        }
        return at;
    };
    const char mark = static_cast<char>(peek(at_ + 1) | 0x20);
    if (source_[at_] == '0' && (mark == 'x' || mark == 'o' || mark == 'b')) {
        std::size_t end = at_ + 2;
        while (is_digit_of(peek(end), mark) ||
               (peek(end) == '_' && is_digit_of(peek(end + 1), mark))) {
            ++end;
        }
        if (end > at_ + 2) {
            at_ = end;
            add(TokenType::Integer, source_.substr(begin, end - begin), begin);
            return true;
        }
    }
    const std::size_t whole = digits(at_);
    std::size_t end = whole;
    if (begin == 0 || source_[begin - 1] != '.') {
        if (peek(end) == '.' && is_digit(peek(end + 1))) {
            end = digits(end + 1);
        }
        std::size_t exponent = end;
        if ((peek(exponent) | 0x20) == 'e') {
            ++exponent;
            exponent += peek(exponent) == '+' || peek(exponent) == '-' ? 1 : 0;
            if (is_digit(peek(exponent))) {
                end = digits(exponent);
            }
        }
    }
    if (end > whole) {
        at_ = end;
        add(TokenType::Float, source_.substr(begin, end - begin), begin);
        return true;
    }
    at_ = whole;
    if (source_[begin] == '0') {  // 007 is the two numbers 00 and 7
        at_ = begin + 1;
        while (peek(at_) == '0' || (peek(at_) == '_' && peek(at_ + 1) == '0')) {
            ++at_;
        }
    }
    add(TokenType::Integer, source_.substr(begin, at_ - begin), begin);
    return true;
}

bool Lexer::string() {
    const char quote = source_[at_];
    if (quote != '\'' && quote != '"') {
        return false;
    }
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) {
        end += source_[end] == '\\' ? 2 : 1;
    }
    if (end >= source_.size()) {
        return false;
    }
    const std::size_t begin = at_;
    const auto text = unescape(std::string_view(source_).substr(begin + 1, end - begin - 1));
    if (!text) {
        fail(
            "expected an escape like \\n, \\x41 or \\u00e9 of a whole character in the text, "
            "found one that cannot be read",
            begin);
        return false;
    }
    at_ = end + 1;
    add(TokenType::String, *text, begin);
    return true;
}

/// Reads n hexadecimal digits at `at`.
std::optional<char32_t> hex_digits(std::string_view body, std::size_t at, std::size_t n) {
    if (at + n > body.size()) {
        return std::nullopt;
    }
    char32_t value = 0;
    for (const char c : body.substr(at, n)) {
        if (!is_digit_of(c, 'x')) {
            return std::nullopt;
        }
        const int digit = is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10;
        value = value * 16 + static_cast<char32_t>(digit);
    }
    return value;
}

std::optional<std::string> Lexer::unescape(std::string_view body) {
    static constexpr std::string_view kNames = "ntrabfv\\'\"";
    static constexpr std::string_view kValues = "\n\t\r\a\b\f\v\\'\"";
    std::string out;
    for (std::size_t at = 0; at < body.size(); ++at) {
        if (body[at] != '\\' || at + 1 >= body.size()) {
            out.push_back(body[at]);
            continue;
        }
        const char c = body[++at];
        const std::size_t n_digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
        if (const std::size_t known = kNames.find(c); known != std::string_view::npos) {
            out.push_back(kValues[known]);
        } else if (n_digits != 0) {
            const auto value = hex_digits(body, at + 1, n_digits);
            if (!value || *value > 0x10FFFF || (*value >= 0xD800 && *value <= 0xDFFF)) {
                return std::nullopt;
            }
            append_utf8(out, *value);
            at += n_digits;
        } else if (c >= '0' && c <= '7') {
            char32_t value = 0;
            std::size_t end = at;
            while (end < body.size() && end < at + 3 && body[end] >= '0' && body[end] <= '7') {
                value = value * 8 + static_cast<char32_t>(body[end++] - '0');
            }
            append_utf8(out, value);
            at = end - 1;
        } else if (c == 'N') {
            return std::nullopt;  // names of characters are not supported
        } else if (c != '\n') {   // a backslash before a line break joins the lines
            out.push_back('\\');
            out.push_back(c);
        }
    }
    return out;
}

bool Lexer::balance(char c) {
    if (c == '(' || c == '[' || c == '{') {
        open_.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
        if (open_.empty()) {
            fail(std::string("unexpected '") + c + "'", at_);
            return false;
        }
        if (open_.back() != c) {
            fail(std::string("unexpected '") + c + "', expected '" + open_.back() + "'", at_);
            return false;
        }
        open_.pop_back();
    }
    return true;
}

bool Lexer::symbol() {
    static constexpr std::array<std::string_view, 25> kSymbols{
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","};
    for (const std::string_view symbol : kSymbols) {
        if (starts(at_, symbol)) {
            if (!balance(symbol[0])) {
                return false;
            }
            add(TokenType::Operator, std::string(symbol), at_);
            at_ += symbol.size();
            return true;
        }
    }
    if (peek(at_) == ';') {
        add(TokenType::Operator, ";", at_);
        ++at_;
        return true;
    }
    return false;
}

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
    return Lexer(normalised(source)).run();
}

std::string describe(const Token& token) {
    switch (token.type) {
        case TokenType::Data:
            return "template data / text";
        case TokenType::VariableBegin:
            return "begin of print statement";
        case TokenType::VariableEnd:
            return "end of print statement";
        case TokenType::BlockBegin:
            return "begin of statement block";
        case TokenType::BlockEnd:
            return "end of statement block";
        case TokenType::String:
            return "string";
        case TokenType::Integer:
            return "integer";
        case TokenType::Float:
            return "float";
        case TokenType::End:
            return "end of template";
        default:
            return token.text;
    }
}

}  // namespace terrace::jinja
