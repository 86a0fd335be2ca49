// How often a synthetic router chooses each expert: found by playing the router on random rows.
#include <algorithm>
#include <cmath>
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

}  // namespace

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
