// Measures the matrix products against the two things that bound them: reading the weights and
// multiplying int8. Every figure is a ratio of runs that alternate in one process, with its spread,
// so that a machine shared with others still tells something.
//   bench_micro_matmul [GiB of weights, default 1] [rounds, default 9] [isa | all]
//                      [decode | prefill | all]
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "bench/bare_loops.h"
#include "engine/cpu/cpu_device.h"
#include "engine/cpu/matmul.h"
#include "engine/cpu/matmul/packed_layout.h"
#include "engine/cpu/thread_pool.h"

namespace terrace::bench {

namespace {

using namespace terrace::cpu;

constexpr std::int64_t kRows = 1536;  // an expert's gate or up projection
constexpr std::int64_t kCols = 2048;
constexpr std::int64_t kExperts = 8;  // matrices of one matmul call
constexpr std::int64_t kSlice = 32;   // matrices read or multiplied before the other side's turn

double now_s(clockid_t clock) {
    timespec t = {};
    clock_gettime(clock, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

/// Time of the work: of the thread when it is alone, which leaves out what others ran meanwhile.
double seconds(const ThreadPool& pool, const std::function<void()>& work) {
    const clockid_t clock = pool.n_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    const double begin = now_s(clock);
    work();
    return now_s(clock) - begin;
}

/// Median, and the values that a tenth of all lie below and above.
struct Spread {
    double low = 0;
    double median = 0;
    double high = 0;
};

Spread spread_of(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return {values[values.size() / 10], values[values.size() / 2],
            values[values.size() - 1 - values.size() / 10]};
}

/// Matrices of one format, filled with noise.
class WeightSet {
public:
    WeightSet(CpuDevice* device, WeightFormat format, std::int64_t bytes)
        : format_(format),
          matrix_bytes_(packed_bytes(format, WeightUse::RowDot, kRows, kCols)),
          n_matrices_(bytes / matrix_bytes_ / kSlice * kSlice) {
        Result<Buffer> buffer = device->allocate(n_matrices_ * matrix_bytes_);
        if (!buffer) {
            std::fprintf(stderr, "%s\n", buffer.error().text().c_str());
            std::exit(1);
        }
        buffer_ = std::move(buffer).value();
        fill();
    }

    [[nodiscard]] std::int64_t n_matrices() const { return n_matrices_; }

    [[nodiscard]] std::int64_t bytes() const { return n_matrices_ * matrix_bytes_; }

    [[nodiscard]] const std::byte* data() const { return buffer_.data(); }

    [[nodiscard]] WeightMatrix matrix(std::int64_t i) const {
        return {format_, WeightUse::RowDot, kRows, kCols, buffer_.data() + i * matrix_bytes_};
    }

private:
    void fill() {
        std::uint64_t state = 88172645463325252u;
        auto* words = buffer_.as<std::uint64_t>();
        for (std::int64_t i = 0; i < bytes() / 8; ++i) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            words[i] = state;
        }
        const PackedLayout layout = packed_layout(format_, kRows, kCols);
        for (std::int64_t group = 0; group < n_matrices_ * layout.n_groups; ++group) {
            for (std::int64_t block = 0; block < layout.n_blocks; ++block) {
                auto* scales = reinterpret_cast<float*>(
                    buffer_.data() + group * layout.group_bytes + scales_offset(layout, block));
                std::fill(scales, scales + 16 * layout.scales_per_block, 0.01f);
            }
        }
    }

    WeightFormat format_;
    std::int64_t matrix_bytes_;
    std::int64_t n_matrices_;
    Buffer buffer_;
};

/// Quantised rows, with outputs for kExperts products.
struct Inputs {
    explicit Inputs(std::int64_t n)
        : values(static_cast<std::size_t>(n * kCols)),
          q(static_cast<std::size_t>(n * kCols)),
          scales(static_cast<std::size_t>(n * kCols / 64)),
          sums(scales.size()),
          out(static_cast<std::size_t>(kExperts * n * kRows)) {
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] =
                static_cast<float>(static_cast<int>(i * 2654435761u % 2001) - 1000) * 0.001f;
        }
        rows = {values.data(), kCols, q.data(), scales.data(), sums.data(), n, kCols};
    }

