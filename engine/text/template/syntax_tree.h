// The parsed form of a template. Built by the parser, walked by the evaluator, immutable.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/template/operations.h"

namespace terrace::jinja {

enum class ExprKind {
    Constant,
    Name,
    List,
    Tuple,
    Dict,       ///< parts: key, value, key, value ...
    Attribute,  ///< parts[0].name
    Item,       ///< parts[0][parts[1]]
    Slice,      ///< parts[0][parts[1]:parts[2]:parts[3]], missing parts null
    Call,       ///< parts[0](call)
    Filter,     ///< parts[0] | name(call); parts[0] null for the captured text of a block
    Test,       ///< parts[0] is name(call)
    Not,
    Negate,
    Positive,
    And,
    Or,
    Compare,     ///< parts[0] comparisons[0] parts[1] comparisons[1] parts[2] ...
    Arithmetic,  ///< parts[0] operations[0] parts[1] ..., from the left
    Concat,
    Condition,        ///< parts[0] if parts[1] else parts[2]; parts[2] may be null
    NamespaceTarget,  ///< name.attribute as the target of a set
};

enum class Comparison { Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual, In, NotIn };

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct CallArguments {
    std::vector<ExprPtr> positional;
    std::vector<std::pair<std::string, ExprPtr>> named;
    ExprPtr star;       ///< *x
    ExprPtr star_star;  ///< **x
};

struct Expr {
    ExprKind kind = ExprKind::Constant;
    Position position;
    std::size_t depth = 1;  ///< levels below and with this one
    std::string name;
    std::string attribute;
    Value constant;
    std::unique_ptr<Text> text;  ///< owner of a string constant
    std::vector<ExprPtr> parts;
    CallArguments call;
    std::vector<Comparison> comparisons;
    std::vector<Arithmetic> operations;
    FilterFunction filter = nullptr;  ///< null when there is none of this name
    TestFunction test = nullptr;
};

enum class StmtKind {
    Data,    ///< text
    Output,  ///< exprs[0]
    If,      ///< exprs[i] decides over bodies[i]; one more body is the else
    For,
    Set,       ///< target = exprs[0]
    SetBlock,  ///< target = bodies[0], through the filter exprs[0] when not null
    Macro,
    CallBlock,    ///< exprs[0] is the call, macro the caller
    FilterBlock,  ///< bodies[0] through the filter exprs[0]
    With,         ///< targets[i] = exprs[i], then bodies[0]
    Scope,        ///< bodies[0] with its own names (block, generation)
    Break,
    Continue,
    NeedsLoader,  ///< include, import, extends: parsed, refused when executed
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

/// Signature and body of a macro or of the block of a call.
struct MacroDefinition {
    std::string name;
    std::vector<std::string> parameters;
    std::vector<ExprPtr> defaults;  ///< of the last parameters
    Body body;
    bool uses_caller = false;
    bool uses_kwargs = false;
    bool uses_varargs = false;
};

struct ForLoop {
    ExprPtr target;
    ExprPtr items;
    ExprPtr test;  ///< may be null
    bool recursive = false;
    bool uses_loop = false;  ///< the body names `loop`
    Body body;
    Body otherwise;
};

struct Stmt {
    StmtKind kind = StmtKind::Data;
    Position position;
    std::unique_ptr<Text> text;
    ExprPtr target;
    std::vector<ExprPtr> targets;
    std::vector<ExprPtr> exprs;
    std::vector<Body> bodies;
    std::unique_ptr<ForLoop> loop;
    std::unique_ptr<MacroDefinition> macro;
};

/// A whole template.
struct TemplateTree {
    Body body;
};

}  // namespace terrace::jinja
