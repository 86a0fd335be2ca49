// Drives the indexer: scores of all cached index keys for each row, and the top k of them.
#include <cstring>

#include "engine/cpu/attention.h"
#include "engine/cpu/attention/carver.h"
#include "engine/cpu/attention/index_scores.h"
#include "engine/cpu/attention/kernels.h"
#include "engine/cpu/attention/row_faults.h"
#include "engine/cpu/attention/scratch.h"
#include "engine/cpu/attention/top_k.h"
#include "engine/cpu/attention/twin.h"
#include "engine/cpu/quantise8.h"
#include "engine/cpu/thread_pool.h"
#include "engine/device/check.h"

namespace terrace::cpu {

namespace {

constexpr std::int64_t kKeysPerTask = 2048;
constexpr std::int64_t kTileKeys = 16;

/// What a row's scores are computed from.
struct RowQuery {
    PairQueries queries;       ///< of all heads
    float* weights = nullptr;  ///< [heads, padded]
};

/// One call of index_select. Lives on the engine thread's stack; const members are called from
/// every pool thread.
class Indexer {
public:
    Indexer(Context context, const IndexSelect& job, RowScope scope)
        : context_(context),
          job_(job),
          scope_(scope),
          kernels_(attention_kernels(context.isa)),
          groups_(round_up(job.cache->dim, kQuantGroup) / kQuantGroup),
          heads_(round_up(job.n_heads, kPairBatch)) {}

    void run();
    void score_row(std::int64_t row, float* scores) const;

private:
    [[nodiscard]] std::int64_t n_keys(std::int64_t row) const {
        return std::int64_t{scope_.positions[row]} + 1;
    }

    [[nodiscard]] RowQuery carve_query(Carver& carver) const;
    void prepare(std::int64_t row, const RowQuery& query) const;
    void score(std::int64_t row,
               const RowQuery& query,
               std::int64_t first,
               std::int64_t n,
               float* scores) const;
    void check(std::int64_t row, std::int64_t n, float* scores) const;
    void choose(std::int64_t row, const float* scores) const;
    void run_rows(std::int64_t first, std::int64_t most);
    void run_keys(std::int64_t first, std::int64_t most);

    Context context_;
    const IndexSelect& job_;
    RowScope scope_;
    const AttentionKernels* kernels_;
    std::int64_t groups_;
    std::int64_t heads_;
};

RowQuery Indexer::carve_query(Carver& carver) const {
    RowQuery query;
    query.queries.q = carver.take<std::int8_t>(heads_ * groups_ * kQuantGroup);
    query.queries.wide = carver.take<std::int16_t>(heads_ * groups_ * kQuantGroup);
    query.queries.scales = carver.take<float>(heads_ * groups_);
    query.queries.offsets = carver.take<std::int32_t>(heads_ * groups_);
    query.weights = carver.take<float>(heads_);
    return query;
}

/// Quantises the queries of one row's heads and scales their weights.
void Indexer::prepare(std::int64_t row, const RowQuery& query) const {
    for (std::int64_t h = 0; h < heads_; ++h) {
        query.weights[h] = h < job_.n_heads
                               ? job_.head_weights[row * job_.weights_stride + h] * job_.head_scale
                               : 0.0f;
    }
    if (job_.cache->values != nullptr) {
        return;
    }
    const QuantiseRow quantise = quantise_row(context_.isa);
    const std::int64_t width = groups_ * kQuantGroup;
    const PairQueries& q = query.queries;
    std::memset(q.q, 0, static_cast<std::size_t>(heads_ * width));
    std::memset(q.scales, 0, static_cast<std::size_t>(heads_ * groups_ * 4));
    std::memset(q.offsets, 0, static_cast<std::size_t>(heads_ * groups_ * 4));
    std::uint32_t worst = 0;
    for (std::int64_t h = 0; h < job_.n_heads; ++h) {
        const float* x = job_.q + (row * job_.n_heads + h) * job_.cache->dim;
        const std::uint32_t bits = quantise(x, job_.cache->dim, q.q + h * width,
                                            q.scales + h * groups_, q.offsets + h * groups_);
        worst = bits > worst ? bits : worst;
    }
    for (std::int64_t i = 0; i < heads_ * groups_; ++i) {
        q.offsets[i] *= -128;
    }
    for (std::int64_t i = 0; i < heads_ * width; ++i) {
        q.wide[i] = q.q[i];
    }
    if (worst >= kNotFiniteBits) {
        row_faults(*context_.stream, scope_, row).report(FaultSite::Quantise);
    }
}

/// Scores of keys first .. first + n, first a multiple of 16; writes up to the next multiple of 16.
void Indexer::score(std::int64_t row,
                    const RowQuery& query,
                    std::int64_t first,
                    std::int64_t n,
                    float* scores) const {
    const IndexCache& cache = *job_.cache;
    if (context_.isa == Isa::Scalar) {
        twin::index_scores(job_, row, first, n, row_faults(*context_.stream, scope_, row), scores);
        return;
    }
    if (cache.values != nullptr) {
        for (std::int64_t t = 0; t < n; ++t) {
            const float* key = cache.values + (first + t) * cache.dim;
            float sum = 0.0f;
            for (std::int64_t h = 0; h < job_.n_heads; ++h) {
                const float* q = job_.q + (row * job_.n_heads + h) * cache.dim;
                const float x = kernels_->dot32(q, key, cache.dim) * job_.key_scale;
                sum = __builtin_fmaf(query.weights[h], x > 0.0f ? x : 0.0f, sum);
            }
            scores[t] = sum;
        }
    } else {
        IndexJob index;
        index.keys = cache.keys + first * groups_ * kQuantGroup;
        index.scales = cache.scales + first * groups_;
        index.n_tiles = (n + kTileKeys - 1) / kTileKeys;
        index.groups = groups_;
        index.n_heads = heads_;
        index.queries = query.queries;
        index.weights = query.weights;
        index.key_scale = job_.key_scale;
        index.out = scores;
        kernels_->index_scores(index);
    }
    check(row, n, scores);
}

/// Reports NaN and infinity, which count as +0.
void Indexer::check(std::int64_t row, std::int64_t n, float* scores) const {
    std::uint32_t worst = 0;
    for (std::int64_t t = 0; t < n; ++t) {
        const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, scores[t]) & 0x7fffffffu;
        worst = bits > worst ? bits : worst;
    }
    if (worst < kNotFiniteBits) {
        return;
    }
    row_faults(*context_.stream, scope_, row).report(FaultSite::Indexer);
    for (std::int64_t t = 0; t < n; ++t) {
        const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, scores[t]) & 0x7fffffffu;
        scores[t] = bits < kNotFiniteBits ? scores[t] : 0.0f;
    }
}