    std::vector<MatmulJob> jobs(const WeightSet& weights, std::int64_t first) {
        std::vector<MatmulJob> list;
        for (std::int64_t e = 0; e < kExperts; ++e) {
            list.push_back({weights.matrix((first + e) % weights.n_matrices()),
                            rows,
                            {},
                            out.data() + e * rows.n_rows * kRows,
                            kRows});
        }
        return list;
    }

    std::vector<float> values;
    std::vector<std::int8_t> q;
    std::vector<float> scales;
    std::vector<std::int32_t> sums;
    std::vector<float> out;
    ActivationRows rows;
};

struct Machine {
    Isa isa;
    ThreadPool* pool;
    Stream* stream;
    ReadLoop read;
    MultiplyLoop multiply;
    int n_rounds;

    [[nodiscard]] Context context() const { return {pool, stream, isa}; }
};

/// Reads the matrices of some calls, in pieces handed out like tiles.
void read_slice(const Machine& m, const WeightSet& weights, std::int64_t first) {
    constexpr std::int64_t kPiece = 256 * 1024;
    const std::int64_t bytes = weights.bytes() / weights.n_matrices() * kSlice;
    const std::byte* data = weights.matrix(first).data;
    m.pool->run(bytes / kPiece, [&](std::int64_t tile, int) {
        volatile std::uint64_t sink = m.read(data + tile * kPiece, kPiece);
        static_cast<void>(sink);
    });
}

void measure_decode(const Machine& m, const WeightSet& weights, const char* what) {
    const std::int64_t counts[] = {1, 2, 4, 8};
    std::vector<Inputs> inputs;
    for (const std::int64_t n : counts) {
        inputs.emplace_back(n);
        const std::vector<std::int32_t> positions(static_cast<std::size_t>(n));
        quantise(m.context(), inputs.back().rows, {positions.data(), 0});
    }
    std::vector<double> read_rate;
    std::vector<double> rate[4];
    std::vector<double> ratio[4];
    const std::int64_t n_slices = weights.n_matrices() / kSlice;
    const double slice_bytes = static_cast<double>(weights.bytes()) / static_cast<double>(n_slices);
    for (std::int64_t turn = 0; turn < m.n_rounds * n_slices; ++turn) {
        // Far apart, so that neither side finds the other's weights in a cache.
        const std::int64_t first = turn % n_slices * kSlice;
        const std::int64_t other = (turn + n_slices / 2) % n_slices * kSlice;
        for (int i = 0; i < 4; ++i) {
            const double read_s = seconds(*m.pool, [&] { read_slice(m, weights, other); });
            const double ours_s = seconds(*m.pool, [&] {
                for (std::int64_t k = 0; k < kSlice; k += kExperts) {
                    const std::vector<MatmulJob> jobs = inputs[i].jobs(weights, first + k);
                    matmul(m.context(), jobs);
                }
            });
            read_rate.push_back(slice_bytes / read_s * 1e-9);
            rate[i].push_back(slice_bytes / ours_s * 1e-9);
            ratio[i].push_back(read_s / ours_s);
        }
    }
    const Spread read = spread_of(read_rate);
    std::printf("  decode %s, read loop %.1f GB/s (%.1f .. %.1f)\n", what, read.median, read.low,
                read.high);
    for (int i = 0; i < 4; ++i) {
        const Spread g = spread_of(rate[i]);
        const Spread r = spread_of(ratio[i]);
        std::printf("    %lld rows: %6.2f GB/s (%.2f .. %.2f)  %.3f of read (%.3f .. %.3f)\n",
                    static_cast<long long>(counts[i]), g.median, g.low, g.high, r.median, r.low,
                    r.high);
    }
}

double multiply_rate(const Machine& m) {
    constexpr std::int64_t kLoopRounds = 200'000;
    std::vector<std::int64_t> done(static_cast<std::size_t>(m.pool->n_threads()));
    const double s = seconds(*m.pool, [&] {
        m.pool->run(m.pool->n_threads(), [&](std::int64_t tile, int) {
            done[static_cast<std::size_t>(tile)] = m.multiply(kLoopRounds);
        });
    });
    double total = 0;
    for (const std::int64_t n : done) {
        total += static_cast<double>(n);
    }
    return total / s * 1e-9;
}

void measure_prefill(const Machine& m, const WeightSet& weights, const char* what) {
    for (const std::int64_t n : {16, 64, 512}) {
        Inputs inputs(n);
        std::vector<std::int32_t> positions(static_cast<std::size_t>(n));
        quantise(m.context(), inputs.rows, {positions.data(), 0});
        std::vector<double> rate;
        std::vector<double> ratio;
        std::vector<double> peak;
        for (int round = 0; round < 3 * m.n_rounds; ++round) {
            const double ceiling = multiply_rate(m);
            const std::int64_t calls = n < 128 ? 128 / n : 1;
            const double s = seconds(*m.pool, [&] {
                for (std::int64_t c = 0; c < calls; ++c) {
                    const std::vector<MatmulJob> jobs =
                        inputs.jobs(weights, (round * calls + c) * kExperts);
                    matmul(m.context(), jobs);
                }
            });
            const double products = static_cast<double>(calls * kExperts * n) * kRows * kCols;
            rate.push_back(products / s * 1e-9);
            peak.push_back(ceiling);
            ratio.push_back(products / s * 1e-9 / ceiling);
        }
        const Spread g = spread_of(rate);
        const Spread r = spread_of(ratio);
        std::printf(
            "  prefill %s %4lld rows: %6.1f G/s (%.1f .. %.1f)  %.3f of peak (%.3f .. %.3f), peak "
            "%.1f\n",
            what, static_cast<long long>(n), g.median, g.low, g.high, r.median, r.low, r.high,
            spread_of(peak).median);
    }
}

/// What a job costs in which every thread takes part: all tiles wait until the last has begun.
void measure_barrier(const Machine& m) {
    constexpr int kRuns = 500;
    const std::int64_t n = m.pool->n_threads();
    std::vector<double> costs;
    for (int run = 0; run < kRuns * m.n_rounds; ++run) {
        std::atomic<std::int64_t> begun{0};
        const double begin = now_s(CLOCK_MONOTONIC);
        m.pool->run(n, [&](std::int64_t, int) {
            begun.fetch_add(1);
            while (begun.load() != n) {
            }
        });
        costs.push_back((now_s(CLOCK_MONOTONIC) - begin) * 1e6);
    }
    const Spread s = spread_of(costs);
    std::printf("  a job with all threads: %.2f us (%.2f .. %.2f)\n", s.median, s.low, s.high);
}

bool wanted(const char* only, const char* name) {
    return only == nullptr || std::strcmp(only, "all") == 0 || std::strcmp(only, name) == 0;
}

int run(double gib, int n_rounds, const char* only_isa, const char* only_part) {
    const auto bytes = static_cast<std::int64_t>(gib * (1 << 30));
    CpuDevice device;
    const WeightSet int4(&device, {WeightKind::Int4, 64}, bytes);
    const WeightSet int8(&device, {WeightKind::Int8, 0}, bytes);
    Stream stream;
    for (const Isa isa : available_isas()) {
        if (isa == Isa::Scalar || !wanted(only_isa, to_string(isa))) {
            continue;
        }
        for (const int n_threads : {1, 2}) {
            ThreadPool pool(n_threads);
            const bool wide = isa == Isa::Avx512;
            const Machine m{isa,
                            &pool,
                            &stream,
                            wide ? read_avx512 : read_avx2,
                            wide                  ? multiply_vpdpbusd_512
                            : isa == Isa::AvxVnni ? multiply_vpdpbusd_256
                                                  : multiply_maddubs,
                            n_rounds};
            std::printf("%s, %d thread%s\n", to_string(isa), n_threads, n_threads == 1 ? "" : "s");
            measure_barrier(m);
            if (wanted(only_part, "decode")) {
                measure_decode(m, int4, "int4 g64");
                measure_decode(m, int8, "int8 row");
            }
            if (wanted(only_part, "prefill")) {
                measure_prefill(m, int4, "int4 g64");
                measure_prefill(m, int8, "int8 row");
            }
            std::fflush(stdout);
        }
    }
    return 0;
}

}  // namespace

}  // namespace terrace::bench

int main(int argc, char** argv) {
    const double gib = argc > 1 ? std::atof(argv[1]) : 1.0;
    const int n_rounds = argc > 2 ? std::atoi(argv[2]) : 9;
    return terrace::bench::run(gib, n_rounds, argc > 3 ? argv[3] : nullptr,
                               argc > 4 ? argv[4] : nullptr);
}
