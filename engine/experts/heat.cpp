#include "engine/experts/heat.h"

#include <cmath>
#include <limits>

#include "engine/device/check.h"

namespace terrace {

double score_at(const ExpertHeat& heat, std::int64_t clock, double half_life) {
    const double age = static_cast<double>(clock - heat.t_last);
    return heat.heat * std::exp2(-age / half_life);
}

ExpertHeat heat_after_use(const ExpertHeat& heat,
                          std::int64_t clock,
                          std::int64_t n_rows,
                          double half_life) {
    return {score_at(heat, clock, half_life) + static_cast<double>(n_rows), clock};
}

double heat_order(const ExpertHeat& heat, double half_life) {
    if (heat.heat <= 0.0) {
        return -std::numeric_limits<double>::infinity();
    }
    return std::log2(heat.heat) + static_cast<double>(heat.t_last) / half_life;
}

std::int32_t choose_victim(const VictimCandidates& candidates) {
    const std::size_t n = candidates.eligible.size();
    CHECK(candidates.order.size() == n && candidates.t_last.size() == n);
    CHECK(candidates.layer.size() == n && candidates.expert.size() == n);
    const auto before = [&candidates](std::size_t a, std::size_t b) {
        if (candidates.order[a] != candidates.order[b]) {
            return candidates.order[a] < candidates.order[b];
        }
        if (candidates.t_last[a] != candidates.t_last[b]) {
            return candidates.t_last[a] < candidates.t_last[b];
        }
        if (candidates.layer[a] != candidates.layer[b]) {
            return candidates.layer[a] < candidates.layer[b];
        }
        return candidates.expert[a] < candidates.expert[b];
    };
    std::size_t best = n;
    for (std::size_t i = 0; i < n; ++i) {
        if (candidates.eligible[i] != 0 && (best == n || before(i, best))) {
            best = i;
        }
    }
    return best == n ? -1 : static_cast<std::int32_t>(best);
}

bool admits(double newcomer_order, double victim_order) {
    constexpr double kLog2AdmissionFactor = 0.32192809488736235;  // log2(kAdmissionFactor)
    return newcomer_order > victim_order + kLog2AdmissionFactor;
}

}  // namespace terrace
