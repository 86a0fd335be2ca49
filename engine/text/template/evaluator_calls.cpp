// Calling: functions of ours, macros, recursive loops.
#include <algorithm>

#include "engine/text/template/evaluator.h"

namespace terrace::jinja {

namespace {

/// Takes the named argument out of the list.
std::optional<Value> take_named(Args& args, std::string_view name) {
    const auto found = std::find_if(args.named.begin(), args.named.end(),
                                    [&](const auto& entry) { return entry.first == name; });
    if (found == args.named.end()) {
        return std::nullopt;
    }
    const Value value = found->second;
    args.named.erase(found);
    return value;
}

Value call_joiner(Runtime& rt, Joiner& joiner) {
    if (!joiner.used) {
        joiner.used = true;
        return rt.literal("");
    }
    return joiner.separator;
}

}  // namespace

Value Evaluator::call(const Value& callee, Args args) {
    const DepthScope depth(rt_);
    if (!depth.ok() || rt_.failed()) {
        return {};
    }
    switch (callee.kind) {
        case Kind::Undefined:
            return rt_.fail_undefined(callee);
        case Kind::Function: {
            const auto& function = callee.as<Function>();
            if (function.call == nullptr) {
                return rt_.fail(kRuntimeError,
                                "the method '" + std::string(function.name) +
                                    "' is known to the reference and not supported here");
            }
            return function.call(rt_, function.self, args);
        }
        case Kind::Macro:
            return call_macro(callee.as<Macro>(), args);
        case Kind::Loop:
            return call_loop(callee, args);
        case Kind::Joiner:
            return call_joiner(rt_, callee.as<Joiner>());
        default:
            return rt_.fail_type("'" + type_name(callee) + "' object is not callable");
    }
}

Value Evaluator::call_macro(const Macro& macro, Args& args) {
    const Position position = rt_.position;
    const Position statement = rt_.statement;
    Scope* const outer = scope_;
    scope_ = new_scope(static_cast<Scope*>(macro.scope));
    TextBuilder captured(rt_);
    TextBuilder* const out = std::exchange(out_, &captured);
    bind_macro(macro, args, *scope_);
    if (!rt_.failed()) {
        exec_body(static_cast<const MacroDefinition*>(macro.node)->body);
    }
    out_ = out;
    scope_ = outer;
    rt_.position = position;
    rt_.statement = statement;
    return captured.take();
}

void Evaluator::bind_macro(const Macro& macro, Args& args, Scope& scope) {
    const auto& definition = *static_cast<const MacroDefinition*>(macro.node);
    const auto& names = definition.parameters;
    const std::size_t n_given = std::min(args.positional.size(), names.size());
    const std::size_t n_without_default = names.size() - definition.defaults.size();
    bool binds_caller = false;
    for (std::size_t i = 0; i < names.size() && !rt_.failed(); ++i) {
        std::optional<Value> value;
        if (i < n_given) {
            value = args.positional[i];
        } else {
            value = take_named(args, names[i]);
        }
        binds_caller = binds_caller || names[i] == "caller";
        if (!value && i >= n_without_default) {
            value = eval(*definition.defaults[i - n_without_default]);
        }
        scope.set(names[i],
                  value ? *value : rt_.undefined("parameter '" + names[i] + "' was not provided"));
    }
    if (definition.uses_caller && !binds_caller) {
        const auto caller = take_named(args, "caller");
        scope.set("caller", caller ? *caller : rt_.undefined("No caller defined"));
    }
    if (definition.uses_kwargs) {
        const Value rest = rt_.new_dict();
        for (const auto& [name, value] : args.named) {
            rest.as<Dict>().set(rt_, rt_.literal(name), value);
        }
        scope.set("kwargs", rest);
    } else if (!args.named.empty()) {
        rt_.fail_type("macro '" + definition.name + "' takes no keyword argument '" +
                      args.named.front().first + "'");
    }
    if (definition.uses_varargs) {
        scope.set("varargs",
                  rt_.tuple({args.positional.begin() + static_cast<std::ptrdiff_t>(n_given),
                             args.positional.end()}));
    } else if (args.positional.size() > names.size()) {
        rt_.fail_type("macro '" + definition.name + "' takes not more than " +
                      std::to_string(names.size()) + " argument(s)");
    }
}

Value Evaluator::call_loop(const Value& value, const Args& args) {
    const auto& loop = value.as<Loop>();
    const auto& node = *static_cast<const ForLoop*>(loop.node);
    if (!node.recursive) {
        return rt_.fail_type("The loop must have the 'recursive' marker to be called recursively.");
    }
    if (args.positional.size() != 1) {
        return rt_.fail_type("expected one argument for the recursive loop, found " +
                             std::to_string(args.positional.size()));
    }
    const Position position = rt_.position;
    const Position statement = rt_.statement;
    Scope* const outer = std::exchange(scope_, static_cast<Scope*>(loop.scope));
    TextBuilder captured(rt_);
    TextBuilder* const out = std::exchange(out_, &captured);
    exec_for(node, args.positional[0], loop.depth + 1);
    out_ = out;
    scope_ = outer;
    rt_.position = position;
    rt_.statement = statement;
    return captured.take();
}

}  // namespace terrace::jinja
