// The global functions of the template environment.
#include <algorithm>
#include <array>
#include <cstdio>

#include "engine/text/template/operations.h"

namespace terrace::jinja {

namespace {

constexpr std::size_t kMaxRange = 100'000;

Value raise_exception(Runtime& rt, const Value&, const Args& args) {
    const Parameters in(rt, "raise_exception", args, {"message"}, 1);
    if (rt.failed()) {
        return {};
    }
    // Shown at the statement, as the reference does, not at the call inside it.
    if (rt.position.line != rt.statement.line) {
        rt.position = rt.statement;
    }
    return rt.fail(kTemplateError, to_text(rt, in.get(0)).text().bytes);
}

Value range(Runtime& rt, const Value&, const Args& args) {
    Parameters in(rt, "range", args, {"start", "stop", "step"}, 1);
    auto* made = rt.make<Range>();
    made->start = in.has(1) ? in.integer(0, 0) : 0;
    made->stop = in.has(1) ? in.integer(1, 0) : in.integer(0, 0);
    made->step = in.integer(2, 1);
    constexpr BigInt kBound = BigInt{1} << 62U;
    for (const BigInt bound : {made->start, made->stop, made->step}) {
        if (bound > kBound || bound < -kBound) {
            return rt.fail(kOverflowError, "expected bounds of a range within 62 bits");
        }
    }
    if (made->step == 0) {
        return rt.fail(kValueError, "range() arg 3 must not be zero");
    }
    if (made->size() > kMaxRange) {
        return rt.fail(kOverflowError,
                       "Range too big. The sandbox blocks ranges larger than MAX_RANGE (" +
                           std::to_string(kMaxRange) + ").");
    }
    return Value::of(Kind::Range, made);
}

void add_pairs(Runtime& rt, const Value& from, const Value& to) {
    if (from.is(Kind::Dict)) {
        for (const auto& [key, value] : from.dict().entries) {
            to.as<Dict>().set(rt, key, value);
        }
        return;
    }
    const std::vector<Value> pairs = collect(rt, from);
    for (std::size_t i = 0; i < pairs.size() && !rt.failed(); ++i) {
        const std::vector<Value> pair = collect(rt, pairs[i]);
        if (pair.size() != 2) {
            rt.fail(kValueError, "dictionary update sequence element #" + std::to_string(i) +
                                     " has length " + std::to_string(pair.size()) +
                                     "; 2 is required");
            return;
        }
        to.as<Dict>().set(rt, pair[0], pair[1]);
    }
}

Value dict(Runtime& rt, const Value&, const Args& args) {
    const Value made = rt.new_dict();
    if (args.positional.size() > 1) {
        return rt.fail_type("dict expected at most 1 argument, got " +
                            std::to_string(args.positional.size()));
    }
    if (!args.positional.empty()) {
        add_pairs(rt, args.positional[0], made);
    }
    for (const auto& [key, value] : args.named) {
        made.as<Dict>().set(rt, rt.literal(key), value);
    }
    return made;
}

Value make_namespace(Runtime& rt, const Value& self, const Args& args) {
    auto* made = rt.make<Namespace>();
    made->attributes = dict(rt, self, args);
    if (rt.failed()) {
        return {};
    }
    for (const auto& entry : made->attributes.dict().entries) {
        if (entry.first.is_string() && entry.first.text().bytes.starts_with('_')) {
            return rt.fail(kSecurityError,
                           "Chat templates cannot store underscore-prefixed attributes on a "
                           "namespace, but got " +
                               repr_plain(rt, entry.first) + ". Please rename the attribute.");
        }
    }
    return Value::of(Kind::Namespace, made);
}

Value cycler(Runtime& rt, const Value&, const Args& args) {
    if (args.positional.empty()) {
        return rt.fail(kRuntimeError, "at least one item has to be provided");
    }
    auto* made = rt.make<Cycler>();
    made->items = args.positional;
    rt.charge(made->items.size() * sizeof(Value));
    return Value::of(Kind::Cycler, made);
}

Value joiner(Runtime& rt, const Value&, const Args& args) {
    const Parameters in(rt, "joiner", args, {"sep"});
    auto* made = rt.make<Joiner>();
    made->separator = in.has(0) ? to_text(rt, in.get(0)) : rt.literal(", ");
    return Value::of(Kind::Joiner, made);
}

/// Days since 1 January 1970 of a date in the Gregorian calendar, which repeats every 400 years.
long days_from_civil(long year, long month, long day) {
    year -= month <= 2 ? 1 : 0;
    const long era = (year >= 0 ? year : year - 399) / 400;
    const long year_of_era = year - era * 400;
    const long day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    const long day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return era * 146097 + day_of_era - 719468;
}

constexpr std::array<const char*, 7> kDays{"Sunday",   "Monday", "Tuesday", "Wednesday",
                                           "Thursday", "Friday", "Saturday"};
constexpr std::array<const char*, 12> kMonths{"January",   "February", "March",    "April",
                                              "May",       "June",     "July",     "August",
                                              "September", "October",  "November", "December"};

std::string number(const char* pattern, int value) {
    std::array<char, 16> buffer{};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    std::snprintf(buffer.data(), buffer.size(), pattern, value);
#pragma GCC diagnostic pop
    return buffer.data();
}

/// One code of strftime, in the C locale; nothing when it is not known.
std::optional<std::string> time_field(const TemplateClock& at, char code, const char* two) {
    const long days = days_from_civil(at.year, at.month, at.day);
    const auto weekday = static_cast<int>(((days % 7) + 11) % 7);
    const int hour12 = at.hour % 12 == 0 ? 12 : at.hour % 12;
    const std::string day_name = kDays[static_cast<std::size_t>(weekday)];
    const std::string month_name =
        kMonths[static_cast<std::size_t>(std::clamp(at.month, 1, 12) - 1)];
    switch (code) {
        case 'Y':
            return std::to_string(at.year);
        case 'y':
            return number(two, ((at.year % 100) + 100) % 100);
        case 'm':
            return number(two, at.month);
        case 'd':
            return number(two, at.day);
        case 'e':
            return number("%2d", at.day);
        case 'H':
            return number(two, at.hour);
        case 'I':
            return number(two, hour12);
        case 'M':
            return number(two, at.minute);
        case 'S':
            return number(two, at.second);
        case 'f':
            return "000000";
        case 'p':
            return at.hour < 12 ? "AM" : "PM";
        case 'A':
            return day_name;
        case 'a':
            return day_name.substr(0, 3);
        case 'B':
            return month_name;
        case 'b':
        case 'h':
            return month_name.substr(0, 3);
        case 'j':
            return number(std::string_view(two) == "%d" ? "%d" : "%03d",
                          static_cast<int>(days - days_from_civil(at.year, 1, 1) + 1));
        case 'w':
            return number("%d", weekday);
        case 'u':
            return number("%d", weekday == 0 ? 7 : weekday);
        case 'Z':
        case 'z':
            return "";  // the clock is local time without a zone, as datetime.now() is
        case 'n':
            return "\n";
        case 't':
            return "\t";
        case '%':
            return "%";
        default:
            return std::nullopt;
    }
}

std::string_view expanded(char code) {
    switch (code) {
        case 'F':
            return "%Y-%m-%d";
        case 'T':
        case 'X':
            return "%H:%M:%S";
        case 'R':
            return "%H:%M";
        case 'D':
        case 'x':
            return "%m/%d/%y";
        case 'c':
            return "%a %b %e %H:%M:%S %Y";
        case 'r':
            return "%I:%M:%S %p";
        default:
            return {};
    }
}

std::string format_time(const TemplateClock& clock, std::string_view format) {
    std::string out;
    for (std::size_t at = 0; at < format.size(); ++at) {
        if (format[at] != '%' || at + 1 == format.size()) {
            out.push_back(format[at]);
            continue;
        }
        const std::size_t begin = at++;
        const bool bare = format[at] == '-' && at + 1 < format.size();
        at += bare ? 1 : 0;
        if (const std::string_view longer = expanded(format[at]); !longer.empty()) {
            out += format_time(clock, longer);
        } else if (const auto field = time_field(clock, format[at], bare ? "%d" : "%02d")) {
            out += *field;
        } else {
            out += format.substr(begin, at - begin + 1);
        }
    }
    return out;
}

Value strftime_now(Runtime& rt, const Value&, const Args& args) {
    Parameters in(rt, "strftime_now", args, {"format"}, 1);
    const Text* format = in.string(0);
    if (format == nullptr) {
        return {};
    }
    rt.spend(format->bytes.size());
    return rt.text(format_time(rt.clock(), format->bytes), origin_of(*format));
}

Value lipsum(Runtime& rt, const Value&, const Args&) {
    return rt.fail(kRuntimeError, "lipsum (random filler text) is not supported");
}

constexpr std::array<Method, 8> kGlobals{{{"cycler", cycler},
                                          {"dict", dict},
                                          {"joiner", joiner},
                                          {"lipsum", lipsum},
                                          {"namespace", make_namespace},
                                          {"raise_exception", raise_exception},
                                          {"range", range},
                                          {"strftime_now", strftime_now}}};

}  // namespace

std::optional<Value> find_global(Runtime& rt, std::string_view name) {
    for (const Method& global : kGlobals) {
        if (global.name == name) {
            auto* function = rt.make<Function>();
            function->name = global.name;
            function->type_name = "function";
            function->call = global.call;
            return Value::of(Kind::Function, function);
        }
    }
    return std::nullopt;
}

}  // namespace terrace::jinja
