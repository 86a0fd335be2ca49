// The statement half of the evaluator: output, branches, loops, assignments.
#include "engine/text/template/evaluator.h"

namespace terrace::jinja {

const Value* Scope::find(std::string_view name) const {
    for (const auto& [key, value] : names) {
        if (key == name) {
            return &value;
        }
    }
    return nullptr;
}

void Scope::set(std::string_view name, const Value& value) {
    for (auto& [key, old] : names) {
        if (key == name) {
            old = value;
            return;
        }
    }
    names.emplace_back(name, value);
}

Evaluator::Evaluator(Runtime& rt, const TemplateTree& tree, const Value& names)
    : rt_(rt),
      tree_(tree),
      names_(names),
      root_output_(rt),
      out_(&root_output_),
      scope_(rt.make<Scope>()) {}

void Evaluator::run() {
    exec_body(tree_.body);
}

Scope* Evaluator::new_scope(Scope* parent) {
    auto* scope = rt_.make<Scope>();
    scope->parent = parent;
    return scope;
}

Evaluator::Flow Evaluator::exec_body(const Body& body) {
    for (const auto& stmt : body) {
        if (rt_.failed()) {
            break;
        }
        const Flow flow = exec(*stmt);
        if (flow != Flow::Normal) {
            return flow;
        }
    }
    return Flow::Normal;
}

Evaluator::Flow Evaluator::exec(const Stmt& stmt) {
    const DepthScope depth(rt_);
    if (!depth.ok() || !rt_.spend(1)) {
        return Flow::Normal;
    }
    rt_.position = stmt.position;
    rt_.statement = stmt.position;
    switch (stmt.kind) {
        case StmtKind::Data:
            out_->add(*stmt.text);
            return Flow::Normal;
        case StmtKind::Output:
            exec_output(stmt);
            return Flow::Normal;
        case StmtKind::If:
            return exec_if(stmt);
        case StmtKind::Set:
            exec_set(stmt);
            return Flow::Normal;
        case StmtKind::Macro:
            define_macro(stmt);
            return Flow::Normal;
        case StmtKind::Break:
            return Flow::Break;
        case StmtKind::Continue:
            return Flow::Continue;
        case StmtKind::NeedsLoader:
            rt_.fail_type("no loader for this environment specified");
            return Flow::Normal;
        default:
            return exec_block(stmt);
    }
}

Evaluator::Flow Evaluator::exec_block(const Stmt& stmt) {
    Scope* const outer = scope_;
    Flow flow = Flow::Normal;
    switch (stmt.kind) {
        case StmtKind::For:
            flow = exec_for(*stmt.loop, eval(*stmt.loop->items), 0);
            break;
        case StmtKind::SetBlock:
            flow = exec_set_block(stmt);
            break;
        case StmtKind::FilterBlock:
            flow = exec_filter_block(stmt);
            break;
        case StmtKind::With:
            flow = exec_with(stmt);
            break;
        case StmtKind::CallBlock:
            exec_call_block(stmt);
            break;
        default:  // Scope
            scope_ = new_scope(outer);
            flow = exec_body(stmt.bodies[0]);
            break;
    }
    scope_ = outer;
    return flow;
}

void Evaluator::exec_output(const Stmt& stmt) {
    const Value value = eval(*stmt.exprs[0]);
    rt_.position = stmt.position;
    if (!rt_.failed()) {
        print(rt_, value, *out_);
    }
    if (out_->size() > rt_.limits().max_output_bytes) {
        rt_.fail_limit("more than " + std::to_string(rt_.limits().max_output_bytes) +
                       " bytes of output");
    }
}

Evaluator::Flow Evaluator::exec_if(const Stmt& stmt) {
    for (std::size_t i = 0; i < stmt.exprs.size(); ++i) {
        rt_.position = stmt.exprs[i]->position;
        rt_.statement = stmt.exprs[i]->position;
        const bool taken = truthy(eval(*stmt.exprs[i]));
        if (rt_.failed()) {
            return Flow::Normal;
        }
        if (taken) {
            return exec_body(stmt.bodies[i]);
        }
    }
    return stmt.bodies.size() > stmt.exprs.size() ? exec_body(stmt.bodies.back()) : Flow::Normal;
}

void Evaluator::exec_set(const Stmt& stmt) {
    const Value value = eval(*stmt.exprs[0]);
    assign(*stmt.target, value);
}

Evaluator::Flow Evaluator::exec_set_block(const Stmt& stmt) {
    Scope* const outer = scope_;
    TextBuilder captured(rt_);
    TextBuilder* const out = std::exchange(out_, &captured);
    scope_ = new_scope(outer);
    const Flow flow = exec_body(stmt.bodies[0]);
    out_ = out;
    rt_.position = stmt.position;
    rt_.statement = stmt.position;
    if (flow == Flow::Normal && !rt_.failed()) {
        const Value text = captured.take();
        const Value value = stmt.exprs[0] == nullptr ? text : eval_captured(*stmt.exprs[0], text);
        scope_ = outer;
        assign(*stmt.target, value);
    }
    return flow;
}

Evaluator::Flow Evaluator::exec_filter_block(const Stmt& stmt) {
    TextBuilder captured(rt_);
    TextBuilder* const out = std::exchange(out_, &captured);
    scope_ = new_scope(scope_);
    const Flow flow = exec_body(stmt.bodies[0]);
    out_ = out;
    rt_.position = stmt.position;
    rt_.statement = stmt.position;
    if (flow == Flow::Normal && !rt_.failed()) {
        print(rt_, eval_captured(*stmt.exprs[0], captured.take()), *out_);
    }
    return flow;
}

Evaluator::Flow Evaluator::exec_with(const Stmt& stmt) {
    Scope* const outer = scope_;
    std::vector<Value> values;
    for (const ExprPtr& expr : stmt.exprs) {
        values.push_back(eval(*expr));
    }
    scope_ = new_scope(outer);
    for (std::size_t i = 0; i < values.size(); ++i) {
        assign(*stmt.targets[i], values[i]);
    }
    return exec_body(stmt.bodies[0]);
}

Value Evaluator::make_macro(const MacroDefinition& definition) {
    auto* macro = rt_.make<Macro>();
    macro->node = &definition;
    macro->scope = scope_;
    macro->name = definition.name;
    std::vector<Value> names;
    for (const std::string& name : definition.parameters) {
        names.push_back(rt_.literal(name));
    }
    macro->arguments = rt_.tuple(std::move(names));
    macro->takes_kwargs = definition.uses_kwargs;
    macro->takes_varargs = definition.uses_varargs;
    macro->takes_caller = definition.uses_caller;
    return Value::of(Kind::Macro, macro);
}

void Evaluator::define_macro(const Stmt& stmt) {
    scope_->set(stmt.macro->name, make_macro(*stmt.macro));
}

void Evaluator::exec_call_block(const Stmt& stmt) {
    const Value caller = make_macro(*stmt.macro);
    const Expr& expr = *stmt.exprs[0];
    const Value callee = eval(*expr.parts[0]);
    Args args = eval_arguments(expr.call);
    args.named.emplace_back("caller", caller);
    const Value result = call(callee, std::move(args));
    if (!rt_.failed()) {
        print(rt_, result, *out_);
    }
}

bool Evaluator::passes(const ForLoop& node, const Value& item) {
    Scope* const outer = scope_;
    scope_ = new_scope(outer);
    assign(*node.target, item);
    const bool passed = truthy(eval(*node.test));
    scope_ = outer;
    return passed && !rt_.failed();
}

std::vector<Value> Evaluator::loop_items(const ForLoop& node, const Value& items) {
    std::vector<Value> all = collect(rt_, items);
    // Without `loop` in the body, the test runs turn by turn and may see what the body has set.
    if (node.test == nullptr || !node.uses_loop) {
        return all;
    }
    std::vector<Value> kept;
    for (const Value& item : all) {
        if (passes(node, item)) {
            kept.push_back(item);
        }
    }
    return kept;
}

Evaluator::Flow Evaluator::exec_for(const ForLoop& node, const Value& items, std::size_t depth) {
    Scope* const outer = scope_;
    if (rt_.failed()) {
        return Flow::Normal;
    }
    const Value held = rt_.list(loop_items(node, items));
    auto* loop = rt_.make<Loop>();
    loop->items = &held.items();
    loop->depth = depth;
    loop->node = &node;
    loop->scope = outer;
    bool any = false;
    for (std::size_t i = 0; i < held.items().size() && rt_.spend(1); ++i) {
        const Value item = held.items()[i];
        if (node.test != nullptr && !node.uses_loop && !passes(node, item)) {
            continue;
        }
        any = true;
        loop->index = i;
        scope_ = new_scope(outer);
        scope_->set("loop", Value::of(Kind::Loop, loop));
        assign(*node.target, item);
        const Flow flow = exec_body(node.body);
        scope_ = outer;
        if (flow == Flow::Break) {
            break;
        }
    }
    if (any || rt_.failed()) {
        return Flow::Normal;
    }
    scope_ = new_scope(outer);
    const Flow flow = exec_body(node.otherwise);
    scope_ = outer;
    return flow;
}

void Evaluator::assign(const Expr& target, const Value& value) {
    if (rt_.failed()) {
        return;
    }
    switch (target.kind) {
        case ExprKind::Name:
            rt_.charge(sizeof(Value));
            rt_.spend(scope_->names.size() / 8);
            scope_->set(target.name, value);
            break;
        case ExprKind::NamespaceTarget:
            assign_attribute(target, value);
            break;
        default:
            unpack(target, value);
    }
}

void Evaluator::assign_attribute(const Expr& target, const Value& value) {
    const Value owner = eval_name(target);
    rt_.position = target.position;
    if (!owner.is(Kind::Namespace)) {
        rt_.fail(kRuntimeError, "cannot assign attribute on non-namespace object");
        return;
    }
    if (target.attribute.starts_with('_')) {
        rt_.fail(kSecurityError,
                 "Chat templates cannot store underscore-prefixed attributes on a namespace, but "
                 "got '" +
                     target.attribute + "'. Please rename the attribute.");
        return;
    }
    owner.as<Namespace>().attributes.as<Dict>().set(rt_, rt_.literal(target.attribute), value);
}

void Evaluator::unpack(const Expr& target, const Value& value) {
    if (!is_iterable(value)) {
        rt_.fail_type("cannot unpack non-iterable " + type_name(value) + " object");
        return;
    }
    const std::vector<Value> items = collect(rt_, value);
    const std::size_t wanted = target.parts.size();
    if (items.size() > wanted) {
        rt_.fail(kValueError,
                 "too many values to unpack (expected " + std::to_string(wanted) + ")");
    } else if (items.size() < wanted) {
        rt_.fail(kValueError, "not enough values to unpack (expected " + std::to_string(wanted) +
                                  ", got " + std::to_string(items.size()) + ")");
    } else {
        for (std::size_t i = 0; i < wanted; ++i) {
            assign(*target.parts[i], items[i]);
        }
    }
}

}  // namespace terrace::jinja
