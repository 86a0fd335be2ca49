// The router (docs/arithmetic.md 4): logits of all experts, then the choice of a row's experts and
// their weights. It decides which experts a token reads from disk.
#include "engine/cpu/quantise8.h"
#include "engine/cpu/row_ops.h"
#include "engine/cpu/row_ops/row_work.h"
#include "engine/device/check.h"

namespace terrace::cpu {

namespace {

/// Rows whose logits are held at a time.
constexpr std::int64_t kRowBlock = 256;

/// Rows and experts of one tile of logits: the weights of a tile stay in the second cache while
/// its rows pass, so each is read once from memory for all of them.
constexpr std::int64_t kTileRows = 64;
constexpr std::int64_t kTileExperts = 8;

/// Scratch of one row, in numbers.
struct RowScratch {
    float* logits;
    float* scores;  ///< what the weights are made of
    float* choice;  ///< what the order is made of
    float* groups;

    static std::int64_t numbers(const RouterRule& rule) {
        return round_up(3 * rule.n_experts + rule.n_group, 16);
    }

    RowScratch(float* base, const RouterRule& rule)
        : logits(base),
          scores(base + rule.n_experts),
          choice(base + 2 * rule.n_experts),
          groups(base + 3 * rule.n_experts) {}
};

/// Puts `id` into the list of the best `*n` of at most `k`; the ids come ascending, so an equal
/// value goes behind.
void insert(
    const float* value, std::int32_t id, std::int64_t k, std::int32_t* list, std::int64_t* n) {
    std::int64_t at = *n;
    while (at > 0 && value[id] > value[list[at - 1]]) {
        --at;
    }
    if (at >= k) {
        return;
    }
    *n = std::min(*n + 1, k);
    for (std::int64_t i = *n - 1; i > at; --i) {
        list[i] = list[i - 1];
    }
    list[at] = id;
}

/// Largest plus second largest of a group; of a group of one, that one.
float group_score(const float* choice, std::int64_t n) {
    float first = choice[0];
    if (n == 1) {
        return first;
    }
    float second = choice[1];
    if (second > first) {
        std::swap(first, second);
    }
    for (std::int64_t i = 2; i < n; ++i) {
        if (choice[i] > first) {
            second = first;
            first = choice[i];
        } else if (choice[i] > second) {
            second = choice[i];
        }
    }
    return first + second;
}

/// Whether fewer than `kept` groups come before this one in the total order.
bool group_stays(const float* groups, std::int64_t n, std::int64_t group, std::int64_t kept) {
    std::int64_t n_before = 0;
    for (std::int64_t g = 0; g < n; ++g) {
        n_before += groups[g] > groups[group] || (g < group && groups[g] == groups[group]) ? 1 : 0;
    }
    return n_before < kept;
}

void choose(const RouterRule& rule, const RowScratch& row, std::int32_t* ids) {
    const std::int64_t size = rule.n_experts / rule.n_group;
    for (std::int64_t g = 0; rule.n_group > 1 && g < rule.n_group; ++g) {
        row.groups[g] = group_score(row.choice + g * size, size);
    }
    std::int64_t n = 0;
    for (std::int64_t g = 0; g < rule.n_group; ++g) {
        if (rule.n_group > 1 && !group_stays(row.groups, rule.n_group, g, rule.topk_group)) {
            continue;
        }
        for (std::int64_t e = g * size; e < (g + 1) * size; ++e) {
            insert(row.choice, static_cast<std::int32_t>(e), rule.top_k, ids, &n);
        }
    }
    CHECK(n == rule.top_k);
}

/// Weights of the chosen experts before they are normalised.
void weigh(const RowKernels& kernels,
           const RouterRule& rule,
           const RowScratch& row,
           const std::int32_t* ids,
           float* gates) {
    if (rule.scoring == Scoring::Sigmoid) {
        for (std::int64_t i = 0; i < rule.top_k; ++i) {
            gates[i] = row.scores[ids[i]];
        }
        return;
    }
    float largest = row.logits[0];
    for (std::int64_t e = 1; e < rule.n_experts; ++e) {
        largest = row.logits[e] > largest ? row.logits[e] : largest;
    }
    float sum = kernels.exp_sum(row.logits, largest, rule.n_experts, row.scores);
    if (rule.scoring == Scoring::TopKThenSoftmax) {
        sum = 0.0f;
        for (std::int64_t i = 0; i < rule.top_k; ++i) {
            sum = sum + row.scores[ids[i]];
        }
    }
    for (std::int64_t i = 0; i < rule.top_k; ++i) {
        gates[i] = row.scores[ids[i]] / sum;
    }
}

void normalise(const RouterRule& rule, float* gates) {
    if (rule.norm_topk) {
        float sum = 0.0f;
        for (std::int64_t i = 0; i < rule.top_k; ++i) {
            sum = sum + gates[i];
        }
        if (rule.scoring == Scoring::Sigmoid) {
            sum = sum + 1e-20f;
        }
        for (std::int64_t i = 0; i < rule.top_k; ++i) {
            gates[i] = gates[i] / sum;
        }
    }
    for (std::int64_t i = 0; i < rule.top_k; ++i) {
        gates[i] = gates[i] * rule.scaling;
    }
}

/// From logits to ids and weights of one row.
void decide(Context context,
            const RouterJob& job,
            const RouterRule& rule,
            std::int64_t r,
            const RowScratch& row,
            RowScope scope) {
    const RowKernels& kernels = row_kernels(context.isa);
    if (job.bias != nullptr && rule.scoring != Scoring::Sigmoid) {
        kernels.add(row.logits, job.bias, rule.n_experts);
    }
    if (kernels.largest_bits(row.logits, rule.n_experts) >= kNotFiniteBits) {
        report_fault(context, scope, r, FaultSite::Router);
        clear_not_finite(kernels, row.logits, rule.n_experts);
    }
    RowScratch order = row;
    if (rule.scoring == Scoring::Sigmoid) {
        kernels.sigmoid(row.logits, rule.n_experts, row.scores);
        std::copy(row.scores, row.scores + rule.n_experts, row.choice);
        if (job.bias != nullptr) {
            kernels.add(row.choice, job.bias, rule.n_experts);
        }
    } else {
        order.choice = row.logits;
    }
    std::int32_t* ids = job.ids + r * rule.top_k;
    float* gates = job.gates + r * rule.top_k;
    choose(rule, order, ids);
    weigh(kernels, rule, row, ids, gates);
    normalise(rule, gates);
}

/// Logits of rows [first, first + n_rows), each at the start of its scratch.
void all_logits(Context context,
                const RouterJob& job,
                const RouterRule& rule,
                std::int64_t first,
                std::int64_t n_rows,
                float* scratch) {
    const RowKernels& kernels = row_kernels(context.isa);
    const std::int64_t stride = RowScratch::numbers(rule);
    const std::int64_t width = job.input.width;
    const std::int64_t n_expert_tiles = (rule.n_experts + kTileExperts - 1) / kTileExperts;
    const std::int64_t n_row_tiles = (n_rows + kTileRows - 1) / kTileRows;
    const std::int64_t work = std::min(kTileRows, n_rows) * kTileExperts * width;
    for_items(context, n_expert_tiles * n_row_tiles, work, [&](std::int64_t item) {
        const std::int64_t row = item / n_expert_tiles * kTileRows;
        const std::int64_t expert = item % n_expert_tiles * kTileExperts;
        kernels.dots({job.input.values + (first + row) * job.input.stride, job.input.stride,
                      std::min(kTileRows, n_rows - row), job.weight + expert * width,
                      std::min(kTileExperts, rule.n_experts - expert), width,
                      scratch + row * stride + expert, stride});
    });
}

}  // namespace

void route(Context context, const RouterJob& job, const RouterRule& rule, RowScope scope) {
    CHECK(rule.n_group >= 1 && rule.n_experts % rule.n_group == 0);
    const std::int64_t stride = RowScratch::numbers(rule);
    const std::int64_t n_rows = job.input.n_rows;
    auto* scratch = reinterpret_cast<float*>(context.pool->scratch(
        std::min(kRowBlock, n_rows) * stride * static_cast<std::int64_t>(sizeof(float))));
    if (scratch == nullptr) {
        context.stream->fail({ErrorCode::OutOfMemory, "no memory for the scores of the experts",
                              "router", "close other programs or ask for a shorter context"});
        return;
    }
    for (std::int64_t first = 0; first < n_rows; first += kRowBlock) {
        const std::int64_t n = std::min(kRowBlock, n_rows - first);
        all_logits(context, job, rule, first, n, scratch);
        for_items(context, n, 32 * rule.n_experts, [&](std::int64_t r) {
            decide(context, job, rule, first + r, {scratch + r * stride, rule}, scope);
        });
    }
}

}  // namespace terrace::cpu
