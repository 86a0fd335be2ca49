// Drives integer attention: cuts rows into groups that share their keys, keys into blocks of 256,
// and spreads both over the threads. The twins and float sessions go through here too.
#include <cstring>

#include "engine/cpu/attention.h"
#include "engine/cpu/attention/carver.h"
#include "engine/cpu/attention/float_attention.h"
#include "engine/cpu/attention/kernels.h"
#include "engine/cpu/attention/row_faults.h"
#include "engine/cpu/attention/scratch.h"
#include "engine/cpu/attention/twin.h"
#include "engine/cpu/float_math.h"
#include "engine/cpu/quantise8.h"
#include "engine/cpu/thread_pool.h"
#include "engine/device/check.h"

namespace terrace::cpu {

namespace {

// Rows that share one key tile: more would push z_b out of the second-level cache.
constexpr std::int64_t kTileRows = 8;
constexpr std::int64_t kTilePairs = 160;
// Pairs whose scores and factors stay in the second-level cache between two kernels.
constexpr std::int64_t kCachedPairs = 80;
constexpr std::int64_t kPairsOfQueries = 16;  ///< a task of quantising queries
constexpr std::int64_t kPairsOfMerge = 8;     ///< a task of merging
// A pair costs about as much as this many keys before its first key.
constexpr std::int64_t kKeysOfAPair = 48;
// Below this many (key, pair) products waking another thread costs more than it gains.
constexpr std::int64_t kWorthAThread = 800;

/// Consecutive rows over the same keys: dense rows share them, a gathered row is alone.
struct RowGroup {
    std::int64_t first = 0;
    std::int64_t n_rows = 0;
    std::int64_t n_keys = 0;    ///< of the row that sees most
    std::int64_t n_blocks = 0;  ///< of n_keys
    std::int64_t pairs = 0;     ///< rows * heads, padded to kPairBatch
};

/// Softmax and value sums of the blocks of a group, before they are merged.
struct BlockResults {
    float* maxima = nullptr;  ///< [pairs][n_blocks]
    float* sums = nullptr;    ///< [pairs][n_blocks]
    float* values = nullptr;  ///< [n_blocks][pairs][latent groups * 64]
};

/// What one thread computes in.
struct Workspace {
    KeyTile tile;
    float* scores = nullptr;          ///< [kCachedPairs][256]
    float* p = nullptr;               ///< [256]
    std::uint8_t* factors = nullptr;  ///< [kCachedPairs][latent groups][4][64]
    float* factor_scales = nullptr;   ///< [kCachedPairs][latent groups][4]
};

/// Scratch of one call: `n_parts` times queries and results, one workspace a thread.
struct Memory {
    std::int64_t* firsts = nullptr;  ///< first row of every group
    std::byte* parts = nullptr;
    std::int64_t part_bytes = 0;
    std::byte* workspaces = nullptr;
    std::int64_t workspace_bytes = 0;
};

std::int64_t blocks_of(std::int64_t n_keys) {
    return (n_keys + kAttentionBlock - 1) / kAttentionBlock;
}

/// One call of mla_attention by a fast family. Lives on the engine thread's stack; its const
/// members are called from every pool thread.
class Attention {
public:
    Attention(Context context, const MlaAttention& job, RowScope scope)
        : context_(context),
          job_(job),
          scope_(scope),
          kernels_(*attention_kernels(context.isa)),
          quantise_(quantise_row(context.isa)),
          groups_(job.cache->n_groups()),
          latent_groups_(round_up(job.cache->latent, kQuantGroup) / kQuantGroup) {}

    void run();

private:
    [[nodiscard]] RowGroup group_at(std::int64_t first) const;
    [[nodiscard]] bool allocate(std::int64_t n_parts, std::int64_t n_workspaces);
    void run_whole(std::int64_t n_threads);
    void run_split();
    void attend_pairs(const RowGroup& group,
                      std::int64_t first,
                      std::int64_t end,
                      int worker) const;

