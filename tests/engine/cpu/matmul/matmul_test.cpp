#include "engine/cpu/matmul.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "engine/cpu/thread_pool.h"
#include "engine/device/stream.h"
#include "tests/engine/cpu/matmul/matmul_fixture.h"

namespace terrace::cpu {

namespace {

constexpr std::uint64_t kSeed = 20240607;

const WeightFormat kFormats[] = {
    {WeightKind::Float32, 0}, {WeightKind::Int8, 0},   {WeightKind::Int8, 16},
    {WeightKind::Int8, 32},   {WeightKind::Int8, 64},  {WeightKind::Int8, 128},
    {WeightKind::Int4, 0},    {WeightKind::Int4, 16},  {WeightKind::Int4, 32},
    {WeightKind::Int4, 64},   {WeightKind::Int4, 128}, {WeightKind::Int4, 256},
    {WeightKind::Int3, 64},   {WeightKind::Int3, 0},   {WeightKind::Int2, 0},
    {WeightKind::Int2, 64},   {WeightKind::Int2, 32},  {WeightKind::Int3, 16}};

/// An output that must not be touched outside [n, rows].
struct Output {
    Output(std::int64_t n, std::int64_t n_rows)
        : rows(n_rows), stride(n_rows + 3), values(static_cast<std::size_t>(n * stride), kGuard) {}

    static constexpr float kGuard = 12345.5f;
    std::int64_t rows;
    std::int64_t stride;
    std::vector<float> values;
};

void expect_equal(float expected, float found, const std::string& what) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(expected), std::bit_cast<std::uint32_t>(found))
        << what << ": expected " << expected << ", found " << found;
}

float reference(const StoredMatrix& m, std::int64_t row, const Activations& x, std::int64_t token) {
    if (!m.format.quantised()) {
        return dot32_reference(m.raw(), row, x.values.data() + token * x.rows.width);
    }
    return row_dot_reference(m.raw(), row, x.rows.q + token * x.rows.q_stride(),
                             x.rows.scales + token * x.rows.n_groups());
}

std::string name_of(WeightFormat format, std::int64_t rows, std::int64_t cols, std::int64_t n) {
    return "kind " + std::to_string(static_cast<int>(format.kind)) + " group " +
           std::to_string(format.group) + " [" + std::to_string(rows) + ", " +
           std::to_string(cols) + "] x " + std::to_string(n);
}

void check_output(const StoredMatrix& m,
                  const Activations& x,
                  const std::vector<std::int32_t>& gathered,
                  const Output& out,
                  const std::string& what) {
    const std::int64_t n = static_cast<std::int64_t>(out.values.size()) / out.stride;
    for (std::int64_t t = 0; t < n; ++t) {
        const std::int64_t token = gathered.empty() ? t : gathered[t];
        for (std::int64_t r = 0; r < m.rows; ++r) {
            expect_equal(reference(m, r, x, token), out.values[t * out.stride + r],
                         what + " row " + std::to_string(r) + " token " + std::to_string(t));
        }
        for (std::int64_t r = m.rows; r < out.stride; ++r) {
            ASSERT_EQ(out.values[t * out.stride + r], Output::kGuard) << what << " wrote too far";
        }
    }
}

class MatmulTest : public testing::Test {
protected:
    void multiply(const NamedKernels& kernels, std::span<const MatmulJob> jobs) {
        matmul_with(kernels.kernels, {&pool_, &stream_, kernels.isa}, jobs);
        EXPECT_FALSE(stream_.take_error().has_value());
    }

    ThreadPool pool_{2};
    Stream stream_;
    std::mt19937_64 random_{kSeed};
};

}  // namespace

TEST_F(MatmulTest, EveryKernelEqualsThePageForEveryFormatAndOneToSeventeenRows) {
    const std::pair<std::int64_t, std::int64_t> shapes[] = {
        {1, 1}, {5, 63}, {17, 65}, {33, 200}, {16, 512}, {37, 577}, {50, 1160}};
    for (const WeightFormat format : kFormats) {
        for (const auto& [rows, cols] : shapes) {
            const StoredMatrix m = random_matrix(format, rows, cols, random_);
            const PackedMatrix packed(m);
            for (std::int64_t n = 1; n <= 17; ++n) {
                const Activations x(n, cols, random_);
                for (const NamedKernels& kernels : runnable_kernels()) {
                    Output out(n, rows);
                    const MatmulJob job{packed.view(), x.rows, {}, out.values.data(), out.stride};
                    multiply(kernels, {&job, 1});
                    check_output(m, x, {}, out,
                                 kernels.name + " " + name_of(format, rows, cols, n));
                    ASSERT_FALSE(HasFatalFailure());
                }
            }
        }
    }
}

