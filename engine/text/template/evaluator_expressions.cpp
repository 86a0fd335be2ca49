// The expression half of the evaluator.
#include "engine/text/template/evaluator.h"

namespace terrace::jinja {

Value Evaluator::eval(const Expr& expr) {
    const DepthScope depth(rt_);
    if (!depth.ok() || !rt_.spend(1)) {
        return {};
    }
    const Position before = rt_.position;
    rt_.position = expr.position;
    const Value value = eval_kind(expr);
    rt_.position = before;
    return value;
}

Value Evaluator::eval_kind(const Expr& expr) {
    switch (expr.kind) {
        case ExprKind::Constant:
            return expr.constant;
        case ExprKind::Name:
        case ExprKind::NamespaceTarget:
            return eval_name(expr);
        case ExprKind::List:
        case ExprKind::Tuple:
            return eval_items(expr);
        case ExprKind::Dict:
            return eval_dict(expr);
        case ExprKind::Attribute:
            return get_attribute(rt_, eval(*expr.parts[0]), expr.name);
        case ExprKind::Item: {
            const Value owner = eval(*expr.parts[0]);
            return get_item(rt_, owner, eval(*expr.parts[1]));
        }
        case ExprKind::Slice:
            return eval_slice(expr);
        case ExprKind::Call: {
            const Value callee = eval(*expr.parts[0]);
            return call(callee, eval_arguments(expr.call));
        }
        case ExprKind::Filter:
            return eval_filter(expr, eval(*expr.parts[0]));
        case ExprKind::Test:
            return eval_test(expr);
        case ExprKind::Not:
            return Value::boolean(!truthy(eval(*expr.parts[0])));
        case ExprKind::Negate:
            return negate(rt_, eval(*expr.parts[0]));
        case ExprKind::Positive:
            return positive(rt_, eval(*expr.parts[0]));
        case ExprKind::And:
        case ExprKind::Or:
            return eval_any_all(expr);
        case ExprKind::Compare:
            return eval_compare(expr);
        case ExprKind::Arithmetic:
            return eval_arithmetic(expr);
        case ExprKind::Concat:
            return eval_concat(expr);
        case ExprKind::Condition:
            break;
    }
    if (truthy(eval(*expr.parts[1]))) {
        return eval(*expr.parts[0]);
    }
    if (expr.parts[2] != nullptr) {
        return eval(*expr.parts[2]);
    }
    return rt_.undefined(
        "the inline if-expression evaluated to false and no else section was defined.");
}

Value Evaluator::eval_name(const Expr& expr) {
    for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
        rt_.spend(scope->names.size() / 16);
        if (const Value* found = scope->find(expr.name)) {
            return *found;
        }
    }
    if (const Value* found = names_.dict().find(expr.name)) {
        return *found;
    }
    if (const auto global = find_global(rt_, expr.name)) {
        return *global;
    }
    if (expr.name == "self") {
        return Value::of(Kind::Opaque, nullptr);
    }
    return rt_.undefined("'" + expr.name + "' is undefined");
}

Value Evaluator::eval_items(const Expr& expr) {
    std::vector<Value> items;
    for (const ExprPtr& part : expr.parts) {
        items.push_back(eval(*part));
    }
    return rt_.sequence(expr.kind == ExprKind::List ? Kind::List : Kind::Tuple, std::move(items));
}

Value Evaluator::eval_dict(const Expr& expr) {
    const Value made = rt_.new_dict();
    for (std::size_t i = 0; i + 1 < expr.parts.size() && !rt_.failed(); i += 2) {
        const Value key = eval(*expr.parts[i]);
        const Value value = eval(*expr.parts[i + 1]);
        made.as<Dict>().set(rt_, key, value);
    }
    return made;
}

Value Evaluator::eval_slice(const Expr& expr) {
    const Value owner = eval(*expr.parts[0]);
    SliceBounds bounds;
    std::optional<Value>* const parts[] = {&bounds.start, &bounds.stop, &bounds.step};
    for (std::size_t i = 0; i < 3; ++i) {
        if (expr.parts[i + 1] != nullptr) {
            *parts[i] = eval(*expr.parts[i + 1]);
        }
    }
    return get_slice(rt_, owner, bounds);
}

