#include "engine/generate/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "engine/device/binary64.h"
#include "engine/device/check.h"
#include "engine/device/philox.h"

namespace terrace {

namespace {

constexpr double kGreedyBelow = 0x1p-10;
constexpr double kNever = -std::numeric_limits<double>::infinity();

/// Larger logits first, then smaller ids: true when a stands behind b.
constexpr auto ranks_after = [](const auto& a, const auto& b) {
    return a.logit < b.logit || (a.logit == b.logit && a.id > b.id);
};

/// A probability as an integer, so that sums of it need no order.
std::uint64_t mass(double p) {
    return static_cast<std::uint64_t>(std::floor(p * 0x1p40));
}

}  // namespace

Sampler::Sampler(SamplingSettings settings, std::vector<std::uint8_t> candidates)
    : settings_(std::move(settings)), candidates_(std::move(candidates)) {}

std::int32_t Sampler::draw(std::span<const float> logits,
                           std::int64_t index,
                           std::span<const std::int32_t> context) {
    collect(logits, context);
    if (settings_.temperature < kGreedyBelow) {
        const auto best = std::max_element(adjusted_.begin(), adjusted_.end());
        return static_cast<std::int32_t>(best - adjusted_.begin());
    }
    keep_probable();
    return race(index);
}

/// Biased and penalised logits of every candidate, -inf for ids that cannot be drawn.
void Sampler::collect(std::span<const float> logits, std::span<const std::int32_t> context) {
    CHECK(logits.size() == candidates_.size());
    adjusted_.resize(logits.size());
    for (std::size_t id = 0; id < logits.size(); ++id) {
        adjusted_[id] = candidates_[id] != 0 ? static_cast<double>(logits[id]) : kNever;
    }
    for (const auto& [id, bias] : settings_.logit_bias) {
        if (id >= 0 && static_cast<std::size_t>(id) < adjusted_.size()) {
            adjusted_[static_cast<std::size_t>(id)] += bias;
        }
    }
    if (settings_.repetition_penalty == 1.0 && settings_.frequency_penalty == 0.0 &&
        settings_.presence_penalty == 0.0) {
        return;
    }
    const auto window = static_cast<std::size_t>(settings_.penalty_window);
    if (window != 0 && context.size() > window) {
        context = context.last(window);
    }
    std::map<std::int32_t, int> counts;
    for (const std::int32_t id : context) {
        ++counts[id];
    }
    for (const auto& [id, count] : counts) {
        if (id < 0 || static_cast<std::size_t>(id) >= adjusted_.size()) {
            continue;
        }
        double l = adjusted_[static_cast<std::size_t>(id)];
        l = l > 0 ? l / settings_.repetition_penalty : l * settings_.repetition_penalty;
        l = l - (count * settings_.frequency_penalty + settings_.presence_penalty);
        adjusted_[static_cast<std::size_t>(id)] = l;
    }
}

/// Ranks the candidates and drops what top-k, top-p and min-p exclude.
void Sampler::keep_probable() {
    ranked_.clear();
    for (std::size_t id = 0; id < adjusted_.size(); ++id) {
        if (adjusted_[id] != kNever) {
            ranked_.push_back(
                {adjusted_[id] / settings_.temperature, 0.0, static_cast<std::int32_t>(id)});
        }
    }
    const double best = std::max_element(ranked_.begin(), ranked_.end(), ranks_after)->logit;
    const auto keep = static_cast<std::size_t>(settings_.top_k);
    if (keep != 0 && keep < ranked_.size()) {
        std::nth_element(ranked_.begin(), ranked_.begin() + static_cast<std::ptrdiff_t>(keep),
                         ranked_.end(),
                         [](const Candidate& a, const Candidate& b) { return ranks_after(b, a); });
        ranked_.resize(keep);
    }
    for (Candidate& c : ranked_) {
        c.p = binary64::exp(c.logit - best);
    }
    std::erase_if(ranked_, [](const Candidate& c) { return c.p == 0.0; });
    if (settings_.top_p < 1.0) {
        keep_mass();
    }
    std::erase_if(ranked_, [&](const Candidate& c) { return c.p < settings_.min_p; });
}

/// Keeps the shortest prefix of the ranking that holds top_p of the mass. Only the prefix is
/// ordered: a heap gives it up one by one, and the rest of a large vocabulary stays unsorted.
void Sampler::keep_mass() {
    std::uint64_t all = 0;
    for (const Candidate& c : ranked_) {
        all += mass(c.p);
    }
    const double wanted = settings_.top_p * static_cast<double>(all);
    std::make_heap(ranked_.begin(), ranked_.end(), ranks_after);
    std::uint64_t sum = 0;
    auto end = ranked_.end();
    do {
        std::pop_heap(ranked_.begin(), end, ranks_after);
        --end;
        sum += mass(end->p);
    } while (end != ranked_.begin() && static_cast<double>(sum) < wanted);
    ranked_.erase(ranked_.begin(), end);
}

std::int32_t Sampler::race(std::int64_t index) const {
    double best_time = std::numeric_limits<double>::infinity();
    std::int32_t best_id = ranked_.front().id;
    for (const Candidate& c : ranked_) {
        const std::array<std::uint32_t, 4> words = philox4x32(
            {static_cast<std::uint32_t>(settings_.seed),
             static_cast<std::uint32_t>(settings_.seed >> 32)},
            {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(c.id) >> 2, 1, 0});
        const double u =
            (static_cast<double>(words[static_cast<std::size_t>(c.id) & 3]) + 0.5) * 0x1p-32;
        const double time = -binary64::ln(u) / c.p;
        if (time < best_time || (time == best_time && c.id < best_id)) {
            best_time = time;
            best_id = c.id;
        }
    }
    return best_id;
}

}  // namespace terrace
