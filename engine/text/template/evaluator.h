// Walks the syntax tree with the values of one request and writes the prompt.
#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/template/operations.h"
#include "engine/text/template/syntax_tree.h"

namespace terrace::jinja {

/// Names of one block of the template, and the scope around it. Lives as long as the rendering:
/// macros keep pointing to it.
struct Scope final : Object {
    Scope* parent = nullptr;
    std::vector<std::pair<std::string_view, Value>> names;

    [[nodiscard]] const Value* find(std::string_view name) const;
    void set(std::string_view name, const Value& value);
};

/// One rendering of one tree. Owner: render(); one thread; failures go to the Runtime.
class Evaluator {
public:
    /// `names` is a Dict of what the template gets from outside.
    Evaluator(Runtime& rt, const TemplateTree& tree, const Value& names);

    /// Runs the template; the text is in output() afterwards, complete only without a failure.
    void run();

    [[nodiscard]] const TextBuilder& output() const { return root_output_; }

private:
    enum class Flow { Normal, Break, Continue };

    // evaluator_statements.cpp
    Flow exec_body(const Body& body);
    Flow exec(const Stmt& stmt);
    Flow exec_block(const Stmt& stmt);
    void exec_output(const Stmt& stmt);
    Flow exec_if(const Stmt& stmt);
    void exec_set(const Stmt& stmt);
    Flow exec_set_block(const Stmt& stmt);
    Flow exec_filter_block(const Stmt& stmt);
    Flow exec_with(const Stmt& stmt);
    void exec_call_block(const Stmt& stmt);
    void define_macro(const Stmt& stmt);
    Value make_macro(const MacroDefinition& macro);
    Flow exec_for(const ForLoop& node, const Value& items, std::size_t depth);
    bool passes(const ForLoop& node, const Value& item);
    std::vector<Value> loop_items(const ForLoop& node, const Value& items);
    void assign(const Expr& target, const Value& value);
    void unpack(const Expr& target, const Value& value);
    void assign_attribute(const Expr& target, const Value& value);
    Scope* new_scope(Scope* parent);

    // evaluator_expressions.cpp
    Value eval(const Expr& expr);
    Value eval_kind(const Expr& expr);
    Value eval_name(const Expr& expr);
    Value eval_items(const Expr& expr);
    Value eval_dict(const Expr& expr);
    Value eval_slice(const Expr& expr);
    Value eval_filter(const Expr& expr, const Value& subject);
    Value eval_captured(const Expr& filter, const Value& text);
    Value eval_test(const Expr& expr);
    Value eval_any_all(const Expr& expr);
    Value eval_compare(const Expr& expr);
    Value eval_arithmetic(const Expr& expr);
    Value eval_concat(const Expr& expr);
    Args eval_arguments(const CallArguments& arguments);

    // evaluator_calls.cpp
    Value call(const Value& callee, Args args);
    Value call_macro(const Macro& macro, Args& args);
    void bind_macro(const Macro& macro, Args& args, Scope& scope);
    Value call_loop(const Value& loop, const Args& args);

    Runtime& rt_;
    const TemplateTree& tree_;
    const Value names_;
    TextBuilder root_output_;
    TextBuilder* out_;
    Scope* scope_;
};

}  // namespace terrace::jinja
