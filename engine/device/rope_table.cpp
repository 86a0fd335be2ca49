#include "engine/device/rope_table.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <string>

#include "engine/device/binary64.h"

namespace terrace {

namespace {

constexpr double kPi = 0x1.921fb54442d18p+1;

/// binary64::sin_cos holds below this angle, and f_0 is 1.
constexpr std::int64_t kMostPositions = std::int64_t{1} << 24;

/// The pair at which a wave makes `turns` turns within the original positions.
double turning_pair(double turns, double theta, double dims, double original_positions) {
    return dims * binary64::ln(original_positions / (2 * kPi * turns)) / (2 * binary64::ln(theta));
}

void stretch(std::vector<double>& f, double theta, double dims, const Yarn& yarn) {
    double low = turning_pair(yarn.beta_fast, theta, dims, yarn.original_positions);
    double high = turning_pair(yarn.beta_slow, theta, dims, yarn.original_positions);
    if (yarn.ends == YarnEnds::Whole) {
        low = std::floor(low);
        high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, dims - 1);
    if (low == high) {
        high = high + 0.001;
    }
    for (std::size_t j = 0; j < f.size(); ++j) {
        const double r = std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0);
        f[j] = f[j] * (1 - r) + (f[j] / yarn.factor) * r;
    }
}

/// What cosines and sines are multiplied by before they are rounded.
double amplitude(const Yarn& yarn) {
    if (yarn.attention_factor) {
        return *yarn.attention_factor;
    }
    return yarn_m(yarn.mscale, yarn.factor) / yarn_m(yarn.mscale_all_dim, yarn.factor);
}

Error no_table(std::string found) {
    return Error{ErrorCode::Unsupported,
                 "rotary positions need an even number of dimensions above 0, a theta above 1, at "
                 "most 16777216 positions and finite YaRN numbers; found " +
                     std::move(found),
                 "", "compare config.json with the publisher's"};
}

bool usable(const Yarn& yarn) {
    const double factors[] = {yarn.mscale, yarn.mscale_all_dim, yarn.attention_factor.value_or(1)};
    const double positives[] = {yarn.factor, yarn.original_positions, yarn.beta_fast,
                                yarn.beta_slow};
    return std::all_of(std::begin(factors), std::end(factors),
                       [](double x) { return std::isfinite(x); }) &&
           std::all_of(std::begin(positives), std::end(positives),
                       [](double x) { return std::isnormal(x) && x > 0 && x < 1e12; });
}

}  // namespace

double yarn_m(double c, double factor) {
    return factor <= 1 ? 1.0 : 0.1 * c * binary64::ln(factor) + 1;
}

std::vector<double> rope_frequencies(double theta,
                                     std::int64_t dims,
                                     const std::optional<Yarn>& yarn) {
    const auto d = static_cast<double>(dims);
    std::vector<double> f(static_cast<std::size_t>(dims / 2));
    for (std::size_t j = 0; j < f.size(); ++j) {
        f[j] = binary64::pow(theta, -(2 * static_cast<double>(j) / d));
    }
    if (yarn) {
        stretch(f, theta, d, *yarn);
    }
    return f;
}

float attention_scale(std::int64_t dim, const std::optional<Yarn>& yarn) {
    double scale = 1 / std::sqrt(static_cast<double>(dim));
    if (yarn) {
        const double m = yarn_m(yarn->mscale_all_dim, yarn->factor);
        scale = scale * (m * m);
    }
    return static_cast<float>(scale);
}

Result<RopeTable> RopeTable::make(double theta,
                                  std::int64_t dims,
                                  std::int64_t n_positions,
                                  const std::optional<Yarn>& yarn) {
    if (dims <= 0 || dims % 2 != 0 || dims > 65536 || n_positions < 0 ||
        n_positions > kMostPositions || !std::isfinite(theta) || !(theta > 1) ||
        (yarn && !usable(*yarn))) {
        return no_table(std::to_string(dims) + " dimensions, theta " + std::to_string(theta) +
                        ", " + std::to_string(n_positions) + " positions" +
                        (yarn ? ", YaRN factor " + std::to_string(yarn->factor) : ""));
    }
    try {
        const std::vector<double> f = rope_frequencies(theta, dims, yarn);
        const double times = yarn ? amplitude(*yarn) : 1.0;
        RopeTable table;
        table.dims = dims;
        table.cos.resize(static_cast<std::size_t>(n_positions) * f.size());
        table.sin.resize(table.cos.size());
        std::size_t at = 0;
        for (std::int64_t p = 0; p < n_positions; ++p) {
            for (const double frequency : f) {
                const auto [s, c] = binary64::sin_cos(static_cast<double>(p) * frequency);
                table.cos[at] = static_cast<float>(c * times);
                table.sin[at] = static_cast<float>(s * times);
                ++at;
            }
        }
        return table;
    } catch (const std::bad_alloc&) {
        return Error{ErrorCode::OutOfMemory,
                     "no memory for the rotary tables of " + std::to_string(n_positions) +
                         " positions (" + std::to_string(n_positions * dims / 1024 * 4) + " KiB)",
                     "", "ask for a shorter context"};
    }
}

}  // namespace terrace
