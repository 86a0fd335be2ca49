// How the arguments of filters, tests and methods are bound to names.
#include <algorithm>

#include "engine/text/template/operations.h"

namespace terrace::jinja {

Parameters::Parameters(Runtime& rt,
                       std::string_view function,
                       const Args& args,
                       std::initializer_list<std::string_view> names,
                       std::size_t n_required)
    : rt_(rt), function_(function), values_(names.size()) {
    if (args.positional.size() > names.size()) {
        rt.fail_type(function_ + "() takes at most " + std::to_string(names.size()) +
                     " arguments (" + std::to_string(args.positional.size()) + " given)");
        return;
    }
    std::copy(args.positional.begin(), args.positional.end(), values_.begin());
    for (const auto& [key, value] : args.named) {
        const auto* found = std::find(names.begin(), names.end(), key);
        if (found == names.end()) {
            rt.fail_type(function_ + "() got an unexpected keyword argument '" + key + "'");
            return;
        }
        auto& slot = values_[static_cast<std::size_t>(found - names.begin())];
        if (slot) {
            rt.fail_type(function_ + "() got multiple values for argument '" + key + "'");
            return;
        }
        slot = value;
    }
    for (std::size_t i = 0; i < n_required; ++i) {
        if (!values_[i]) {
            rt.fail_type(function_ + "() missing 1 required positional argument: '" +
                         std::string(names.begin()[i]) + "'");
            return;
        }
    }
}

BigInt Parameters::integer(std::size_t i, BigInt otherwise) {
    if (!has(i) || rt_.failed()) {
        return otherwise;
    }
    if (values_[i]->is(Kind::Undefined)) {
        rt_.fail_undefined(*values_[i]);
        return otherwise;
    }
    if (!values_[i]->is_integral()) {
        rt_.fail_type("'" + type_name(*values_[i]) +
                      "' object cannot be interpreted as an integer");
        return otherwise;
    }
    return values_[i]->as_int();
}

const Text* Parameters::string(std::size_t i) {
    if (rt_.failed() || !has(i)) {
        return nullptr;
    }
    if (!values_[i]->is_string()) {
        rt_.fail_type(function_ + "() expected a str, not '" + type_name(*values_[i]) + "'");
        return nullptr;
    }
    return &values_[i]->text();
}

}  // namespace terrace::jinja
