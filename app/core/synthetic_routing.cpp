// How often a synthetic router chooses each expert: found by playing the router on random rows.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <vector>

#include "app/core/synthetic_folder.h"
#include "app/core/synthetic_values.h"

namespace terrace::app {

namespace {

constexpr int kRows = 2048;
constexpr int kRounds = 400;

/// Scores of random rows. A normed row has unit mean square and a synthetic router row unit gain,
/// times 1.5, so logits are close to normal with deviation 1.5; twelve uniform values make one.
std::vector<float> randomScores(const std::string& name, std::size_t nExperts) {
    SyntheticValues values(name + "#routing");
    std::vector<float> scores(static_cast<std::size_t>(kRows) * nExperts);
    for (float& s : scores) {
        double sum = 0;
        for (int i = 0; i < 12; ++i) {
            sum += values.next();
        }
        s = static_cast<float>(1.0 / (1.0 + std::exp(-1.5 * sum)));
    }
    return scores;
}

/// Wanted uses per row of every expert: a popularity for each rank, ranks shuffled by the name; no
/// expert can be used more than once a row.
std::vector<double> wantedUses(const SyntheticSpec& spec, const std::string& name, std::size_t n) {
    std::vector<double> popularity(n);
    for (std::size_t r = 0; r < n; ++r) {
        popularity[r] = std::pow(static_cast<double>(r + 1), -spec.routing.zipfExponent);
    }
    SyntheticValues values(name + "#ranks");
    for (std::size_t i = n - 1; i > 0; --i) {
        const auto j = static_cast<std::size_t>((values.next() + 0.5) * static_cast<double>(i + 1));
        std::swap(popularity[i], popularity[std::min(j, i)]);
    }
    const auto k = static_cast<double>(spec.num_experts_per_tok);
    for (int round = 0; round < 50; ++round) {
        const double sum = std::accumulate(popularity.begin(), popularity.end(), 0.0);
        for (double& p : popularity) {
            p = std::min(p * k / sum, 0.98);
        }
    }
    return popularity;
}

/// Share of its experts that a row has in common with another whose logits have this correlation.
double overlapAt(double correlation, std::size_t nExperts, std::size_t k) {
    SyntheticValues values("overlap");
    const auto normal = [&] {
        double sum = 0;
        for (int i = 0; i < 12; ++i) {
            sum += values.next();
        }
        return sum;
    };
    const auto best = [&](std::vector<double>& logits) {
        std::vector<std::size_t> order(nExperts);
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k),
                          order.end(),
                          [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
        order.resize(k);
        std::sort(order.begin(), order.end());
        return order;
    };
    constexpr int kPairs = 400;
    std::size_t common = 0;
    std::vector<double> a(nExperts);
    std::vector<double> b(nExperts);
    for (int pair = 0; pair < kPairs; ++pair) {
        for (std::size_t e = 0; e < nExperts; ++e) {
            a[e] = normal();
            b[e] = correlation * a[e] + std::sqrt(1 - correlation * correlation) * normal();
        }
        const std::vector<std::size_t> first = best(a);
        const std::vector<std::size_t> second = best(b);
        std::vector<std::size_t> both;
        std::set_intersection(first.begin(), first.end(), second.begin(), second.end(),
                              std::back_inserter(both));
        common += both.size();
    }
    return static_cast<double>(common) / (kPairs * static_cast<double>(k));
}

}  // namespace

TopicShape topicShape(const SyntheticSpec& spec) {
    constexpr double kStay = 0.875;
    const auto n = static_cast<std::size_t>(spec.n_routed_experts);
    const auto k = static_cast<std::size_t>(spec.num_experts_per_tok);
    const double chance = static_cast<double>(k) / static_cast<double>(n);
    const double wanted = (*spec.routing.overlap - (1 - kStay) * chance) / kStay;
    double low = 0.0;
    double high = 0.9999;
    for (int i = 0; i < 14; ++i) {
        const double middle = (low + high) / 2;
        (overlapAt(middle, n, k) < wanted ? low : high) = middle;
    }
    TopicShape shape;
    shape.correlation = (low + high) / 2;
    const double topics = static_cast<double>(spec.vocab_size) / kTopicTokens;
    // The pull that makes the topic's tokens together as likely as kStay asks, against the noise
    // of all other rows (rows of lm_head have a gain of 3).
    const double advantage = std::log(topics * kStay / (1 - kStay));
    shape.headPull = advantage / (3.0 * std::sqrt(std::max(shape.correlation, 1e-3) *
                                                  static_cast<double>(spec.hidden_size)));
    return shape;
}

void shapeRouting(const SyntheticSpec& spec, const std::string& name, std::span<float> bias) {
    if (spec.routing.zipfExponent <= 0) {
        return;
    }
    const std::size_t n = bias.size();
    const auto k = static_cast<std::size_t>(spec.num_experts_per_tok);
    const std::vector<float> scores = randomScores(name, n);
    const std::vector<double> wanted = wantedUses(spec, name, n);
    std::vector<double> shift(n, 0.0);
    std::vector<double> used(n);
    std::vector<std::size_t> order(n);
    for (int round = 0; round < kRounds; ++round) {
        std::fill(used.begin(), used.end(), 0.0);
        for (int row = round % 4; row < kRows; row += 4) {
            const float* s = scores.data() + static_cast<std::size_t>(row) * n;
            std::iota(order.begin(), order.end(), std::size_t{0});
            std::nth_element(
                order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k - 1), order.end(),
                [&](std::size_t a, std::size_t b) { return s[a] + shift[a] > s[b] + shift[b]; });
            for (std::size_t i = 0; i < k; ++i) {
                used[order[i]] += 4.0 / kRows;
            }
        }
        // Multiplicative steps that shrink: popular experts need to move far, rare ones finely.
        const double step = 0.2 / (1.0 + 0.02 * round);
        for (std::size_t e = 0; e < n; ++e) {
            shift[e] += step * std::log((wanted[e] + 0.002) / (used[e] + 0.002));
        }
    }
    for (std::size_t e = 0; e < n; ++e) {
        bias[e] = static_cast<float>(6.9 + shift[e]);
    }
}

}  // namespace terrace::app
