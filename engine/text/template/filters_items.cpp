// Filters of lists and dicts: order, counting, joining, grouping.
#include <algorithm>
#include <array>

#include "engine/text/template/filters.h"
#include "engine/text/template/text_operations.h"

namespace terrace::jinja {

namespace {

Value list(Runtime& rt, const Value& subject, const Args& args) {
    const Parameters none(rt, "list", args, {});
    return rt.list(collect(rt, subject));
}

Value length_filter(Runtime& rt, const Value& subject, const Args& args) {
    const Parameters none(rt, "length", args, {});
    return Value::of_int(static_cast<BigInt>(length(rt, subject).value_or(0)));
}

Value first(Runtime& rt, const Value& subject, const Args& args) {
    const Parameters none(rt, "first", args, {});
    Value item;
    if (walk(rt, subject)(rt, item)) {
        return item;
    }
    return rt.failed() ? Value{} : rt.undefined("No first item, sequence was empty.");
}

Value last(Runtime& rt, const Value& subject, const Args& args) {
    const Parameters none(rt, "last", args, {});
    if (subject.is(Kind::Iterator)) {
        return rt.fail_type("'" + type_name(subject) + "' object is not reversible");
    }
    const std::vector<Value> items = collect(rt, subject);
    if (!items.empty()) {
        return items.back();
    }
    return rt.failed() ? Value{} : rt.undefined("No last item, sequence was empty.");
}

Value iterator_over(Runtime& rt, std::vector<Value> items, const char* name) {
    const Value held = rt.list(std::move(items));
    Value iterator = rt.iterator([held, i = std::size_t{0}](Runtime&, Value& out) mutable {
        if (i >= held.items().size()) {
            return false;
        }
        out = held.items()[i++];
        return true;
    });
    iterator.as<Iterator>().type_name = name;
    return iterator;
}

Value reverse(Runtime& rt, const Value& subject, const Args& args) {
    const Parameters none(rt, "reverse", args, {});
    if (subject.is_string()) {
        SliceBounds bounds;
        bounds.step = Value::of_int(-1);
        return get_slice(rt, subject, bounds);
    }
    if (!is_iterable(subject)) {
        return rt.fail(kFilterArgumentError, "argument must be iterable");
    }
    std::vector<Value> items = collect(rt, subject);
    std::reverse(items.begin(), items.end());
    return subject.is(Kind::Iterator) ? rt.list(std::move(items))
                                      : iterator_over(rt, std::move(items), "list_reverseiterator");
}

Value join_filter(Runtime& rt, const Value& subject, const Args& args) {
    Parameters in(rt, "sync_do_join", args, {"d", "attribute"});
    const Value separator = in.has(0) ? to_text(rt, in.get(0)) : rt.literal("");
    std::vector<Value> items = collect(rt, subject);
    if (in.some(1)) {
        const AttributePath path(rt, in.get(1));
        for (Value& item : items) {
            item = path.read(rt, item);
        }
    }
    return join(rt, separator.text(), items);
}

/// Sorts by key(item), all keys computed once.
void sort_by(Runtime& rt,
             std::vector<Value>& items,
             const std::function<Value(const Value&)>& key,
             const Value& reverse) {
    std::vector<Value> pairs;
    for (const Value& item : items) {
        pairs.push_back(rt.tuple({key(item), item}));
    }
    const bool downwards = truthy(reverse);
    // Python keeps equal items in their order even when it sorts downwards.
    if (downwards) {
        std::reverse(pairs.begin(), pairs.end());
    }
    stable_sort(rt, pairs, [&rt](const Value& a, const Value& b) {
        return less(rt, a.items()[0], b.items()[0]);
    });
    if (downwards) {
        std::reverse(pairs.begin(), pairs.end());
    }
    for (std::size_t i = 0; i < items.size(); ++i) {
        items[i] = pairs[i].items()[1];
    }
}

Value case_key(Runtime& rt, const Parameters& in, std::size_t case_sensitive, const Value& value) {
    return in.truth(case_sensitive, false) ? value : ignore_case(rt, value);
}

Value sort(Runtime& rt, const Value& subject, const Args& args) {
    const Parameters in(rt, "do_sort", args, {"reverse", "case_sensitive", "attribute"});
    std::vector<Value> items = collect(rt, subject);
    const Value attribute = in.get(2, Value::none());
    // Several attributes, separated by commas, sort one after the other.
    std::vector<AttributePath> paths;
    if (attribute.is_string()) {
        const Value comma = rt.literal(",");
        for (const Value& part : split(rt, attribute.text(), &comma.text(), -1, From::Left)) {
            paths.emplace_back(rt, part);
        }
    } else {
        paths.emplace_back(rt, attribute);
    }
    const auto key = [&](const Value& item) {
        std::vector<Value> keys;
        for (const AttributePath& path : paths) {
            keys.push_back(case_key(rt, in, 1, path.read(rt, item)));
        }
        return rt.list(std::move(keys));  // a list even of one: undefined keys are equal in it
    };
    sort_by(rt, items, key, in.get(0, Value::boolean(false)));
    return rt.list(std::move(items));
}

Value dictsort(Runtime& rt, const Value& subject, const Args& args) {
    const Parameters in(rt, "do_dictsort", args, {"case_sensitive", "by", "reverse"});
    if (!subject.is(Kind::Dict)) {
        return subject.is(Kind::Undefined)
                   ? rt.fail_undefined(subject)
                   : rt.fail("AttributeError",
                             "'" + type_name(subject) + "' object has no attribute 'items'");
    }
    std::size_t place = 0;
    if (in.has(1)) {
        const std::string by = to_text(rt, in.get(1)).text().bytes;
        if (by != "key" && by != "value") {
            return rt.fail(kFilterArgumentError,
                           "You can only sort by either \"key\" or \"value\"");
        }
        place = by == "value" ? 1 : 0;
    }
    std::vector<Value> items;
    for (const auto& [key, value] : subject.dict().entries) {
        items.push_back(rt.tuple({key, value}));
    }
    const auto key = [&](const Value& item) { return case_key(rt, in, 0, item.items()[place]); };
    sort_by(rt, items, key, in.get(2, Value::boolean(false)));
    return rt.list(std::move(items));
}

Value items_filter(Runtime& rt, const Value& subject, const Args& args) {
    const Parameters none(rt, "items", args, {});
    return rt.iterator([subject, i = std::size_t{0}](Runtime& r, Value& out) mutable {
        if (subject.is(Kind::Undefined)) {
            return false;
        }
        if (!subject.is(Kind::Dict)) {
            r.fail_type("Can only get item pairs from a mapping.");
            return false;
        }
        if (i >= subject.dict().entries.size()) {
            return false;
        }
        const auto& [key, value] = subject.dict().entries[i++];
        out = r.tuple({key, value});
        return true;
    });
}

enum class Extreme { Min, Max };

template <Extreme which>
Value extreme(Runtime& rt, const Value& subject, const Args& args) {
    const Parameters in(rt, "min or max", args, {"case_sensitive", "attribute"});
    const AttributePath path(rt, in.get(1, Value::none()));
    const std::vector<Value> items = collect(rt, subject);
    if (items.empty() && !rt.failed()) {
        return rt.undefined("No aggregated item, sequence was empty.");
    }
    Value best;
    Value best_key;
    for (std::size_t i = 0; i < items.size() && !rt.failed(); ++i) {
        const Value key = case_key(rt, in, 0, path.read(rt, items[i]));
        if (i == 0 || (which == Extreme::Min ? less(rt, key, best_key) : less(rt, best_key, key))) {
            best = items[i];
            best_key = key;
        }
    }
    return best;
}

Value sum(Runtime& rt, const Value& subject, const Args& args) {
    const Parameters in(rt, "sum", args, {"attribute", "start"});
    const AttributePath path(rt, in.get(0, Value::none()));
    Value total = in.get(1, Value::of_int(0));
    if (total.is_string()) {
        return rt.fail_type("sum() can't sum strings [use ''.join(seq) instead]");
    }
    for (const Value& item : collect(rt, subject)) {
        total = arithmetic(rt, Arithmetic::Add, total, path.read(rt, item));
    }
    return total;
}

Value unique(Runtime& rt, const Value& subject, const Args& args) {
    const Parameters in(rt, "do_unique", args, {"case_sensitive", "attribute"});
    const AttributePath path(rt, in.get(1, Value::none()));
    const Value seen = rt.new_dict();
    std::vector<Value> kept;
    for (const Value& item : collect(rt, subject)) {
        const Value key = case_key(rt, in, 0, path.read(rt, item));
        if (seen.dict().find(rt, key) == nullptr) {
            seen.as<Dict>().set(rt, key, Value::none());
            kept.push_back(item);
        }
    }
    return iterator_over(rt, std::move(kept), "generator");
}

Value batch(Runtime& rt, const Value& subject, const Args& args) {
    Parameters in(rt, "do_batch", args, {"linecount", "fill_with"}, 1);
    const BigInt size = in.integer(0, 1);
    std::vector<Value> rows;
    std::vector<Value> row;
    for (const Value& item : collect(rt, subject)) {
        if (static_cast<BigInt>(row.size()) == size) {
            rows.push_back(rt.list(std::move(row)));
            row.clear();
        }
        row.push_back(item);
    }
    if (!row.empty()) {
        while (in.some(1) && static_cast<BigInt>(row.size()) < size && rt.spend(1)) {
            row.push_back(in.get(1));
        }
        rows.push_back(rt.list(std::move(row)));
    }
    return iterator_over(rt, std::move(rows), "generator");
}

Value slice(Runtime& rt, const Value& subject, const Args& args) {
    Parameters in(rt, "sync_do_slice", args, {"slices", "fill_with"}, 1);
    const BigInt n_slices = in.integer(0, 1);
    const std::vector<Value> items = collect(rt, subject);
    if (rt.failed()) {
        return {};
    }
    if (n_slices == 0) {
        return rt.fail(kZeroDivisionError, "integer division or modulo by zero");
    }
    const BigInt n = static_cast<BigInt>(items.size());
    std::vector<Value> slices;
    std::size_t at = 0;
    for (BigInt i = 0; i < n_slices && rt.spend(1); ++i) {
        const bool longer = i < n % n_slices;
        const auto size = static_cast<std::size_t>(n / n_slices + (longer ? 1 : 0));
        std::vector<Value> part(items.begin() + static_cast<std::ptrdiff_t>(at),
                                items.begin() + static_cast<std::ptrdiff_t>(at + size));
        at += size;
        if (in.some(1) && !longer) {
            part.push_back(in.get(1));
        }
        slices.push_back(rt.list(std::move(part)));
    }
    return iterator_over(rt, std::move(slices), "generator");
}

Value groupby(Runtime& rt, const Value& subject, const Args& args) {
    const Parameters in(rt, "sync_do_groupby", args, {"attribute", "default", "case_sensitive"}, 1);
    const AttributePath path(rt, in.get(0));
    const Value otherwise = in.get(1);
    const auto raw_key = [&](const Value& item) {
        return path.read(rt, item, in.some(1) ? &otherwise : nullptr);
    };
    std::vector<Value> items = collect(rt, subject);
    const auto key = [&](const Value& item) { return case_key(rt, in, 2, raw_key(item)); };
    sort_by(rt, items, key, Value::boolean(false));
    std::vector<Value> groups;
    std::vector<Value> group;
    for (std::size_t i = 0; i < items.size() && !rt.failed(); ++i) {
        group.push_back(items[i]);
        if (i + 1 == items.size() || !equals(rt, key(items[i]), key(items[i + 1]))) {
            const Value name = raw_key(group.front());
            groups.push_back(rt.tuple({name, rt.list(std::move(group))}));
            group.clear();
        }
    }
    return rt.list(std::move(groups));
}

constexpr std::array<Filter, 18> kFilters{{
    {"batch", batch},
    {"count", length_filter},
    {"dictsort", dictsort},
    {"first", first},
    {"groupby", groupby},
    {"items", items_filter},
    {"join", join_filter},
    {"last", last},
    {"length", length_filter},
    {"list", list},
    {"max", extreme<Extreme::Max>},
    {"min", extreme<Extreme::Min>},
    {"random", nullptr},
    {"reverse", reverse},
    {"slice", slice},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique},
}};

}  // namespace

std::span<const Filter> item_filters() {
    return kFilters;
}

}  // namespace terrace::jinja