void Indexer::score_row(std::int64_t row, float* scores) const {
    Carver counter(nullptr);
    static_cast<void>(carve_query(counter));
    std::byte* base = op_scratch(context_, counter.bytes());
    if (base == nullptr) {
        return;
    }
    Carver carver(base);
    const RowQuery query = carve_query(carver);
    prepare(row, query);
    score(row, query, 0, n_keys(row), scores);
}

void Indexer::choose(std::int64_t row, const float* scores) const {
    std::int32_t* positions = job_.positions + row * job_.top_k;
    select_top_k(scores, n_keys(row), job_.top_k, positions);
    job_.selections[row] = {positions, static_cast<std::int32_t>(job_.top_k)};
}

void Indexer::run() {
    std::int64_t first = 0;  // of the rows that need scores: positions ascend
    std::int64_t most = 0;
    std::int64_t n_scored = 0;
    for (std::int64_t row = job_.n_rows - 1; row >= 0; --row) {
        if (scope_.positions[row] < job_.top_k) {
            job_.selections[row] = {nullptr, scope_.positions[row] + 1};
        } else {
            first = row;
            most = n_keys(row) > most ? n_keys(row) : most;
            ++n_scored;
        }
    }
    if (n_scored == 0) {
        return;
    }
    if (n_scored >= 4 * context_.pool->n_threads()) {
        run_rows(first, most);
    } else {
        run_keys(first, most);
    }
}

/// Many rows: each is a task with scores of its own.
void Indexer::run_rows(std::int64_t first, std::int64_t most) {
    const auto carve = [&](Carver& carver, RowQuery& query) {
        query = carve_query(carver);
        return carver.take<float>(round_up(most, kTileKeys));
    };
    RowQuery unused;
    Carver counter(nullptr);
    static_cast<void>(carve(counter, unused));
    std::byte* base = op_scratch(context_, counter.bytes() * context_.pool->n_threads());
    if (base == nullptr) {
        return;
    }
    context_.pool->run(job_.n_rows - first, [&](std::int64_t task, int worker) {
        const std::int64_t row = job_.n_rows - 1 - task;
        if (scope_.positions[row] < job_.top_k || context_.stream->stop_requested()) {
            return;
        }
        Carver carver(base + worker * counter.bytes());
        RowQuery query;
        float* scores = carve(carver, query);
        prepare(row, query);
        score(row, query, 0, n_keys(row), scores);
        choose(row, scores);
    });
}

/// Few rows: pieces of the keys are tasks, then each row chooses.
void Indexer::run_keys(std::int64_t first, std::int64_t most) {
    const std::int64_t n_rows = job_.n_rows - first;
    const std::int64_t stride = round_up(most, kTileKeys);
    Carver counter(nullptr);
    static_cast<void>(carve_query(counter));
    const std::int64_t query_bytes = counter.bytes();
    std::byte* base = op_scratch(context_, n_rows * (query_bytes + stride * 4));
    if (base == nullptr) {
        return;
    }
    auto* scores = reinterpret_cast<float*>(base + n_rows * query_bytes);
    const auto query_of = [&](std::int64_t i) {
        Carver carver(base + i * query_bytes);
        return carve_query(carver);
    };
    const auto is_scored = [&](std::int64_t i) {
        return scope_.positions[first + i] >= job_.top_k && !context_.stream->stop_requested();
    };
    for (std::int64_t i = 0; i < n_rows; ++i) {
        if (is_scored(i)) {
            prepare(first + i, query_of(i));
        }
    }
    const std::int64_t pieces = (most + kKeysPerTask - 1) / kKeysPerTask;
    context_.pool->run(n_rows * pieces, [&](std::int64_t task, int) {
        const std::int64_t i = task / pieces;
        const std::int64_t begin = task % pieces * kKeysPerTask;
        if (!is_scored(i) || begin >= n_keys(first + i)) {
            return;
        }
        const std::int64_t left = n_keys(first + i) - begin;
        score(first + i, query_of(i), begin, left < kKeysPerTask ? left : kKeysPerTask,
              scores + i * stride + begin);
    });
    context_.pool->run(n_rows, [&](std::int64_t i, int) {
        if (is_scored(i)) {
            choose(first + i, scores + i * stride);
        }
    });
}

}  // namespace

void index_scores_of_row(
    Context context, const IndexSelect& job, std::int64_t row, RowScope scope, float* scores) {
    Indexer(context, job, scope).score_row(row, scores);
}

void index_select(Context context, const IndexSelect& job, RowScope scope) {
    CHECK(job.top_k > 0 && job.cache->dim > 0);
    CHECK(job.cache->dim <= kMostCachedGroups * kQuantGroup);
    Indexer(context, job, scope).run();
}

}  // namespace terrace::cpu
