// The constants of rotary positions (docs/arithmetic.md 2): frequencies, plain and YaRN, the
// tables of cosines and sines, and the scales of attention. Computed once, when a model opens.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/device/result.h"

namespace terrace {

/// Whether the ends of YaRN's ramp are rounded to whole dimensions.
enum class YarnEnds : std::uint8_t { Whole, Fractional };

/// YaRN's stretching of the positions, as config.json gives it.
struct Yarn {
    double factor = 1.0;
    double original_positions = 4096;
    double beta_fast = 32;
    double beta_slow = 1;
    double mscale = 1;
    double mscale_all_dim = 0;
    std::optional<double> attention_factor;  ///< cos and sin times this instead of the mscales
    YarnEnds ends = YarnEnds::Whole;
};

/// YaRN's m(c) = 0.1 * c * ln(factor) + 1, or 1 if factor <= 1.
[[nodiscard]] double yarn_m(double c, double factor);

/// f_j of every pair, dims / 2 of them, in binary64; what the table is computed from.
/// `dims` even and above 0, theta above 1.
[[nodiscard]] std::vector<double> rope_frequencies(double theta,
                                                   std::int64_t dims,
                                                   const std::optional<Yarn>& yarn);

/// 1 / sqrt(dim) in binary64, with YaRN times m(mscale_all_dim) twice, rounded once.
[[nodiscard]] float attention_scale(std::int64_t dim, const std::optional<Yarn>& yarn = {});

/// Cosines and sines of every position. Immutable after construction; 8 bytes a pair and position.
struct RopeTable {
    std::int64_t dims = 0;
    std::vector<float> cos;  ///< [n_positions, dims / 2]
    std::vector<float> sin;  ///< [n_positions, dims / 2]

    /// Errors: Unsupported for numbers that have no table, OutOfMemory.
    static Result<RopeTable> make(double theta,
                                  std::int64_t dims,
                                  std::int64_t n_positions,
                                  const std::optional<Yarn>& yarn = {});
};

}  // namespace terrace
