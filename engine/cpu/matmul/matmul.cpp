// The matmul op: cuts a group of independent products into tiles and hands them to the threads.
// One barrier for the whole group; a second one before it when many tokens must be brought into
// panels first.
#include "engine/cpu/matmul.h"

#include <algorithm>
#include <memory>
#include <new>
#include <string>

#include "engine/cpu/matmul/kernels.h"
#include "engine/cpu/matmul/panels.h"
#include "engine/cpu/thread_pool.h"
#include "engine/device/check.h"

namespace terrace::cpu {

namespace {

// Less work than this (weights times tokens) is done where it stands: waking threads costs more.
constexpr std::int64_t kSerialProducts = 256 * 1024;
// Panels of fewer bytes are filled by the calling thread.
constexpr std::int64_t kSerialFillBytes = 64 * 1024;
// Weights of a tile in decode: small enough for an even finish, large enough for the fetcher.
constexpr std::int64_t kMinTileBytes = 16 * 1024;
constexpr std::int64_t kMaxTileBytes = 128 * 1024;
constexpr std::int64_t kTilesPerThread = 8;

/// One job, planned.
struct Product {
    const MatmulJob* job = nullptr;
    PackedLayout layout;
    PanelSpec spec;
    Panels panels;
    std::int64_t n_tokens = 0;
    std::int64_t rows_per_tile = 0;
    std::int64_t tokens_per_tile = 0;
    std::int64_t n_token_tiles = 0;
    std::int64_t end_tile = 0;     ///< tiles of this product and all before it
    std::int64_t end_panel = 0;    ///< panels to be filled, likewise
    std::int64_t shared_with = 0;  ///< product whose panels are used; itself if its own
};

/// The products of one call.
struct Plan {
    Product* products = nullptr;
    std::int64_t n_products = 0;
    std::int64_t n_tiles = 0;
    std::int64_t n_panels = 0;
    std::int64_t panel_bytes = 0;
    std::int64_t n_multiplications = 0;
    std::int64_t weight_bytes = 0;
};

std::int64_t divide_up(std::int64_t a, std::int64_t b) {
    return (a + b - 1) / b;
}

void plan_panels(const MatmulKernels& kernels, Product* p) {
    const MatmulJob& job = *p->job;
    p->layout = packed_layout(job.weight.format, job.weight.rows, job.weight.cols);
    PanelSpec& spec = p->spec;
    spec.input = job.input;
    spec.rows = job.rows.empty() ? nullptr : job.rows.data();
    spec.n_tokens = p->n_tokens;
    // Panels of equal width waste least: 17 tokens are three panels of 6, not 8, 8 and 1.
    spec.width = divide_up(p->n_tokens, divide_up(p->n_tokens, kernels.max_width));
    spec.scales_per_block = p->layout.scales_per_block;
    const bool plain_int4 =
        job.weight.format.kind == WeightKind::Int4 && p->layout.scales_per_block == 1;
    spec.correction = plain_int4 ? kernels.int4_correction : kernels.other_correction;
    // All kinds but plain int4 reach the kernels as bytes with offset 128.
    spec.offset = plain_int4 ? 8 : 128;
}

// First pass: what each product is and how much memory the panels take.
void plan_products(std::span<const MatmulJob> jobs, const MatmulKernels& kernels, Plan* plan) {
    for (const MatmulJob& job : jobs) {
        const std::int64_t n_tokens =
            job.rows.empty() ? job.input.n_rows : static_cast<std::int64_t>(job.rows.size());
        if (n_tokens == 0 || job.weight.rows == 0) {
            continue;
        }
        CHECK(job.weight.use == WeightUse::RowDot && job.weight.cols == job.input.width);
        const std::int64_t index = plan->n_products++;
        Product* p = new (plan->products + index) Product();
        p->job = &job;
        p->n_tokens = n_tokens;
        p->shared_with = index;
        plan->n_multiplications += job.weight.rows * job.weight.cols * n_tokens;
        if (!job.weight.format.quantised()) {
            p->end_panel = plan->n_panels;
            plan->weight_bytes += job.weight.rows * job.weight.cols * 4;
            continue;
        }
        plan_panels(kernels, p);
        plan->weight_bytes += p->layout.n_groups * p->layout.group_bytes;
        // Gate and up, or the projections of one normed row, read the same panels.
        constexpr std::int64_t kLookBack = 4;
        for (std::int64_t other = std::max<std::int64_t>(0, index - kLookBack); other < index;
             ++other) {
            const Product& o = plan->products[other];
            if (o.job->weight.format.quantised() && o.spec.same_as(p->spec)) {
                p->shared_with = o.shared_with;
                break;
            }
        }
        if (p->shared_with == index) {
            plan->n_panels += p->spec.n_panels();
            plan->panel_bytes += panel_bytes(p->spec);
        }
        p->end_panel = plan->n_panels;
    }
}

// Second pass: tiles.
void plan_tiles(int n_threads, Plan* plan) {
    const std::int64_t tile_bytes = std::clamp(plan->weight_bytes / (n_threads * kTilesPerThread),
                                               kMinTileBytes, kMaxTileBytes);
    for (std::int64_t i = 0; i < plan->n_products; ++i) {
        Product& p = plan->products[i];
        const WeightMatrix& w = p.job->weight;
        const bool quantised = w.format.quantised();
        const bool one_panel = !quantised || p.spec.n_panels() == 1;
        const std::int64_t group_bytes = quantised ? p.layout.group_bytes : w.cols * 4 * kGroupRows;
        const std::int64_t n_groups =
            one_panel ? std::max<std::int64_t>(1, tile_bytes / group_bytes) : 2;
        p.rows_per_tile = n_groups * kGroupRows;
        p.tokens_per_tile =
            quantised ? kMaxTileTokens / p.spec.width * p.spec.width : kMaxTileTokens;
        p.n_token_tiles = divide_up(p.n_tokens, p.tokens_per_tile);
        plan->n_tiles += divide_up(w.rows, p.rows_per_tile) * p.n_token_tiles;
        p.end_tile = plan->n_tiles;
    }
}

// The product that holds item `index`, by its running total.
template <std::int64_t Product::*kEnd>
const Product& product_of(const Plan& plan, std::int64_t index) {
    return *std::upper_bound(plan.products, plan.products + plan.n_products, index,
                             [](std::int64_t value, const Product& p) { return value < p.*kEnd; });
}

void place_all_panels(std::byte* memory, Plan* plan) {
    for (std::int64_t i = 0; i < plan->n_products; ++i) {
        Product& p = plan->products[i];
        if (!p.job->weight.format.quantised()) {
            continue;
        }
        if (p.shared_with != i) {
            p.panels = plan->products[p.shared_with].panels;
            continue;
        }
        p.panels = place_panels(p.spec, memory);
        memory += panel_bytes(p.spec);
    }
}

void fill_one_panel(const Plan& plan, std::int64_t index) {
    const Product& p = product_of<&Product::end_panel>(plan, index);
    fill_panel(p.spec, p.panels, index - (p.end_panel - p.spec.n_panels()));
}

void run_float_tile(const Product& p, FloatTile tile, std::int64_t row, std::int64_t token) {
    const MatmulJob& job = *p.job;
    FloatTileWork work;
    work.weights = reinterpret_cast<const float*>(job.weight.data) + row * job.weight.cols;
    work.n_rows = std::min(p.rows_per_tile, job.weight.rows - row);
    work.cols = job.weight.cols;
    work.values = job.input.values + (job.rows.empty() ? token * job.input.stride : 0);
    work.stride = job.input.stride;
    work.rows = job.rows.empty() ? nullptr : job.rows.data() + token;
    work.n_tokens = std::min(p.tokens_per_tile, p.n_tokens - token);
    work.out = job.out + token * job.out_stride + row;
    work.out_stride = job.out_stride;
    tile(work);
}

void run_integer_tile(const Product& p, MatmulTile tile, std::int64_t row, std::int64_t token) {
    const MatmulJob& job = *p.job;
    TileWork work;
    work.layout = &p.layout;
    work.weights = job.weight.data + row / kGroupRows * p.layout.group_bytes;
    work.n_rows = std::min(p.rows_per_tile, job.weight.rows - row);
    work.panels = p.panels;
    work.first_panel = token / p.spec.width;
    work.n_tokens = std::min(p.tokens_per_tile, p.n_tokens - token);
    work.n_panels = divide_up(work.n_tokens, p.spec.width);
    work.out = job.out + token * job.out_stride + row;
    work.out_stride = job.out_stride;
    tile(work);
}

void run_tile(const Plan& plan, const IsaKernels& kernels, std::int64_t index) {
    const Product& p = product_of<&Product::end_tile>(plan, index);
    const std::int64_t row_tiles = divide_up(p.job->weight.rows, p.rows_per_tile);
    const std::int64_t tile = index - (p.end_tile - row_tiles * p.n_token_tiles);
    const std::int64_t row = tile % row_tiles * p.rows_per_tile;
    const std::int64_t token = tile / row_tiles * p.tokens_per_tile;
    if (p.job->weight.format.quantised()) {
        run_integer_tile(p, kernels.integer.tile, row, token);
    } else {
        run_float_tile(p, kernels.floating, row, token);
    }
}

// Runs all tiles on the pool, or here when there is little to do.
template <typename Body>
void run_tiles(Context context, std::int64_t n_tiles, bool serial, Body body) {
    const auto guarded = [&](std::int64_t tile) {
        if (!context.stream->stop_requested()) {
            body(tile);
        }
    };
    if (serial) {
        context.pool->run(1, [&](std::int64_t, int) {
            for (std::int64_t tile = 0; tile < n_tiles; ++tile) {
                guarded(tile);
            }
        });
    } else {
        context.pool->run(n_tiles, [&](std::int64_t tile, int) { guarded(tile); });
    }
}

}  // namespace

IsaKernels kernels_of(Isa isa) {
    switch (isa) {
        case Isa::Scalar:
            break;
        case Isa::Avx2:
            return {{matmul_tile_avx2, 4, Correction::Int16x2, Correction::None}, float_tile_avx2};
        case Isa::AvxVnni:
            return {{matmul_tile_avxvnni, 4, Correction::Int32, Correction::Int32},
                    float_tile_avx2};
        case Isa::Avx512:
            return {{matmul_tile_avx512, 8, Correction::Int32, Correction::Int32},
                    float_tile_avx512};
    }
    return {{matmul_tile_scalar, 1, Correction::None, Correction::None}, float_tile_scalar};
}

void matmul(Context context, std::span<const MatmulJob> jobs) {
    matmul_with(kernels_of(context.isa), context, jobs);
}

void matmul_with(const IsaKernels& kernels, Context context, std::span<const MatmulJob> jobs) {
    constexpr std::size_t kFewProducts = 32;
    alignas(Product) std::byte few[kFewProducts * sizeof(Product)];
    std::unique_ptr<std::byte[]> many;
    std::byte* memory = few;
    if (jobs.size() > kFewProducts) {
        many.reset(new (std::nothrow) std::byte[jobs.size() * sizeof(Product)]);
        memory = many.get();
    }
    Plan plan;
    plan.products = reinterpret_cast<Product*>(memory);
    std::byte* scratch = nullptr;
    if (memory != nullptr) {
        plan_products(jobs, kernels.integer, &plan);
        scratch = context.pool->scratch(std::max(plan.panel_bytes, kVectorBytes));
    }
    if (scratch == nullptr) {
        context.stream->fail(Error{ErrorCode::OutOfMemory,
                                   "expected " + std::to_string(plan.panel_bytes) +
                                       " bytes to bring activations into order, found no memory",
                                   "matrix product", "Choose a smaller prefill chunk."});
        return;
    }
    if (plan.n_products == 0) {
        return;
    }
    plan_tiles(context.pool->n_threads(), &plan);
    place_all_panels(scratch, &plan);
    run_tiles(context, plan.n_panels, plan.panel_bytes < kSerialFillBytes,
              [&](std::int64_t panel) { fill_one_panel(plan, panel); });
    run_tiles(context, plan.n_tiles, plan.n_multiplications < kSerialProducts,
              [&](std::int64_t tile) { run_tile(plan, kernels, tile); });
}

}  // namespace terrace::cpu