    void quantise_pairs(const RowGroup& group,
                        std::int64_t first,
                        std::int64_t end,
                        const PairQueries& queries) const;
    void load_tile(const RowGroup& group, std::int64_t block, KeyTile& tile) const;
    [[nodiscard]] NextRows rows_ahead(const RowGroup& group,
                                      std::int64_t block,
                                      const std::int8_t** rows,
                                      const float** scales) const;
    void attend_block(const RowGroup& group,
                      std::int64_t block,
                      std::int64_t first_pair,
                      std::int64_t end_pair,
                      const PairQueries& queries,
                      const BlockResults& results,
                      Workspace space) const;
    void weigh_pair(const RowGroup& group,
                    std::int64_t block,
                    std::int64_t pair,
                    std::int64_t slot,
                    const BlockResults& results,
                    const Workspace& space) const;
    void merge_pair(const RowGroup& group, std::int64_t pair, const BlockResults& results) const;

    [[nodiscard]] Workspace carve_workspace(Carver& carver) const;
    void carve_part(Carver& carver, PairQueries& queries, BlockResults& results) const;

    [[nodiscard]] const Selection& selection(std::int64_t row) const {
        return job_.selections[static_cast<std::size_t>(row)];
    }

    [[nodiscard]] std::int64_t latent64() const { return latent_groups_ * kQuantGroup; }

