// The statement half of the parser.
#include <algorithm>

#include "engine/text/template/parser.h"

namespace terrace::jinja {

namespace {

std::unique_ptr<Text> trusted_text(const std::string& bytes) {
    auto text = std::make_unique<Text>();
    text->bytes = bytes;
    return text;
}

}  // namespace

Body Parser::parse_body(const EndTags& end_tags) {
    Body body;
    if (!end_tags.empty()) {
        awaited_.push_back(end_tags);
    }
    while (!failed_ && !at_type(TokenType::End)) {
        const Position position = current().position;
        if (at_type(TokenType::Data)) {
            auto data = std::make_unique<Stmt>();
            data->position = position;
            data->text = trusted_text(current().text);
            body.push_back(std::move(data));
            advance();
        } else if (at_type(TokenType::VariableBegin)) {
            advance();
            auto output = std::make_unique<Stmt>();
            output->kind = StmtKind::Output;
            output->position = current().position;
            output->exprs.push_back(parse_tuple(TupleStyle::Full));
            expect_type(TokenType::VariableEnd, "end of print statement");
            body.push_back(std::move(output));
        } else {
            advance();
            const bool ends =
                at_type(TokenType::Name) &&
                std::find(end_tags.begin(), end_tags.end(), current().text) != end_tags.end();
            if (ends) {
                break;
            }
            if (at_name("print")) {
                parse_print(body);
            } else {
                body.push_back(parse_statement());
            }
            expect_type(TokenType::BlockEnd, "end of statement block");
        }
    }
    if (!end_tags.empty()) {
        if (!failed_ && at_type(TokenType::End)) {
            fail_unknown_tag(nullptr);
        }
        awaited_.pop_back();
    }
    return body;
}

/// From the end of the opening tag up to one of the end tags, which stays current.
Body Parser::parse_block_body(const EndTags& end_tags) {
    const Nesting nesting(*this);
    skip_symbol(":");
    expect_type(TokenType::BlockEnd, "end of statement block");
    return failed_ ? Body{} : parse_body(end_tags);
}

Body Parser::parse_last_body(std::string_view end_tag) {
    Body body = parse_block_body({end_tag});
    advance();
    return body;
}

void Parser::fail_unknown_tag(const std::string* tag) {
    std::string message =
        tag == nullptr ? "Unexpected end of template." : "Encountered unknown tag '" + *tag + "'.";
    if (!awaited_.empty()) {
        std::string looking_for;
        bool known = false;
        for (const EndTags& tags : awaited_) {
            known = known ||
                    (tag != nullptr && std::find(tags.begin(), tags.end(), *tag) != tags.end());
        }
        for (const std::string_view name : awaited_.back()) {
            looking_for += (looking_for.empty() ? "'" : " or '") + std::string(name) + "'";
        }
        message += known ? " You probably made a nesting mistake. Jinja is expecting this tag, but "
                           "currently looking for "
                         : " Jinja was looking for the following tags: ";
        message += looking_for + ".";
    }
    if (!open_tags_.empty()) {
        message += " The innermost block that needs to be closed is '" + open_tags_.back() + "'.";
    }
    fail(message);
}

std::unique_ptr<Stmt> Parser::parse_statement() {
    auto stmt = std::make_unique<Stmt>();
    stmt->position = current().position;
    if (!at_type(TokenType::Name)) {
        fail("tag name expected");
        return stmt;
    }
    const std::string tag = current().text;
    open_tags_.push_back(tag);
    parse_tag(*stmt, tag);
    open_tags_.pop_back();
    return stmt;
}

void Parser::parse_tag(Stmt& stmt, const std::string& tag) {
    if (tag == "break" || tag == "continue") {
        parse_loop_control(stmt, tag);
    } else if (tag == "include" || tag == "import" || tag == "from" || tag == "extends") {
        parse_loader_tag(stmt, tag);
    } else if (tag == "if") {
        parse_if(stmt);
    } else if (tag == "for") {
        parse_for(stmt);
    } else if (tag == "set") {
        parse_set(stmt);
    } else if (tag == "macro") {
        parse_macro(stmt);
    } else if (tag == "call") {
        parse_call_block(stmt);
    } else if (tag == "filter") {
        parse_filter_block(stmt);
    } else if (tag == "with") {
        parse_with(stmt);
    } else if (tag == "block") {
        parse_block(stmt);
    } else if (tag == "generation") {
        parse_generation(stmt);
    } else if (tag == "autoescape") {
        fail("the tag 'autoescape' is not supported");
    } else {
        open_tags_.pop_back();  // it was never a block
        fail_unknown_tag(&tag);
        open_tags_.push_back(tag);
    }
}

void Parser::parse_if(Stmt& stmt) {
    stmt.kind = StmtKind::If;
    const Softness soft(*this, Softness::To::Soft);
    do {
        advance();  // if, elif
        stmt.exprs.push_back(parse_tuple(TupleStyle::NoCondition));
        stmt.bodies.push_back(parse_block_body({"elif", "else", "endif"}));
    } while (!failed_ && at_name("elif"));
    if (skip_name("else")) {
        stmt.bodies.push_back(parse_last_body("endif"));
    } else {
        advance();
    }
}

void Parser::parse_for(Stmt& stmt) {
    stmt.kind = StmtKind::For;
    stmt.loop = std::make_unique<ForLoop>();
    ForLoop& loop = *stmt.loop;
    const Softness hard(*this, soft_ ? Softness::To::Soft : Softness::To::Hard);
    advance();
    loop.target = parse_target(TupleStyle::Target, "in");
    expect_name("in");
    loop.items = parse_tuple(TupleStyle::NoCondition, "recursive");
    soft_ = false;
    if (skip_name("if")) {
        loop.test = parse_expression();
    }
    loop.recursive = skip_name("recursive");
    loops_.push_back(&loop);
    ++n_loops_in_function_;
    loop.body = parse_block_body({"endfor", "else"});
    --n_loops_in_function_;
    loops_.pop_back();
    if (skip_name("else")) {
        loop.otherwise = parse_last_body("endfor");
    } else {
        advance();
    }
}

void Parser::parse_set(Stmt& stmt) {
    stmt.kind = StmtKind::Set;
    advance();
    stmt.target = parse_target(TupleStyle::NamespaceTarget);
    if (skip_symbol("=")) {
        stmt.exprs.push_back(parse_tuple(TupleStyle::Full));
        return;
    }
    stmt.kind = StmtKind::SetBlock;
    stmt.exprs.push_back(parse_filter_chain(nullptr));
    const Softness hard(*this, Softness::To::Hard);
    stmt.bodies.push_back(parse_last_body("endset"));
}

void Parser::parse_signature(MacroDefinition& macro) {
    expect_symbol("(");
    while (!failed_ && !at_symbol(")")) {
        if (!macro.parameters.empty()) {
            expect_symbol(",");
        }
        macro.parameters.push_back(expect_any_name());
        if (skip_symbol("=")) {
            macro.defaults.push_back(parse_expression());
        } else if (!macro.defaults.empty()) {
            fail("non-default argument follows default argument");
        }
    }
    expect_symbol(")");
}

void Parser::parse_macro_body(MacroDefinition& macro, std::string_view end_tag) {
    const Softness hard(*this, Softness::To::Hard);
    const std::size_t n_loops = n_loops_in_function_;
    n_loops_in_function_ = 0;
    macros_.push_back(&macro);
    macro.body = parse_last_body(end_tag);
    macros_.pop_back();
    n_loops_in_function_ = n_loops;
}

void Parser::parse_macro(Stmt& stmt) {
    stmt.kind = StmtKind::Macro;
    stmt.macro = std::make_unique<MacroDefinition>();
    advance();
    stmt.macro->name = expect_any_name();
    parse_signature(*stmt.macro);
    parse_macro_body(*stmt.macro, "endmacro");
}

void Parser::parse_call_block(Stmt& stmt) {
    stmt.kind = StmtKind::CallBlock;
    stmt.macro = std::make_unique<MacroDefinition>();
    stmt.macro->name = "caller";
    const Position position = current().position;
    advance();
    if (at_symbol("(")) {
        parse_signature(*stmt.macro);
    }
    stmt.exprs.push_back(parse_expression());
    if (!failed_ && stmt.exprs[0]->kind != ExprKind::Call) {
        fail_at(kSyntaxError, "expected call", position);
    }
    parse_macro_body(*stmt.macro, "endcall");
}

void Parser::parse_filter_block(Stmt& stmt) {
    stmt.kind = StmtKind::FilterBlock;
    advance();
    stmt.exprs.push_back(parse_filter_chain(parse_filter(nullptr)));
    const Softness hard(*this, Softness::To::Hard);
    stmt.bodies.push_back(parse_last_body("endfilter"));
}

void Parser::parse_with(Stmt& stmt) {
    stmt.kind = StmtKind::With;
    const Softness hard(*this, Softness::To::Hard);
    advance();
    while (!failed_ && !at_type(TokenType::BlockEnd)) {
        if (!stmt.targets.empty()) {
            expect_symbol(",");
        }
        stmt.targets.push_back(parse_target(TupleStyle::Target));
        expect_symbol("=");
        stmt.exprs.push_back(parse_expression());
    }
    stmt.bodies.push_back(parse_last_body("endwith"));
}

void Parser::parse_block(Stmt& stmt) {
    stmt.kind = StmtKind::Scope;
    const Softness hard(*this, Softness::To::Hard);
    const std::size_t n_loops = n_loops_in_function_;
    advance();
    expect_any_name();
    skip_name("scoped");
    skip_name("required");
    n_loops_in_function_ = 0;
    stmt.bodies.push_back(parse_block_body({"endblock"}));
    n_loops_in_function_ = n_loops;
    advance();
    if (at_type(TokenType::Name)) {  // the name may be repeated
        advance();
    }
}

void Parser::parse_generation(Stmt& stmt) {
    stmt.kind = StmtKind::Scope;
    const Softness hard(*this, Softness::To::Hard);
    const std::size_t n_loops = n_loops_in_function_;
    advance();
    n_loops_in_function_ = 0;
    stmt.bodies.push_back(parse_last_body("endgeneration"));
    n_loops_in_function_ = n_loops;
}

void Parser::parse_print(Body& body) {
    advance();
    bool first = true;
    while (!failed_ && !at_type(TokenType::BlockEnd)) {
        if (!first) {
            expect_symbol(",");
        }
        first = false;
        auto output = std::make_unique<Stmt>();
        output->kind = StmtKind::Output;
        output->position = current().position;
        output->exprs.push_back(parse_expression());
        body.push_back(std::move(output));
    }
}

void Parser::parse_loop_control(Stmt& stmt, const std::string& tag) {
    stmt.kind = tag == "break" ? StmtKind::Break : StmtKind::Continue;
    if (n_loops_in_function_ == 0) {
        fail_at("SyntaxError",
                tag == "break" ? "'break' outside loop" : "'continue' not properly in loop",
                stmt.position);
    }
    advance();
}

/// Other templates cannot be loaded; the reference says so when the tag is reached.
void Parser::parse_loader_tag(Stmt& stmt, const std::string& tag) {
    stmt.kind = StmtKind::NeedsLoader;
    advance();
    stmt.exprs.push_back(parse_expression());
    if (tag == "from") {
        expect_name("import");
    }
    while (!failed_ && !at_type(TokenType::BlockEnd) && !at_type(TokenType::End)) {
        advance();  // what would be imported, and how
    }
}

}  // namespace terrace::jinja
