// Measures attention, index scores, the choice of the top k and the absorbed query: nanoseconds for
// a (key, head), for every instruction set, with one and two threads.
//   bench_micro_attention [isa or "all"] [repetitions, default 21] [part of a name]
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "bench/bare_loops.h"
#include "engine/cpu/attention.h"
#include "engine/cpu/attention/pack_columns.h"
#include "engine/cpu/attention/top_k.h"
#include "engine/cpu/cpu_device.h"
#include "engine/cpu/thread_pool.h"

namespace terrace::bench {

namespace {

using namespace terrace::cpu;

constexpr std::int64_t kLatent = 512;
constexpr std::int64_t kRope = 64;

double now_ns(clockid_t clock) {
    timespec t = {};
    clock_gettime(clock, &t);
    return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

/// What all measurements share.
struct Bench {
    CpuDevice* device = nullptr;
    Context context;
    int repetitions = 21;
    std::string wanted;  ///< only measurements whose name holds it
    std::mt19937_64 random{7};

    /// Runs `work` and prints its time a unit: lowest tenth, median, highest tenth. With one thread
    /// the time of the thread counts, which leaves out what others ran on the machine meanwhile.
    void measure(const std::string& name,
                 double units,
                 const char* unit,
                 const std::function<void()>& work) {
        if (name.find(wanted) == std::string::npos) {
            return;
        }
        const bool alone = context.pool->n_threads() == 1;
        const clockid_t clock = alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
        std::vector<double> times;
        work();
        for (int i = 0; i < repetitions; ++i) {
            const double begin = now_ns(clock);
            work();
            times.push_back((now_ns(clock) - begin) / units);
        }
        std::sort(times.begin(), times.end());
        const std::size_t n = times.size();
        std::printf("%-8s %d threads  %-46s %8.3f %8.3f %8.3f %s\n", to_string(context.isa),
                    context.pool->n_threads(), name.c_str(), times[n / 10], times[n / 2],
                    times[n - 1 - n / 10], unit);
        std::fflush(stdout);
    }

    Buffer allocate(std::int64_t bytes) {
        Result<Buffer> buffer = device->allocate(bytes);
        if (!buffer) {
            std::fprintf(stderr, "%s\n", buffer.error().text().c_str());
            std::exit(1);
        }
        return std::move(buffer).value();
    }

    std::vector<float> numbers(std::int64_t n) {
        std::normal_distribution<float> normal;
        std::vector<float> x(static_cast<std::size_t>(n));
        for (float& v : x) {
            v = normal(random);
        }
        return x;
    }
};

std::vector<std::int32_t> ascending(std::int64_t first, std::int64_t n) {
    std::vector<std::int32_t> p;
    for (std::int64_t i = 0; i < n; ++i) {
        p.push_back(static_cast<std::int32_t>(first + i));
    }
    return p;
}

/// A cache of `capacity` rows, written from noise.
struct Cache {
    Cache(Bench& bench, std::int64_t capacity)
        : rows(bench.allocate(capacity * (kLatent + kRope))),
          scales(bench.allocate(capacity * (kLatent + kRope) / 16)) {
        cache.capacity = capacity;
        cache.latent = kLatent;
        cache.rope = kRope;
        cache.rows = rows.as<std::int8_t>();
        cache.scales = scales.as<float>();
        constexpr std::int64_t kPiece = 4096;
        auto latent = bench.numbers(kPiece * kLatent);
        auto key = bench.numbers(kPiece * kRope);
        for (std::int64_t first = 0; first < capacity; first += kPiece) {
            const std::int64_t n = std::min(kPiece, capacity - first);
            const auto positions = ascending(first, n);
            write_mla_cache(bench.context, cache, {latent.data(), n, kLatent, kLatent},
                            {key.data(), n, kRope, kRope}, {positions.data(), 0});
        }
    }

    Buffer rows;
    Buffer scales;
    MlaCache cache;
};

/// n_rows rows whose last sees n_keys keys; with a list, one row that sees the list.
void attention(Bench& bench,
               const std::string& name,
               const Cache& cache,
               std::int64_t n_rows,
               std::int64_t n_heads,
               std::int64_t n_keys,
               const std::function<std::vector<std::int32_t>()>& make_list) {
    const auto absorbed = bench.numbers(n_rows * n_heads * kLatent);
    const auto q = bench.numbers(n_rows * n_heads * kRope);
    std::vector<float> z(static_cast<std::size_t>(n_rows * n_heads * kLatent));
    std::vector<Selection> selections;
    double products = 0;
    for (std::int64_t r = 0; r < n_rows; ++r) {
        const std::int64_t seen = n_keys - (n_rows - 1 - r);
        selections.push_back({nullptr, static_cast<std::int32_t>(seen)});
        products += static_cast<double>(seen * n_heads);
    }
    const auto positions = ascending(n_keys - n_rows, n_rows);
    MlaAttention job;
    job.cache = &cache.cache;
    job.n_rows = n_rows;
    job.n_heads = n_heads;
    job.absorbed = absorbed.data();
    job.q_rope = q.data();
    job.q_row_stride = n_heads * kRope;
    job.q_head_stride = kRope;
    job.scale = 0.0625f;
    job.selections = selections;
    job.out = z.data();
    std::vector<std::int32_t> list;
    bench.measure(name + ", " + std::to_string(n_heads) + " heads",
                  products / bench.context.pool->n_threads(), "ns/(key, head) a thread", [&] {
                      if (make_list) {
                          list = make_list();
                          selections[0] = {list.data(), static_cast<std::int32_t>(list.size())};
                      }
                      mla_attention(bench.context, job, {positions.data(), 0});
                  });
}

void all_attention(Bench& bench) {
    const Cache cache(bench, 8192);
    for (const std::int64_t n_heads : {20, 64}) {
        for (const std::int64_t n_keys : {10, 256, 2048, 8192}) {
            attention(bench, "decode over " + std::to_string(n_keys) + " keys", cache, 1, n_heads,
                      n_keys, {});
        }
    }
    attention(bench, "4 rows over 2048 keys", cache, 4, 20, 2048, {});
    attention(bench, "prefill of 64 rows up to 2048 keys", cache, 64, 20, 2048, {});
    attention(bench, "prefill of 64 rows up to 512 keys", cache, 64, 20, 512, {});
    const Cache far(bench, 131072);
    // A new list each time, so that rows come from memory; drawing it is a few percent of the time.
    const auto draw = [&] {
        std::vector<std::int32_t> list;
        for (std::int32_t i = 0; i < 2048; ++i) {
            list.push_back(i * 64 + static_cast<std::int32_t>(bench.random() % 64));
        }
        return list;
    };
    attention(bench, "decode over 2048 of 131072 keys", far, 1, 20, 2048, draw);
    attention(bench, "decode over 2048 of 131072 keys", far, 1, 64, 2048, draw);
}

void index(Bench& bench, std::int64_t n_keys, std::int64_t n_rows) {
    constexpr std::int64_t kHeads = 32;
    constexpr std::int64_t kDim = 128;
    constexpr std::int64_t kTopK = 2048;
    Buffer keys = bench.allocate(round_up(n_keys, 16) * kDim);
    Buffer scales = bench.allocate(round_up(n_keys, 16) * 8);
    IndexCache cache;
    cache.capacity = n_keys;
    cache.dim = kDim;
    cache.keys = keys.as<std::int8_t>();
    cache.scales = scales.as<float>();
    auto x = bench.numbers(n_keys * kDim);
    const auto all = ascending(0, n_keys);
    write_index_cache(bench.context, cache, {x.data(), n_keys, kDim, kDim}, {all.data(), 0});
    const auto q = bench.numbers(n_rows * kHeads * kDim);
    const auto weights = bench.numbers(n_rows * kHeads);
    std::vector<std::int32_t> chosen(static_cast<std::size_t>(n_rows * kTopK));
    std::vector<Selection> selections(static_cast<std::size_t>(n_rows));
    const auto positions = ascending(n_keys - n_rows, n_rows);
    IndexSelect job;
    job.cache = &cache;
    job.n_rows = n_rows;
    job.n_heads = kHeads;
    job.q = q.data();
    job.head_weights = weights.data();
    job.weights_stride = kHeads;
    job.head_scale = 0.17677669f;
    job.key_scale = 0.088388346f;
    job.top_k = kTopK;
    job.positions = chosen.data();
    job.selections = selections.data();
    bench.measure("index, top 2048 of " + std::to_string(n_keys) + ", " + std::to_string(n_rows) +
                      " rows x 32 heads",
                  static_cast<double>(n_rows * n_keys * kHeads) / bench.context.pool->n_threads(),
                  "ns/(key, head) a thread", [&] {
                      index_select(bench.context, job, {positions.data(), 0});
                  });
}

void top_k(Bench& bench) {
    const auto scores = bench.numbers(100000);
    std::vector<std::int32_t> out(2048);
    bench.measure("choice of 2048 of 100000", 1e3, "us",
                  [&] { select_top_k(scores.data(), 100000, 2048, out.data()); });
}

void absorb(Bench& bench, WeightFormat format, const char* name, std::int64_t n_rows) {
    constexpr std::int64_t kHeads = 20;
    constexpr std::int64_t kNope = 192;
    const std::int64_t stride = packed_column_bytes(format, kNope, kLatent);
    Buffer packed = bench.allocate(kHeads * stride);
    std::vector<std::byte> payload(
        static_cast<std::size_t>(kNope * raw_row_bytes(format.kind, kLatent)));
    for (auto& b : payload) {
        b = static_cast<std::byte>(bench.random());
    }
    std::vector<float> scales(static_cast<std::size_t>(kNope * scales_per_row(format, kLatent)),
                              0.01f);
    for (std::int64_t h = 0; h < kHeads; ++h) {
        pack_columns({format, kNope, kLatent, payload.data(), scales.data()},
                     packed.data() + h * stride);
    }
    const HeadMatrices k{
        {format, WeightUse::ColumnSum, kNope, kLatent, packed.data()}, kHeads, stride};
    auto q = bench.numbers(n_rows * kHeads * kNope);
    std::vector<float> out(static_cast<std::size_t>(n_rows * kHeads * kLatent));
    const auto positions = ascending(0, n_rows);
    bench.measure(std::string("absorbed query, ") + name + ", " + std::to_string(n_rows) + " rows",
                  static_cast<double>(n_rows * kHeads) * 1e3 / bench.context.pool->n_threads(),
                  "us/head a thread", [&] {
                      absorb_query(bench.context, k,
                                   {q.data(), n_rows, kHeads * kNope, kHeads * kNope}, kNope,
                                   out.data(), {positions.data(), 0});
                  });
}

void measure_all(Bench& bench) {
    all_attention(bench);
    index(bench, 32768, 1);
    index(bench, 4096, 32);
    top_k(bench);
    for (const std::int64_t n_rows : {1, 64}) {
        absorb(bench, {WeightKind::Int4, 64}, "int4 group 64", n_rows);
        absorb(bench, {WeightKind::Int4, 0}, "int4 row", n_rows);
        absorb(bench, {WeightKind::Int8, 0}, "int8 row", n_rows);
    }
}

/// What the multiplier alone gives on this machine now, in one thread.
void print_ceilings(const std::vector<Isa>& isas) {
    const bool wide = isas.back() == Isa::Avx512;
    const MultiplyLoop loop = wide ? multiply_vpdpbusd_512 : multiply_maddubs;
    double best = 0;
    for (int i = 0; i < 15; ++i) {
        const double begin = now_ns(CLOCK_THREAD_CPUTIME_ID);
        const auto n = static_cast<double>(loop(100000));
        best = std::max(best, n / (now_ns(CLOCK_THREAD_CPUTIME_ID) - begin));
    }
    std::printf("bare %s: %.1f G MAC/s; 1088 MAC a (key, head): %.2f ns\n",
                wide ? "vpdpbusd zmm" : "vpmaddubsw ymm", best, 1088 / best);
}

}  // namespace

}  // namespace terrace::bench

int main(int argc, char** argv) {
    using namespace terrace::bench;
    const std::string wanted = argc > 1 ? argv[1] : "all";
    CpuDevice device;
    print_ceilings(available_isas());
    for (const Isa isa : available_isas()) {
        if ((wanted == "all" && isa == Isa::Scalar) ||
            (wanted != "all" && wanted != to_string(isa))) {
            continue;
        }
        for (const int n_threads : {1, 2}) {
            ThreadPool pool(n_threads);
            terrace::Stream stream;
            Bench bench;
            bench.device = &device;
            bench.context = {&pool, &stream, isa};
            bench.repetitions = argc > 2 ? std::atoi(argv[2]) : 21;
            bench.wanted = argc > 3 ? argv[3] : "";
            measure_all(bench);
        }
    }
    return 0;
}
