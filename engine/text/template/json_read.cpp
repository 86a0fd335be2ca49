// Requests are JSON text; here they become values, with every leaf marked as the user's. The
// order of keys is kept, and a repeated key keeps its first place and takes its last value.
#include <charconv>
#include <nlohmann/json.hpp>

#include "engine/text/template/operations.h"

namespace terrace::jinja {

namespace {

/// How deep a request may nest; deeper values could not be printed anyway.
constexpr std::size_t kMaxNesting = 200;

/// Receives the events of the JSON reader, which does not recurse, and builds values.
class Builder final : public nlohmann::json_sax<nlohmann::json> {
public:
    explicit Builder(Runtime& rt) : rt_(rt) {}

    bool null() override { return put(Value::none()); }

    bool boolean(bool value) override { return put(Value::boolean(value)); }

    bool number_integer(number_integer_t value) override { return put(Value::of_int(value)); }

    bool number_unsigned(number_unsigned_t value) override {
        return put(Value::of_int(static_cast<BigInt>(value)));
    }

    bool number_float(number_float_t value, const string_t& text) override {
        // An integer past 64 bits arrives here; Python reads it exactly, so do we up to 128 bits.
        if (text.find_first_of(".eE") != string_t::npos) {
            return put(Value::of_float(value));
        }
        return put_big_integer(text);
    }

    bool string(string_t& value) override { return put(rt_.text(value, Origin::User)); }

    bool binary(binary_t&) override { return false; }

    bool start_object(std::size_t) override { return open(Kind::Dict); }

    bool key(string_t& value) override {
        open_.back().key = rt_.text(value, Origin::User);
        return !rt_.failed();
    }

    bool end_object() override { return close(); }

    bool start_array(std::size_t) override { return open(Kind::List); }

    bool end_array() override { return close(); }

    bool parse_error(std::size_t,
                     const std::string&,
                     const nlohmann::detail::exception& e) override {
        // The reader puts its own name in brackets in front.
        const std::string_view what = e.what();
        const std::size_t bracket = what.find("] ");
        rt_.fail(kValueError, "expected JSON text: " + std::string(bracket == std::string_view::npos
                                                                       ? what
                                                                       : what.substr(bracket + 2)));
        return false;
    }

    Value result;

private:
    struct Level {
        Value container;
        Value key;
    };

    bool put(Value value) {
        value.origin = Origin::User;
        if (open_.empty()) {
            result = value;
        } else if (open_.back().container.is(Kind::Dict)) {
            open_.back().container.as<Dict>().set(rt_, open_.back().key, value);
        } else {
            rt_.charge(sizeof(Value));
            open_.back().container.as<Sequence>().items.push_back(value);
        }
        return !rt_.failed();
    }

    bool put_big_integer(const std::string& text) {
        Value value = Value::of_int(0);
        for (const char digit : text) {
            if (digit != '-') {
                value = arithmetic(rt_, Arithmetic::Multiply, value, Value::of_int(10));
                value = arithmetic(rt_, Arithmetic::Add, value, Value::of_int(digit - '0'));
            }
        }
        return put(text.front() == '-' ? negate(rt_, value) : value);
    }

    bool open(Kind kind) {
        if (open_.size() >= kMaxNesting) {
            rt_.fail_limit("a request that nests deeper than " + std::to_string(kMaxNesting));
            return false;
        }
        open_.push_back({kind == Kind::Dict ? rt_.new_dict() : rt_.list({}), Value{}});
        return !rt_.failed();
    }

    bool close() {
        const Value done = open_.back().container;
        open_.pop_back();
        return put(done);
    }

    Runtime& rt_;
    std::vector<Level> open_;
};

}  // namespace

Value from_json(Runtime& rt, std::string_view json) {
    Builder builder(rt);
    nlohmann::json::sax_parse(json.begin(), json.end(), &builder);
    return builder.result;
}

}  // namespace terrace::jinja
