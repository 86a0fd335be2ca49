// Which experts are worth their memory: aged use counts, the victim, and who may take its place
// (docs/tiers.md 3). Pure functions over arrays, so that policy is tested without any mechanism.
#pragma once

#include <cstdint>
#include <span>

namespace terrace {

/// Aged use count of one expert. The clock counts tokens; a prefill chunk of P rows advances it by
/// P before its experts are used.
struct ExpertHeat {
    double heat = 0.0;        ///< at t_last
    std::int64_t t_last = 0;  ///< clock of the last use
};

/// A newcomer must beat the victim's score by this factor, or two experts of like heat would
/// replace each other for ever.
inline constexpr double kAdmissionFactor = 1.25;

/// Score at `clock`: heat * 2^-((clock - t_last) / half_life).
[[nodiscard]] double score_at(const ExpertHeat& heat, std::int64_t clock, double half_life);

/// Heat after a use by n_rows rows at `clock`: score_at(clock) + n_rows.
[[nodiscard]] ExpertHeat heat_after_use(const ExpertHeat& heat,
                                        std::int64_t clock,
                                        std::int64_t n_rows,
                                        double half_life);

/// log2(score at clock 0). All scores decay at one rate, so this number orders experts as their
/// scores do at any clock, and it changes only when the expert is used. -infinity: never used.
[[nodiscard]] double heat_order(const ExpertHeat& heat, double half_life);

/// The candidates of one choice, one entry a slot; all spans have the same length.
struct VictimCandidates {
    std::span<const std::uint8_t> eligible;  ///< not 0: may be chosen
    std::span<const double> order;           ///< heat_order of the expert in the slot
    std::span<const std::int64_t> t_last;
    std::span<const std::int32_t> layer;
    std::span<const std::int32_t> expert;
};

/// Index of the smallest (order, t_last, layer, expert) among the eligible; -1: none is.
[[nodiscard]] std::int32_t choose_victim(const VictimCandidates& candidates);

/// True when an expert may take the victim's place: its score > kAdmissionFactor * the victim's.
[[nodiscard]] bool admits(double newcomer_order, double victim_order);

}  // namespace terrace