    Context context_;
    const MlaAttention& job_;
    RowScope scope_;
    const AttentionKernels& kernels_;
    QuantiseRow quantise_;
    std::int64_t groups_;
    std::int64_t latent_groups_;
    std::int64_t n_groups_ = 0;
    RowGroup largest_;  ///< of every count the largest: what a part must hold
    Memory memory_;
    std::int64_t blocks_ahead_ = 1;  ///< which block a thread will probably take next
};

RowGroup Attention::group_at(std::int64_t first) const {
    RowGroup group;
    group.first = first;
    std::int64_t limit = kTilePairs / job_.n_heads;
    limit = limit < 1 ? 1 : limit > kTileRows ? kTileRows : limit;
    std::int64_t row = first;
    do {
        group.n_keys = selection(row).count > group.n_keys ? selection(row).count : group.n_keys;
        ++row;
    } while (row < job_.n_rows && row - first < limit && selection(first).positions == nullptr &&
             selection(row).positions == nullptr);
    group.n_rows = row - first;
    group.n_blocks = blocks_of(group.n_keys);
    group.pairs = round_up(group.n_rows * job_.n_heads, kPairBatch);
    return group;
}

void Attention::run() {
    std::int64_t products = 0;
    for (std::int64_t row = 0; row < job_.n_rows; ++n_groups_) {
        const RowGroup group = group_at(row);
        products += (group.n_keys + kKeysOfAPair) * group.pairs;
        largest_.n_blocks = group.n_blocks > largest_.n_blocks ? group.n_blocks : largest_.n_blocks;
        largest_.pairs = group.pairs > largest_.pairs ? group.pairs : largest_.pairs;
        row += group.n_rows;
    }
    const std::int64_t n_threads =
        products < kWorthAThread ? 1 : std::int64_t{context_.pool->n_threads()};
    if (n_threads == 1 || n_groups_ >= 4 * n_threads || largest_.n_blocks == 1) {
        run_whole(n_threads);
    } else if (allocate(n_groups_, n_threads)) {
        blocks_ahead_ = n_threads;
        run_split();
    }
}

/// Each group, or where groups are few some pairs of it, is one task from query to z.
void Attention::run_whole(std::int64_t n_threads) {
    if (!allocate(n_threads, n_threads)) {
        return;
    }
    const std::int64_t chunks_wanted = n_groups_ >= n_threads ? 1 : n_threads;
    const std::int64_t chunk =
        round_up((largest_.pairs + chunks_wanted - 1) / chunks_wanted, kPairBatch);
    const std::int64_t n_chunks = (largest_.pairs + chunk - 1) / chunk;
    const std::int64_t n_tasks = n_groups_ * n_chunks;
    auto body = [&](std::int64_t task, int worker) {
        // The last rows see most keys: they go first, so that no thread ends alone with them.
        const RowGroup group = group_at(memory_.firsts[n_groups_ - 1 - task / n_chunks]);
        const std::int64_t first = task % n_chunks * chunk;
        const std::int64_t end = first + chunk < group.pairs ? first + chunk : group.pairs;
        if (first < end) {
            attend_pairs(group, first, end, worker);
        }
    };
    if (n_threads > 1) {
        context_.pool->run(n_tasks, body);
        return;
    }
    context_.pool->run(1, [&](std::int64_t, int worker) {
        for (std::int64_t task = 0; task < n_tasks; ++task) {
            body(task, worker);
        }
    });
}

/// Asks for the scratch and lists the groups.
bool Attention::allocate(std::int64_t n_parts, std::int64_t n_workspaces) {
    Carver part(nullptr);
    PairQueries queries;
    BlockResults results;
    carve_part(part, queries, results);
    Carver workspace(nullptr);
    static_cast<void>(carve_workspace(workspace));
    memory_.part_bytes = part.bytes();
    memory_.workspace_bytes = workspace.bytes();
    const std::int64_t list_bytes = round_up(n_groups_ * 8, 64);
    std::byte* base = op_scratch(context_, list_bytes + n_parts * memory_.part_bytes +
                                               n_workspaces * memory_.workspace_bytes);
    if (base == nullptr) {
        return false;
    }
    memory_.firsts = reinterpret_cast<std::int64_t*>(base);
    memory_.parts = base + list_bytes;
    memory_.workspaces = memory_.parts + n_parts * memory_.part_bytes;
    for (std::int64_t row = 0, g = 0; row < job_.n_rows; ++g) {
        memory_.firsts[g] = row;
        row += group_at(row).n_rows;
    }
    return true;
}

/// Pairs first .. end of a group from their queries to z, in the part and workspace of one thread.
void Attention::attend_pairs(const RowGroup& group,
                             std::int64_t first,
                             std::int64_t end,
                             int worker) const {
    PairQueries queries;
    BlockResults results;
    Carver part(memory_.parts + worker * memory_.part_bytes);
    carve_part(part, queries, results);
    Carver carver(memory_.workspaces + worker * memory_.workspace_bytes);
    const Workspace space = carve_workspace(carver);
    quantise_pairs(group, first, end, queries);
    for (std::int64_t block = 0; block < group.n_blocks; ++block) {
        if (context_.stream->stop_requested()) {
            return;
        }
        attend_block(group, block, first, end, queries, results, space);
    }
    const std::int64_t real = group.n_rows * job_.n_heads;
    for (std::int64_t pair = first; pair < end && pair < real; ++pair) {
        merge_pair(group, pair, results);
    }
}

/// Few groups: each block is a task, and where blocks are few each block of some pairs.
void Attention::run_split() {
    const std::int64_t n_blocks = largest_.n_blocks;
    const std::int64_t wanted = 2 * context_.pool->n_threads();
    const std::int64_t n_parts = n_groups_ * n_blocks;
    const std::int64_t chunks_wanted = n_parts >= wanted ? 1 : (wanted + n_parts - 1) / n_parts;
    const std::int64_t chunk =
        round_up((largest_.pairs + chunks_wanted - 1) / chunks_wanted, kPairBatch);
    const std::int64_t n_chunks = (largest_.pairs + chunk - 1) / chunk;
    const auto part_of = [&](std::int64_t g, PairQueries& queries, BlockResults& results) {
        Carver part(memory_.parts + g * memory_.part_bytes);
        carve_part(part, queries, results);
        return group_at(memory_.firsts[g]);
    };
    const auto for_pairs = [&](std::int64_t pairs_a_task, auto&& body) {
        const std::int64_t tasks = (largest_.pairs + pairs_a_task - 1) / pairs_a_task;
        context_.pool->run(n_groups_ * tasks, [&](std::int64_t task, int) {
            PairQueries queries;
            BlockResults results;
            const RowGroup group = part_of(task / tasks, queries, results);
            const std::int64_t first = task % tasks * pairs_a_task;
            const std::int64_t end = first + pairs_a_task;
            body(group, first, end < group.pairs ? end : group.pairs, queries, results);
        });
    };
    for_pairs(kPairsOfQueries, [&](const RowGroup& group, std::int64_t first, std::int64_t end,
                                   const PairQueries& queries, const BlockResults&) {
        quantise_pairs(group, first, end, queries);
    });
    context_.pool->run(n_parts * n_chunks, [&](std::int64_t task, int worker) {
        PairQueries queries;
        BlockResults results;
        const RowGroup group = part_of(task / (n_blocks * n_chunks), queries, results);
        const std::int64_t block = task / n_chunks % n_blocks;
        const std::int64_t first = task % n_chunks * chunk;
        if (block >= group.n_blocks || first >= group.pairs || context_.stream->stop_requested()) {
            return;
        }
        Carver carver(memory_.workspaces + worker * memory_.workspace_bytes);
        const Workspace space = carve_workspace(carver);
        const std::int64_t end = first + chunk < group.pairs ? first + chunk : group.pairs;
        attend_block(group, block, first, end, queries, results, space);
    });
    for_pairs(kPairsOfMerge, [&](const RowGroup& group, std::int64_t first, std::int64_t end,
                                 const PairQueries&, const BlockResults& results) {
        const std::int64_t real = group.n_rows * job_.n_heads;
        for (std::int64_t pair = first; pair < end && pair < real; ++pair) {
            merge_pair(group, pair, results);
        }
    });
}

Workspace Attention::carve_workspace(Carver& carver) const {
    Workspace space;
    space.tile.groups = groups_;
    space.tile.latent_groups = latent_groups_;
    space.tile.keys =
        carver.take<std::uint8_t>(kAttentionBlock * groups_ * kQuantGroup * kernels_.key_bytes);
    space.tile.values = carver.take<std::int8_t>(kAttentionBlock * latent64());
    space.tile.scales = carver.take<float>(kAttentionBlock * groups_);
    space.scores = carver.take<float>(kCachedPairs * kAttentionBlock);
    space.p = carver.take<float>(kAttentionBlock);
    space.factors = carver.take<std::uint8_t>(kCachedPairs * latent_groups_ * kAttentionBlock);
    space.factor_scales = carver.take<float>(kCachedPairs * latent_groups_ * 4);
    return space;
}

void Attention::carve_part(Carver& carver, PairQueries& queries, BlockResults& results) const {
    const std::int64_t pairs = largest_.pairs;
    queries.q = carver.take<std::int8_t>(pairs * groups_ * kQuantGroup);
    if (kernels_.key_bytes == 2) {
        queries.wide = carver.take<std::int16_t>(pairs * groups_ * kQuantGroup);
    }
    queries.scales = carver.take<float>(pairs * groups_);
    queries.offsets = carver.take<std::int32_t>(pairs * groups_);
    results.maxima = carver.take<float>(pairs * largest_.n_blocks);
    results.sums = carver.take<float>(pairs * largest_.n_blocks);
    results.values = carver.take<float>(pairs * largest_.n_blocks * latent64());
}

void Attention::quantise_pairs(const RowGroup& group,
                               std::int64_t first,
                               std::int64_t end,
                               const PairQueries& queries) const {
    const std::int64_t width = groups_ * kQuantGroup;
    for (std::int64_t pair = first; pair < end; ++pair) {
        std::int8_t* q = queries.q + pair * width;
        float* scales = queries.scales + pair * groups_;
        std::int32_t* offsets = queries.offsets + pair * groups_;
        if (pair >= group.n_rows * job_.n_heads) {
            std::memset(q, 0, static_cast<std::size_t>(width));
            std::memset(scales, 0, static_cast<std::size_t>(groups_ * 4));
            std::memset(offsets, 0, static_cast<std::size_t>(groups_ * 4));
        } else {
            const std::int64_t row = group.first + pair / job_.n_heads;
            const std::int64_t head = pair % job_.n_heads;
            const MlaCache& cache = *job_.cache;
            const float* absorbed = job_.absorbed + (row * job_.n_heads + head) * cache.latent;
            const float* rope = job_.q_rope + row * job_.q_row_stride + head * job_.q_head_stride;
            const std::uint32_t a = quantise_(absorbed, cache.latent, q, scales, offsets);
            const std::uint32_t b = quantise_(rope, cache.rope, q + latent64(),
                                              scales + latent_groups_, offsets + latent_groups_);
            if (a >= kNotFiniteBits || b >= kNotFiniteBits) {
                row_faults(*context_.stream, scope_, row).report(FaultSite::Quantise);
            }
            for (std::int64_t k = 0; k < groups_; ++k) {
                offsets[k] *= -128;
            }
        }
        for (std::int64_t i = 0; queries.wide != nullptr && i < width; ++i) {
            queries.wide[pair * width + i] = q[i];
        }
    }
}

void Attention::load_tile(const RowGroup& group, std::int64_t block, KeyTile& tile) const {
    const MlaCache& cache = *job_.cache;
    const std::int64_t first = block * kAttentionBlock;
    const std::int64_t left = group.n_keys - first;
    tile.n = left < kAttentionBlock ? left : kAttentionBlock;
    const std::int32_t* positions = selection(group.first).positions;
    const std::int8_t* rows[kAttentionBlock];
    const std::int64_t padded = round_up(tile.n, kQuantGroup);
    for (std::int64_t t = 0; t < padded; ++t) {
        const std::int64_t rank = first + (t < tile.n ? t : tile.n - 1);
        const std::int64_t position = positions == nullptr ? rank : positions[rank];
        rows[t] = cache.rows + position * cache.row_bytes();
        const float* scales = cache.scales + position * groups_;
        for (std::int64_t k = 0; k < groups_; ++k) {
            tile.scales[k * kAttentionBlock + t] = t < tile.n ? scales[k] : 0.0f;
        }
    }
    kernels_.build_tile(rows, tile);
}

/// The rows of a block that will be wanted soon; none past the last.
NextRows Attention::rows_ahead(const RowGroup& group,
                               std::int64_t block,
                               const std::int8_t** rows,
                               const float** scales) const {
    const MlaCache& cache = *job_.cache;
    const std::int64_t first = block * kAttentionBlock;
    const std::int64_t left = group.n_keys - first;
    const std::int64_t n = left < kAttentionBlock ? left : kAttentionBlock;
    const std::int32_t* positions = selection(group.first).positions;
    for (std::int64_t t = 0; t < n; ++t) {
        const std::int64_t position = positions == nullptr ? first + t : positions[first + t];
        rows[t] = cache.rows + position * cache.row_bytes();
        scales[t] = cache.scales + position * groups_;
    }
    return {rows, scales, n > 0 ? n : 0, cache.row_bytes()};
}

/// Scores, softmax and values of pairs first .. end with one block of keys.
void Attention::attend_block(const RowGroup& group,
                             std::int64_t block,
                             std::int64_t first_pair,
                             std::int64_t end_pair,
                             const PairQueries& queries,
                             const BlockResults& results,
                             Workspace space) const {
    load_tile(group, block, space.tile);
    const std::int8_t* rows[kAttentionBlock];
    const float* scales[kAttentionBlock];
    NextRows next = rows_ahead(group, block + blocks_ahead_, rows, scales);
    for (std::int64_t first = first_pair; first < end_pair; first += kCachedPairs) {
        const std::int64_t left = end_pair - first;
        const std::int64_t n = left < kCachedPairs ? left : kCachedPairs;
        kernels_.scores(space.tile, queries, first, n, job_.scale, space.scores, next);
        next.n = 0;
        for (std::int64_t i = 0; i < n; ++i) {
            weigh_pair(group, block, first + i, i, results, space);
        }
        kernels_.values(space.tile, space.factors, space.factor_scales, n,
                        results.values + (block * group.pairs + first) * latent64(), latent64());
    }
}

/// Scores of one pair become quantised factors.
void Attention::weigh_pair(const RowGroup& group,
                           std::int64_t block,
                           std::int64_t pair,
                           std::int64_t slot,
                           const BlockResults& results,
                           const Workspace& space) const {
    if (pair >= group.n_rows * job_.n_heads) {
        return;  // padding: its z is never read
    }
    const std::int64_t row = group.first + pair / job_.n_heads;
    const std::int64_t left = selection(row).count - block * kAttentionBlock;
    if (left <= 0) {
        return;  // this row sees nothing of the block, and its z is never read
    }
    const std::int64_t n = left < kAttentionBlock ? left : kAttentionBlock;
    const BlockSum sum = kernels_.softmax(space.scores + slot * kAttentionBlock, n,
                                          round_up(space.tile.n, kQuantGroup), space.p);
    if (sum.fault) {
        row_faults(*context_.stream, scope_, row).report(FaultSite::Score);
    }
    results.maxima[pair * group.n_blocks + block] = sum.maximum;
    results.sums[pair * group.n_blocks + block] = sum.sum;
    kernels_.factors(space.tile, space.p, space.factors + slot * latent_groups_ * kAttentionBlock,
                     space.factor_scales + slot * latent_groups_ * 4);
}

void Attention::merge_pair(const RowGroup& group,
                           std::int64_t pair,
                           const BlockResults& results) const {
    const std::int64_t row = group.first + pair / job_.n_heads;
    const std::int64_t n_blocks = blocks_of(selection(row).count);
    float* maxima = results.maxima + pair * group.n_blocks;
    const float* sums = results.sums + pair * group.n_blocks;
    float maximum = maxima[0];
    for (std::int64_t b = 1; b < n_blocks; ++b) {
        maximum = maxima[b] > maximum ? maxima[b] : maximum;
    }
    float sum = 0.0f;
    for (std::int64_t b = 0; b < n_blocks; ++b) {
        maxima[b] = exp32(maxima[b] - maximum);  // from here on the factors of the blocks
        sum = __builtin_fmaf(sums[b], maxima[b], sum);
    }
    const std::int64_t head = pair % job_.n_heads;
    kernels_.merge(results.values + pair * latent64(), group.pairs * latent64(), maxima, n_blocks,
                   sum, job_.cache->latent,
                   job_.out + (row * job_.n_heads + head) * job_.cache->latent);
}

/// Float sessions and the scalar family: every (row, head) alone.
void attend_each(Context context, const MlaAttention& job, RowScope scope) {
    std::int64_t most = 0;
    for (const Selection& selection : job.selections) {
        most = selection.count > most ? selection.count : most;
    }
    const std::int64_t floats =
        round_up(twin::attend_scratch(*job.cache, most) + job.cache->latent + job.cache->rope, 16);
    std::byte* base = op_scratch(context, floats * 4 * context.pool->n_threads());
    if (base == nullptr) {
        return;
    }
    context.pool->run(job.n_rows * job.n_heads, [&](std::int64_t task, int worker) {
        if (context.stream->stop_requested()) {
            return;
        }
        const std::int64_t row = task / job.n_heads;
        auto* scratch = reinterpret_cast<float*>(base) + worker * floats;
        const RowFaults faults = row_faults(*context.stream, scope, row);
        if (context.isa == Isa::Scalar) {
            twin::attend(job, row, task % job.n_heads, faults, scratch);
        } else {
            attend_float(*attention_kernels(context.isa), job, row, task % job.n_heads, faults,
                         scratch);
        }
    });
}

}  // namespace

void mla_attention(Context context, const MlaAttention& job, RowScope scope) {
    CHECK(static_cast<std::int64_t>(job.selections.size()) == job.n_rows);
    CHECK(job.n_heads > 0 && job.cache->n_groups() <= kMostCachedGroups);
    if (context.stream->stop_requested()) {
        return;  // the ops before this one may have chosen nothing
    }
    for (const Selection& selection : job.selections) {
        CHECK(selection.count > 0 && selection.count <= job.cache->capacity);
    }
    if (job.n_rows == 0) {
        return;
    }
    if (context.isa == Isa::Scalar || job.cache->values != nullptr) {
        attend_each(context, job, scope);
    } else {
        Attention(context, job, scope).run();
    }
}

}  // namespace terrace::cpu