Value Evaluator::eval_filter(const Expr& expr, const Value& subject) {
    const Args args = eval_arguments(expr.call);
    if (rt_.failed()) {
        return {};
    }
    if (expr.filter == nullptr) {
        return rt_.fail(kRuntimeError, "No filter named '" + expr.name + "' found.");
    }
    return expr.filter(rt_, subject, args);
}

/// Sends the text of a block through its filters, the innermost first.
Value Evaluator::eval_captured(const Expr& filter, const Value& text) {
    const DepthScope depth(rt_);
    if (!depth.ok()) {
        return {};
    }
    const Expr* inner = filter.parts[0].get();
    return eval_filter(filter, inner == nullptr ? text : eval_captured(*inner, text));
}

Value Evaluator::eval_test(const Expr& expr) {
    const Value subject = eval(*expr.parts[0]);
    const Args args = eval_arguments(expr.call);
    if (rt_.failed()) {
        return {};
    }
    if (expr.test == nullptr) {
        return rt_.fail(kRuntimeError, "No test named '" + expr.name + "' found.");
    }
    return Value::boolean(expr.test(rt_, subject, args));
}

Value Evaluator::eval_any_all(const Expr& expr) {
    const bool until = expr.kind == ExprKind::Or;
    Value value;
    for (const ExprPtr& part : expr.parts) {
        value = eval(*part);
        if (rt_.failed() || truthy(value) == until) {
            break;
        }
    }
    return value;
}

Value Evaluator::eval_compare(const Expr& expr) {
    Value left = eval(*expr.parts[0]);
    bool holds = true;
    for (std::size_t i = 0; i < expr.comparisons.size() && holds && !rt_.failed(); ++i) {
        const Value right = eval(*expr.parts[i + 1]);
        if (rt_.failed()) {
            break;
        }
        const Comparison how = expr.comparisons[i];
        if (how == Comparison::In || how == Comparison::NotIn) {
            holds = contains(rt_, left, right) == (how == Comparison::In);
        } else {
            holds = compare(rt_, static_cast<Compare>(how), left, right).flag;
        }
        left = right;
    }
    return Value::boolean(holds);
}

Value Evaluator::eval_arithmetic(const Expr& expr) {
    Value left = eval(*expr.parts[0]);
    for (std::size_t i = 0; i < expr.operations.size() && !rt_.failed(); ++i) {
        const Value right = eval(*expr.parts[i + 1]);
        left = arithmetic(rt_, expr.operations[i], left, right);
    }
    return left;
}

Value Evaluator::eval_concat(const Expr& expr) {
    std::vector<Value> values;
    for (const ExprPtr& part : expr.parts) {
        values.push_back(eval(*part));
    }
    TextBuilder builder(rt_);
    for (const Value& value : values) {
        if (!rt_.failed()) {
            print(rt_, value, builder);
        }
    }
    return builder.take();
}

Args Evaluator::eval_arguments(const CallArguments& arguments) {
    Args args;
    for (const ExprPtr& expr : arguments.positional) {
        args.positional.push_back(eval(*expr));
    }
    for (const auto& [name, expr] : arguments.named) {
        args.named.emplace_back(name, eval(*expr));
    }
    if (arguments.star != nullptr) {
        for (const Value& item : collect(rt_, eval(*arguments.star))) {
            args.positional.push_back(item);
        }
    }
    if (arguments.star_star != nullptr) {
        const Value more = eval(*arguments.star_star);
        if (!more.is(Kind::Dict)) {
            rt_.fail_type("argument after ** must be a mapping, not " + type_name(more));
            return args;
        }
        for (const auto& [key, value] : more.dict().entries) {
            if (!key.is_string()) {
                rt_.fail_type("keywords must be strings");
                return args;
            }
            args.named.emplace_back(key.text().bytes, value);
        }
    }
    return args;
}

}  // namespace terrace::jinja