TEST_F(MatmulTest, EqualsThePageOverDrawnShapesWithGatheredRows) {
    for (int round = 0; round < 60; ++round) {
        const WeightFormat format = kFormats[random_() % std::size(kFormats)];
        const auto rows = static_cast<std::int64_t>(1 + random_() % 90);
        const auto cols = static_cast<std::int64_t>(1 + random_() % 1300);
        const auto n_inputs = static_cast<std::int64_t>(1 + random_() % 70);
        const StoredMatrix m = random_matrix(format, rows, cols, random_);
        const PackedMatrix packed(m);
        const Activations x(n_inputs, cols, random_);
        std::vector<std::int32_t> gathered(1 + random_() % 70);
        for (std::int32_t& row : gathered) {
            row = static_cast<std::int32_t>(random_() % static_cast<std::uint64_t>(n_inputs));
        }
        const auto n = static_cast<std::int64_t>(gathered.size());
        for (const NamedKernels& kernels : runnable_kernels()) {
            Output out(n, rows);
            const MatmulJob job{packed.view(), x.rows, gathered, out.values.data(), out.stride};
            multiply(kernels, {&job, 1});
            check_output(m, x, gathered, out, kernels.name + " " + name_of(format, rows, cols, n));
            ASSERT_FALSE(HasFatalFailure());
        }
    }
}

TEST_F(MatmulTest, SumsAtTheLimitAreExact) {
    for (const WeightFormat format : kFormats) {
        if (!format.quantised()) {
            continue;
        }
        const std::int64_t cols = 640;
        const int low = format.kind == WeightKind::Int8   ? -128
                        : format.kind == WeightKind::Int4 ? -8
                        : format.kind == WeightKind::Int3 ? -4
                                                          : -2;
        for (const int value : {low, -low - 1}) {
            const StoredMatrix m = store_matrix(
                format, 16, cols, std::vector<int>(16 * cols, value),
                std::vector<float>(static_cast<std::size_t>(16 * scales_per_row(format, cols)),
                                   0x1.8p-3f));
            const PackedMatrix packed(m);
            for (const float sign : {1.0f, -1.0f}) {
                Activations x(9, cols, random_);
                x.values.assign(x.values.size(), sign * 3.0f);
                x.rows.values = x.values.data();
                x.quantise();
                for (const NamedKernels& kernels : runnable_kernels()) {
                    Output out(9, 16);
                    const MatmulJob job{packed.view(), x.rows, {}, out.values.data(), out.stride};
                    multiply(kernels, {&job, 1});
                    check_output(m, x, {}, out, kernels.name);
                    ASSERT_FALSE(HasFatalFailure());
                }
            }
        }
    }
}

TEST_F(MatmulTest, AGroupOfManyJobsEqualsTheJobsAlone) {
    // Experts: many small matrices, some of them sharing inputs, one of them float, one empty.
    constexpr std::int64_t kJobs = 70;
    const Activations x(40, 328, random_);
    std::vector<StoredMatrix> stored;
    std::vector<PackedMatrix> packed;
    std::vector<std::vector<std::int32_t>> gathered(kJobs);
    for (std::int64_t i = 0; i < kJobs; ++i) {
        const WeightFormat format = kFormats[random_() % std::size(kFormats)];
        stored.push_back(
            random_matrix(format, static_cast<std::int64_t>(1 + random_() % 60), 328, random_));
        packed.emplace_back(stored.back());
        for (std::uint64_t k = 1 + random_() % 40; k > 0; --k) {
            gathered[i].push_back(static_cast<std::int32_t>(random_() % 40));
        }
        if (i % 2 == 1) {
            gathered[i] = gathered[i - 1];
        }
    }
    for (const NamedKernels& kernels : runnable_kernels()) {
        std::vector<Output> outs;
        std::vector<MatmulJob> jobs;
        for (std::int64_t i = 0; i < kJobs; ++i) {
            outs.emplace_back(static_cast<std::int64_t>(gathered[i].size()), stored[i].rows);
        }
        for (std::int64_t i = 0; i < kJobs; ++i) {
            // The same span object for pairs, so that panels are shared.
            const auto& rows = gathered[i - i % 2];
            jobs.push_back({packed[i].view(), x.rows, rows, outs[i].values.data(), outs[i].stride});
        }
        jobs.push_back({packed[0].view(), x.rows.rows(0, 0), {}, nullptr, 0});
        multiply(kernels, jobs);
        for (std::int64_t i = 0; i < kJobs; ++i) {
            check_output(stored[i], x, gathered[i], outs[i], kernels.name);
            ASSERT_FALSE(HasFatalFailure());
        }
    }
}

