#include "engine/text/template/parser.h"

#include <algorithm>

namespace terrace::jinja {

namespace {

/// Deepest recursion of the parser: one pair of brackets costs about four levels, a tag one.
constexpr std::size_t kMaxNesting = 600;
/// Most levels of one expression. Published templates stay under 20.
constexpr std::size_t kMaxLevels = 150;

std::string quoted(std::string_view text) {
    const char quote = text.find('\'') == std::string_view::npos ? '\'' : '"';
    return quote + std::string(text) + quote;
}

}  // namespace

Parser::Nesting::Nesting(Parser& parser) : parser_(parser) {
    if (++parser.depth_ > kMaxNesting) {
        parser.fail_at(kLimitError,
                       "expected tags and brackets nested less deeply, found more than " +
                           std::to_string(kMaxNesting) + " levels",
                       parser.current().position);
    }
}

std::unique_ptr<TemplateTree> Parser::run() {
    auto tree = std::make_unique<TemplateTree>();
    if (at_type(TokenType::Error)) {
        fail(current().text);
    }
    tree->body = parse_body({});
    if (!failed_ && missing_) {
        failure_ = *missing_;
        failed_ = true;
    }
    return failed_ ? nullptr : std::move(tree);
}

void Parser::advance() {
    if (failed_ || at_ + 1 >= tokens_.size()) {
        return;
    }
    ++at_;
    if (at_type(TokenType::Error)) {
        fail(current().text);
    }
}

bool Parser::at_name(std::string_view name) const {
    return at_type(TokenType::Name) && current().text == name;
}

bool Parser::at_symbol(std::string_view symbol) const {
    return at_type(TokenType::Operator) && current().text == symbol;
}

bool Parser::skip_name(std::string_view name) {
    if (failed_ || !at_name(name)) {
        return false;
    }
    advance();
    return true;
}

bool Parser::skip_symbol(std::string_view symbol) {
    if (failed_ || !at_symbol(symbol)) {
        return false;
    }
    advance();
    return true;
}

void Parser::fail_expected(std::string_view what) {
    if (at_type(TokenType::End)) {
        fail("unexpected end of template, expected " + quoted(what) + ".");
    } else {
        fail("expected token " + quoted(what) + ", got " + quoted(describe(current())));
    }
}

void Parser::expect_name(std::string_view name) {
    if (!skip_name(name)) {
        fail_expected(name);
    }
}

void Parser::expect_symbol(std::string_view symbol) {
    if (!skip_symbol(symbol)) {
        fail_expected(symbol);
    }
}

void Parser::expect_type(TokenType type, std::string_view what) {
    if (at_type(type)) {
        advance();
    } else {
        fail_expected(what);
    }
}

std::string Parser::expect_any_name() {
    std::string name = current().text;
    expect_type(TokenType::Name, "name");
    return name;
}

void Parser::fail(std::string message) {
    fail_at(kSyntaxError, std::move(message), current().position);
}

void Parser::fail_at(const char* error_class, std::string message, const Position& position) {
    if (!failed_) {
        failed_ = true;
        failure_ = {error_class, std::move(message), position.line, position.column};
    }
}

ExprPtr Parser::make(ExprKind kind, const Position& position) {
    auto expr = std::make_unique<Expr>();
    expr->kind = kind;
    expr->position = position;
    return expr;
}

ExprPtr Parser::finish(ExprPtr expr) {
    std::size_t below = 0;
    const auto count = [&below](const ExprPtr& part) {
        below = std::max(below, part == nullptr ? 0 : part->depth);
    };
    std::for_each(expr->parts.begin(), expr->parts.end(), count);
    std::for_each(expr->call.positional.begin(), expr->call.positional.end(), count);
    for (const auto& named : expr->call.named) {
        count(named.second);
    }
    count(expr->call.star);
    count(expr->call.star_star);
    expr->depth = below + 1;
    if (expr->depth > kMaxLevels) {
        fail_at(
            kLimitError,
            "expected expressions of at most " + std::to_string(kMaxLevels) + " levels, found more",
            expr->position);
    }
    return expr;
}

void Parser::note_name(const std::string& name) {
    for (MacroDefinition* macro : macros_) {
        macro->uses_caller = macro->uses_caller || name == "caller";
        macro->uses_kwargs = macro->uses_kwargs || name == "kwargs";
        macro->uses_varargs = macro->uses_varargs || name == "varargs";
    }
    if (name == "loop") {
        for (ForLoop* loop : loops_) {
            loop->uses_loop = true;
        }
    }
}

void Parser::note_missing(std::string message, const Position& position) {
    if (!soft_ && !missing_) {
        missing_ =
            TemplateFailure{kAssertionError, std::move(message), position.line, position.column};
    }
}

}  // namespace terrace::jinja
