// The expression half of the parser.
#include <charconv>
#include <map>

#include "engine/text/template/parser.h"

namespace terrace::jinja {

namespace {

std::optional<BigInt> parse_integer(std::string text) {
    std::erase(text, '_');
    unsigned base = 10;
    std::size_t at = 0;
    if (text.size() > 2 && text[0] == '0') {
        const char mark = static_cast<char>(text[1] | 0x20);
        base = mark == 'x' ? 16U : mark == 'o' ? 8U : mark == 'b' ? 2U : 10U;
        at = base == 10 ? 0 : 2;
    }
    BigInt value = 0;
    for (; at < text.size(); ++at) {
        const char c = text[at];
        const int digit = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
        if (value > (BigInt{1} << 120U)) {
            return std::nullopt;
        }
        value = value * static_cast<BigInt>(base) + digit;
    }
    return value;
}

std::string_view constant_name(const Expr& expr) {
    switch (expr.kind) {
        case ExprKind::Constant:
            return "const";
        case ExprKind::List:
            return "list";
        case ExprKind::Dict:
            return "dict";
        default:
            return "expression";
    }
}

bool can_assign(const Expr& expr) {
    if (expr.kind == ExprKind::Tuple) {
        for (const ExprPtr& part : expr.parts) {
            if (!can_assign(*part)) {
                return false;
            }
        }
        return true;
    }
    return expr.kind == ExprKind::Name || expr.kind == ExprKind::NamespaceTarget;
}

}  // namespace

ExprPtr Parser::parse_tuple(TupleStyle style, std::string_view end_name) {
    const Position position = current().position;
    ExprPtr tuple = make(ExprKind::Tuple, position);
    bool is_tuple = false;
    while (!failed_) {
        if (!tuple->parts.empty()) {
            expect_symbol(",");
        }
        const bool at_end = at_type(TokenType::VariableEnd) || at_type(TokenType::BlockEnd) ||
                            at_symbol(")") || (!end_name.empty() && at_name(end_name));
        if (at_end) {
            break;
        }
        if (style == TupleStyle::Target || style == TupleStyle::NamespaceTarget) {
            tuple->parts.push_back(parse_primary(style));
        } else {
            tuple->parts.push_back(style == TupleStyle::NoCondition ? parse_or()
                                                                    : parse_expression());
        }
        if (!at_symbol(",")) {
            break;
        }
        is_tuple = true;
    }
    if (!is_tuple) {
        if (!tuple->parts.empty()) {
            return std::move(tuple->parts.front());
        }
        if (style != TupleStyle::Parentheses) {
            fail("Expected an expression, got '" + describe(current()) + "'");
        }
    }
    return finish(std::move(tuple));
}

ExprPtr Parser::parse_target(TupleStyle style, std::string_view end_name) {
    const Position position = current().position;
    ExprPtr target = parse_tuple(style, end_name);
    if (!failed_ && !can_assign(*target)) {
        fail_at(kSyntaxError, "can't assign to '" + std::string(constant_name(*target)) + "'",
                position);
    }
    return target;
}

ExprPtr Parser::parse_expression() {
    const Nesting nesting(*this);
    const Position position = current().position;
    // What stands before the `if` is only known to be a branch afterwards, so names that are
    // missing in it are held back until then.
    const std::optional<TemplateFailure> missing_before = missing_;
    ExprPtr expr = parse_or();
    while (!failed_ && skip_name("if")) {
        missing_ = missing_before;
        const Softness soft(*this, Softness::To::Soft);
        ExprPtr condition = make(ExprKind::Condition, position);
        condition->parts.push_back(std::move(expr));
        condition->parts.push_back(parse_or());
        condition->parts.push_back(skip_name("else") ? parse_expression() : nullptr);
        expr = finish(std::move(condition));
    }
    return expr;
}

ExprPtr Parser::parse_or() {
    const Position position = current().position;
    ExprPtr first = parse_and();
    if (!at_name("or")) {
        return first;
    }
    ExprPtr any = make(ExprKind::Or, position);
    any->parts.push_back(std::move(first));
    while (skip_name("or")) {
        any->parts.push_back(parse_and());
    }
    return finish(std::move(any));
}

ExprPtr Parser::parse_and() {
    const Position position = current().position;
    ExprPtr first = parse_not();
    if (!at_name("and")) {
        return first;
    }
    ExprPtr all = make(ExprKind::And, position);
    all->parts.push_back(std::move(first));
    while (skip_name("and")) {
        all->parts.push_back(parse_not());
    }
    return finish(std::move(all));
}

ExprPtr Parser::parse_not() {
    const Nesting nesting(*this);
    const Position position = current().position;
    if (!skip_name("not")) {
        return parse_compare();
    }
    ExprPtr opposite = make(ExprKind::Not, position);
    opposite->parts.push_back(parse_not());
    return finish(std::move(opposite));
}

ExprPtr Parser::parse_compare() {
    static const std::map<std::string_view, Comparison> kSigns{
        {"==", Comparison::Equal},  {"!=", Comparison::NotEqual},
        {"<", Comparison::Less},    {"<=", Comparison::LessEqual},
        {">", Comparison::Greater}, {">=", Comparison::GreaterEqual}};
    const Position position = current().position;
    ExprPtr compare = make(ExprKind::Compare, position);
    compare->parts.push_back(parse_sum());
    while (!failed_) {
        const auto sign = at_type(TokenType::Operator) ? kSigns.find(current().text) : kSigns.end();
        if (sign != kSigns.end()) {
            compare->comparisons.push_back(sign->second);
            advance();
        } else if (skip_name("in")) {
            compare->comparisons.push_back(Comparison::In);
        } else if (at_name("not") && look().type == TokenType::Name && look().text == "in") {
            advance();
            advance();
            compare->comparisons.push_back(Comparison::NotIn);
        } else {
            break;
        }
        compare->parts.push_back(parse_sum());
    }
    if (compare->comparisons.empty()) {
        return std::move(compare->parts.front());
    }
    return finish(std::move(compare));
}

ExprPtr Parser::parse_chain(ExprPtr (Parser::*part)(),
                            const std::vector<std::pair<std::string_view, Arithmetic>>& signs) {
    ExprPtr chain = make(ExprKind::Arithmetic, current().position);
    chain->parts.push_back((this->*part)());
    while (!failed_) {
        const auto sign = std::find_if(signs.begin(), signs.end(), [this](const auto& entry) {
            return at_symbol(entry.first);
        });
        if (sign == signs.end()) {
            break;
        }
        advance();
        chain->operations.push_back(sign->second);
        chain->parts.push_back((this->*part)());
    }
    if (chain->operations.empty()) {
        return std::move(chain->parts.front());
    }
    return finish(std::move(chain));
}

ExprPtr Parser::parse_sum() {
    return parse_chain(&Parser::parse_concat,
                       {{"+", Arithmetic::Add}, {"-", Arithmetic::Subtract}});
}

ExprPtr Parser::parse_concat() {
    const Position position = current().position;
    ExprPtr first = parse_product();
    if (!at_symbol("~")) {
        return first;
    }
    ExprPtr concat = make(ExprKind::Concat, position);
    concat->parts.push_back(std::move(first));
    while (skip_symbol("~")) {
        concat->parts.push_back(parse_product());
    }
    return finish(std::move(concat));
}

ExprPtr Parser::parse_product() {
    return parse_chain(&Parser::parse_power, {{"*", Arithmetic::Multiply},
                                              {"/", Arithmetic::Divide},
                                              {"//", Arithmetic::FloorDivide},
                                              {"%", Arithmetic::Modulo}});
}

ExprPtr Parser::parse_power() {
    ExprPtr chain = make(ExprKind::Arithmetic, current().position);
    chain->parts.push_back(parse_unary(Filters::Take));
    while (skip_symbol("**")) {  // from the left, unlike Python
        chain->operations.push_back(Arithmetic::Power);
        chain->parts.push_back(parse_unary(Filters::Take));
    }
    if (chain->operations.empty()) {
        return std::move(chain->parts.front());
    }
    return finish(std::move(chain));
}

ExprPtr Parser::parse_unary(Filters filters) {
    const Nesting nesting(*this);
    const Position position = current().position;
    ExprPtr expr;
    if (at_symbol("-") || at_symbol("+")) {
        expr = make(at_symbol("-") ? ExprKind::Negate : ExprKind::Positive, position);
        advance();
        expr->parts.push_back(failed_ ? make(ExprKind::Constant, position)
                                      : parse_unary(Filters::Leave));
        expr = finish(std::move(expr));
    } else {
        expr = parse_primary(TupleStyle::Full);
    }
    expr = parse_postfix(std::move(expr));
    return filters == Filters::Take ? parse_filters_and_tests(std::move(expr)) : std::move(expr);
}

ExprPtr Parser::parse_primary(TupleStyle style) {
    const Token token = current();
    if (token.type == TokenType::String) {
        return parse_text();
    }
    if (token.type == TokenType::Integer || token.type == TokenType::Float) {
        return parse_number();
    }
    if (token.type == TokenType::Name) {
        advance();
        ExprPtr expr = make(ExprKind::Constant, token.position);
        if (token.text == "true" || token.text == "True") {
            expr->constant = Value::boolean(true);
        } else if (token.text == "false" || token.text == "False") {
            expr->constant = Value::boolean(false);
        } else if (token.text == "none" || token.text == "None") {
            expr->constant = Value::none();
        } else {
            expr->kind = ExprKind::Name;
            expr->name = token.text;
            if (style == TupleStyle::NamespaceTarget && skip_symbol(".")) {
                expr->kind = ExprKind::NamespaceTarget;
                expr->attribute = expect_any_name();
            }
            if (style != TupleStyle::Target) {
                note_name(token.text);
            }
        }
        return expr;
    }
    if (at_symbol("(")) {
        const Nesting nesting(*this);
        advance();
        ExprPtr expr = failed_ ? make(ExprKind::Constant, token.position)
                               : parse_tuple(TupleStyle::Parentheses);
        expect_symbol(")");
        return expr;
    }
    if (at_symbol("[")) {
        return parse_list();
    }
    if (at_symbol("{")) {
        return parse_dict();
    }
    fail("unexpected '" + describe(token) + "'");
    return make(ExprKind::Constant, token.position);
}

ExprPtr Parser::parse_text() {
    ExprPtr expr = make(ExprKind::Constant, current().position);
    expr->text = std::make_unique<Text>();
    while (at_type(TokenType::String) && !failed_) {  // 'a' 'b' is one text
        expr->text->bytes += current().text;
        advance();
    }
    for (const char c : expr->text->bytes) {
        expr->text->ascii = expr->text->ascii && static_cast<unsigned char>(c) < 0x80;
    }
    expr->constant = Value::of(Kind::String, expr->text.get());
    return expr;
}

ExprPtr Parser::parse_number() {
    ExprPtr expr = make(ExprKind::Constant, current().position);
    std::string text = current().text;
    if (at_type(TokenType::Integer)) {
        const auto value = parse_integer(text);
        if (!value) {
            fail_at(kOverflowError, "expected integers of at most 120 bits, found '" + text + "'",
                    current().position);
        }
        expr->constant = Value::of_int(value.value_or(0));
    } else {
        std::erase(text, '_');
        double value = 0;
        std::from_chars(text.data(), text.data() + text.size(), value);
        expr->constant = Value::of_float(value);
    }
    advance();
    return expr;
}

ExprPtr Parser::parse_list() {
    const Nesting nesting(*this);
    ExprPtr list = make(ExprKind::List, current().position);
    expect_symbol("[");
    while (!failed_ && !at_symbol("]")) {
        if (!list->parts.empty()) {
            expect_symbol(",");
        }
        if (at_symbol("]")) {
            break;
        }
        list->parts.push_back(parse_expression());
    }
    expect_symbol("]");
    return finish(std::move(list));
}

ExprPtr Parser::parse_dict() {
    const Nesting nesting(*this);
    ExprPtr dict = make(ExprKind::Dict, current().position);
    expect_symbol("{");
    while (!failed_ && !at_symbol("}")) {
        if (!dict->parts.empty()) {
            expect_symbol(",");
        }
        if (at_symbol("}")) {
            break;
        }
        dict->parts.push_back(parse_expression());
        expect_symbol(":");
        dict->parts.push_back(parse_expression());
    }
    expect_symbol("}");
    return finish(std::move(dict));
}

ExprPtr Parser::parse_postfix(ExprPtr expr) {
    while (!failed_) {
        if (at_symbol(".")) {
            expr = parse_attribute(std::move(expr));
        } else if (at_symbol("[")) {
            expr = parse_subscript(std::move(expr));
        } else if (at_symbol("(")) {
            expr = parse_call(std::move(expr));
        } else {
            break;
        }
    }
    return expr;
}

ExprPtr Parser::parse_filters_and_tests(ExprPtr expr) {
    while (!failed_) {
        if (at_symbol("|")) {
            expr = parse_filter_chain(std::move(expr));
        } else if (at_name("is")) {
            expr = parse_test(std::move(expr));
        } else if (at_symbol("(")) {
            expr = parse_call(std::move(expr));
        } else {
            break;
        }
    }
    return expr;
}

ExprPtr Parser::parse_filter_chain(ExprPtr subject) {
    while (skip_symbol("|")) {
        subject = parse_filter(std::move(subject));
    }
    return subject;
}

ExprPtr Parser::parse_filter(ExprPtr subject) {
    ExprPtr filter = make(ExprKind::Filter, current().position);
    filter->name = expect_any_name();
    while (skip_symbol(".")) {
        filter->name += "." + expect_any_name();
    }
    filter->parts.push_back(std::move(subject));
    filter->filter = find_filter(filter->name);
    if (filter->filter == nullptr) {
        note_missing("No filter named '" + filter->name + "'.", filter->position);
    }
    if (at_symbol("(")) {
        filter->call = parse_arguments();
    }
    return finish(std::move(filter));
}

ExprPtr Parser::parse_test(ExprPtr subject) {
    const Position position = current().position;
    advance();  // is
    const bool negated = skip_name("not");
    ExprPtr test = make(ExprKind::Test, current().position);
    test->name = expect_any_name();
    while (skip_symbol(".")) {
        test->name += "." + expect_any_name();
    }
    test->parts.push_back(std::move(subject));
    test->test = find_test(test->name);
    if (test->test == nullptr) {
        note_missing("No test named '" + test->name + "'.", test->position);
    }
    const bool ends = at_name("else") || at_name("or") || at_name("and");
    const bool has_value = at_type(TokenType::Name) || at_type(TokenType::String) ||
                           at_type(TokenType::Integer) || at_type(TokenType::Float) ||
                           at_symbol("[") || at_symbol("{");
    if (at_symbol("(")) {
        test->call = parse_arguments();
    } else if (has_value && !ends) {
        if (at_name("is")) {
            fail("You cannot chain multiple tests with is");
        }
        test->call.positional.push_back(parse_postfix(parse_primary(TupleStyle::Full)));
    }
    test = finish(std::move(test));
    if (!negated) {
        return test;
    }
    ExprPtr opposite = make(ExprKind::Not, position);
    opposite->parts.push_back(std::move(test));
    return finish(std::move(opposite));
}

ExprPtr Parser::parse_attribute(ExprPtr subject) {
    const Position position = look().position;
    advance();  // .
    if (at_type(TokenType::Name)) {
        ExprPtr attribute = make(ExprKind::Attribute, position);
        attribute->name = current().text;
        advance();
        attribute->parts.push_back(std::move(subject));
        return finish(std::move(attribute));
    }
    if (!at_type(TokenType::Integer)) {
        fail("expected name or number");
        return subject;
    }
    ExprPtr item = make(ExprKind::Item, position);
    item->parts.push_back(std::move(subject));
    item->parts.push_back(parse_number());
    return finish(std::move(item));
}

ExprPtr Parser::parse_subscript(ExprPtr subject) {
    const Position position = current().position;
    expect_symbol("[");
    ExprPtr item = parse_subscript_part(std::move(subject));
    if (at_symbol(",")) {  // x[a, b] looks up a tuple
        ExprPtr tuple = make(ExprKind::Tuple, position);
        if (item->kind == ExprKind::Slice) {
            fail("slices inside of a tuple index are not supported");
        } else {
            tuple->parts.push_back(std::move(item->parts[1]));
        }
        while (!failed_ && skip_symbol(",")) {
            tuple->parts.push_back(parse_expression());
        }
        if (!failed_) {
            item->parts[1] = finish(std::move(tuple));
        }
    }
    expect_symbol("]");
    return failed_ ? make(ExprKind::Constant, position) : finish(std::move(item));
}

ExprPtr Parser::parse_subscript_part(ExprPtr subject) {
    const Nesting nesting(*this);
    ExprPtr item = make(ExprKind::Item, current().position);
    item->parts.push_back(std::move(subject));
    if (!at_symbol(":")) {
        item->parts.push_back(parse_expression());
        if (!at_symbol(":")) {
            return item;
        }
    } else {
        item->parts.push_back(nullptr);
    }
    item->kind = ExprKind::Slice;
    while (!failed_ && skip_symbol(":")) {
        const bool empty = at_symbol(":") || at_symbol("]") || at_symbol(",");
        item->parts.push_back(empty ? nullptr : parse_expression());
    }
    if (item->parts.size() > 4) {
        fail("expected at most three parts in a slice, found more");
    }
    item->parts.resize(4);
    return item;
}

ExprPtr Parser::parse_call(ExprPtr callee) {
    ExprPtr call = make(ExprKind::Call, current().position);
    call->parts.push_back(std::move(callee));
    call->call = parse_arguments();
    return finish(std::move(call));
}

CallArguments Parser::parse_arguments() {
    const Nesting nesting(*this);
    CallArguments arguments;
    const Position position = current().position;
    expect_symbol("(");
    bool first = true;
    while (!failed_ && !at_symbol(")")) {
        if (!first) {
            expect_symbol(",");
            if (at_symbol(")")) {
                break;
            }
        }
        first = false;
        parse_argument(arguments, position);
    }
    expect_symbol(")");
    return arguments;
}

void Parser::parse_argument(CallArguments& arguments, const Position& at) {
    const auto ensure = [&](bool holds) {
        if (!holds) {
            fail_at(kSyntaxError, "invalid syntax for function call expression", at);
        }
    };
    const bool no_star = arguments.star == nullptr && arguments.star_star == nullptr;
    if (skip_symbol("*")) {
        ensure(no_star);
        arguments.star = parse_expression();
    } else if (skip_symbol("**")) {
        ensure(arguments.star_star == nullptr);
        arguments.star_star = parse_expression();
    } else if (at_type(TokenType::Name) && look().type == TokenType::Operator &&
               look().text == "=") {
        ensure(arguments.star_star == nullptr);
        std::string key = current().text;
        advance();
        advance();
        arguments.named.emplace_back(std::move(key), parse_expression());
    } else {
        ensure(no_star && arguments.named.empty());
        arguments.positional.push_back(parse_expression());
    }
}

}  // namespace terrace::jinja