TEST_F(MatmulTest, MoreTokensThanATileHoldsGiveTheSameBits) {
    const StoredMatrix m = random_matrix({WeightKind::Int4, 64}, 70, 200, random_);
    const PackedMatrix packed(m);
    const Activations x(1100, 200, random_);
    for (const NamedKernels& kernels : runnable_kernels()) {
        Output out(1100, 70);
        const MatmulJob job{packed.view(), x.rows, {}, out.values.data(), out.stride};
        multiply(kernels, {&job, 1});
        check_output(m, x, {}, out, kernels.name);
        ASSERT_FALSE(HasFatalFailure());
    }
}

TEST_F(MatmulTest, ThreadCountNeverChangesABit) {
    const StoredMatrix m = random_matrix({WeightKind::Int4, 64}, 600, 704, random_);
    const PackedMatrix packed(m);
    for (const std::int64_t n : {1, 3, 40}) {
        const Activations x(n, 704, random_);
        for (const NamedKernels& kernels : runnable_kernels()) {
            std::vector<float> first;
            for (int n_threads = 1; n_threads <= 3; ++n_threads) {
                ThreadPool pool(n_threads);
                Output out(n, 600);
                const MatmulJob job{packed.view(), x.rows, {}, out.values.data(), out.stride};
                matmul_with(kernels.kernels, {&pool, &stream_, kernels.isa}, {&job, 1});
                if (n_threads == 1) {
                    first = out.values;
                }
                ASSERT_EQ(0, std::memcmp(first.data(), out.values.data(), first.size() * 4));
            }
        }
    }
}

TEST_F(MatmulTest, AStoppedRequestLeavesItsOutputAlone) {
    const StoredMatrix m = random_matrix({WeightKind::Int4, 64}, 64, 128, random_);
    const PackedMatrix packed(m);
    const Activations x(3, 128, random_);
    Output out(3, 64);
    std::stop_source stop;
    stop.request_stop();
    stream_.set_stop(stop.get_token());
    const MatmulJob job{packed.view(), x.rows, {}, out.values.data(), out.stride};
    matmul({&pool_, &stream_, Isa::Scalar}, {&job, 1});
    for (const float value : out.values) {
        EXPECT_EQ(value, Output::kGuard);
    }
}

TEST(PackTest, WholeInt4GroupsOf64TakeTheBytesOfTheContainer) {
    for (const auto& [rows, cols] :
         {std::pair<std::int64_t, std::int64_t>{1536, 2048}, {16, 64}, {2048, 1536}, {160, 192}}) {
        EXPECT_EQ(packed_bytes({WeightKind::Int4, 64}, WeightUse::RowDot, rows, cols),
                  rows * cols / 2 + rows * cols / 64 * 4);
        EXPECT_EQ(packed_bytes({WeightKind::Int8, 0}, WeightUse::RowDot, rows, cols),
                  rows * cols + rows * 4);
    }
}

TEST(PackTest, FillsItsBytesAndNoMore) {
    std::mt19937_64 random(kSeed);
    for (const WeightFormat format : kFormats) {
        for (const auto& [rows, cols] :
             {std::pair<std::int64_t, std::int64_t>{1, 1}, {19, 130}, {32, 577}}) {
            const StoredMatrix m = random_matrix(format, rows, cols, random);
            const std::int64_t bytes = packed_bytes(format, WeightUse::RowDot, rows, cols);
            ASSERT_EQ(bytes % 64, 0);
            std::vector<std::vector<std::byte>> results;
            for (const std::byte fill : {std::byte{0x5a}, std::byte{0xa5}}) {
                std::vector<std::byte> memory(static_cast<std::size_t>(bytes + 192), fill);
                const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
                std::byte* data = memory.data() + 64 + ((64 - address % 64) % 64);
                pack(m.raw(), WeightUse::RowDot, data);
                for (int i = 1; i <= 64; ++i) {
                    ASSERT_EQ(data[-i], fill);
                }
                ASSERT_EQ(data[bytes], fill);
                results.emplace_back(data, data + bytes);
            }
            ASSERT_EQ(results[0], results[1]) << "some bytes were not written";
        }
    }
}

}  // namespace terrace::cpu
