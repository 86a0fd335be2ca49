// From tokens to the syntax tree: recursive descent with the reference environment's grammar and
// its (not always Python's) precedence.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/template/lexer.h"
#include "engine/text/template/syntax_tree.h"

namespace terrace::jinja {

/// One parse; used once, on the stack of parse(). Sticky failure: after the first one, every
/// function returns quickly and what it returns is thrown away.
class Parser {
public:
    explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

    /// The tree, or nothing with failure() set.
    std::unique_ptr<TemplateTree> run();

    [[nodiscard]] const TemplateFailure& failure() const { return failure_; }

private:
    // parser_statements.cpp
    using EndTags = std::vector<std::string_view>;
    Body parse_body(const EndTags& end_tags);
    Body parse_block_body(const EndTags& end_tags);
    Body parse_last_body(std::string_view end_tag);
    std::unique_ptr<Stmt> parse_statement();
    void parse_tag(Stmt& stmt, const std::string& tag);
    void parse_if(Stmt& stmt);
    void parse_for(Stmt& stmt);
    void parse_set(Stmt& stmt);
    void parse_macro(Stmt& stmt);
    void parse_call_block(Stmt& stmt);
    void parse_filter_block(Stmt& stmt);
    void parse_with(Stmt& stmt);
    void parse_block(Stmt& stmt);
    void parse_generation(Stmt& stmt);
    void parse_print(Body& body);
    void parse_loader_tag(Stmt& stmt, const std::string& tag);
    void parse_loop_control(Stmt& stmt, const std::string& tag);
    void parse_signature(MacroDefinition& macro);
    void parse_macro_body(MacroDefinition& macro, std::string_view end_tag);
    void fail_unknown_tag(const std::string* tag);

    // parser_expressions.cpp
    enum class TupleStyle { Full, NoCondition, Parentheses, Target, NamespaceTarget };
    ExprPtr parse_tuple(TupleStyle style, std::string_view end_name = {});
    ExprPtr parse_target(TupleStyle style, std::string_view end_name = {});
    ExprPtr parse_expression();
    ExprPtr parse_or();
    ExprPtr parse_and();
    ExprPtr parse_not();
    ExprPtr parse_compare();
    ExprPtr parse_sum();
    ExprPtr parse_concat();
    ExprPtr parse_product();
    ExprPtr parse_power();
    enum class Filters { Take, Leave };
    ExprPtr parse_unary(Filters filters);
    ExprPtr parse_primary(TupleStyle style);
    ExprPtr parse_number();
    ExprPtr parse_text();
    ExprPtr parse_list();
    ExprPtr parse_dict();
    ExprPtr parse_postfix(ExprPtr expr);
    ExprPtr parse_filters_and_tests(ExprPtr expr);
    ExprPtr parse_filter(ExprPtr subject);
    ExprPtr parse_filter_chain(ExprPtr subject);
    ExprPtr parse_test(ExprPtr subject);
    ExprPtr parse_subscript(ExprPtr subject);
    ExprPtr parse_subscript_part(ExprPtr subject);
    ExprPtr parse_attribute(ExprPtr subject);
    ExprPtr parse_call(ExprPtr callee);
    CallArguments parse_arguments();
    void parse_argument(CallArguments& arguments, const Position& at);
    ExprPtr parse_chain(ExprPtr (Parser::*part)(),
                        const std::vector<std::pair<std::string_view, Arithmetic>>& signs);

    // parser.cpp
    [[nodiscard]] const Token& current() const { return tokens_[at_]; }

    [[nodiscard]] const Token& look() const {
        return tokens_[std::min(at_ + 1, tokens_.size() - 1)];
    }

    void advance();

    [[nodiscard]] bool at_type(TokenType type) const { return current().type == type; }

    [[nodiscard]] bool at_name(std::string_view name) const;
    [[nodiscard]] bool at_symbol(std::string_view symbol) const;
    bool skip_name(std::string_view name);
    bool skip_symbol(std::string_view symbol);
    void expect_name(std::string_view name);
    void expect_symbol(std::string_view symbol);
    void expect_type(TokenType type, std::string_view what);
    std::string expect_any_name();
    void fail(std::string message);
    void fail_at(const char* error_class, std::string message, const Position& position);
    void fail_expected(std::string_view what);
    ExprPtr make(ExprKind kind, const Position& position);
    /// Completes a node after its parts: its depth, within the limit.
    ExprPtr finish(ExprPtr expr);
    void note_name(const std::string& name);
    void note_missing(std::string message, const Position& position);

    std::vector<Token> tokens_;
    std::size_t at_ = 0;
    std::size_t depth_ = 0;
    bool failed_ = false;
    TemplateFailure failure_;
    std::vector<std::string> open_tags_;
    std::vector<EndTags> awaited_;
    std::vector<MacroDefinition*> macros_;  ///< those around the present place
    std::vector<ForLoop*> loops_;
    std::size_t n_loops_in_function_ = 0;
    /// Inside if branches and conditions an unknown filter is an error only when it is reached.
    bool soft_ = false;
    std::optional<TemplateFailure> missing_;

    /// One level of nesting while it lives.
    class Nesting {
    public:
        explicit Nesting(Parser& parser);

        ~Nesting() { --parser_.depth_; }

        Nesting(const Nesting&) = delete;
        Nesting& operator=(const Nesting&) = delete;

    private:
        Parser& parser_;
    };

    /// Sets soft_ and puts it back.
    class Softness {
    public:
        enum class To { Soft, Hard };

        Softness(Parser& parser, To to) : parser_(parser), before_(parser.soft_) {
            parser.soft_ = to == To::Soft;
        }

        ~Softness() { parser_.soft_ = before_; }

        Softness(const Softness&) = delete;
        Softness& operator=(const Softness&) = delete;

    private:
        Parser& parser_;
        bool before_;
    };
};

}  // namespace terrace::jinja
