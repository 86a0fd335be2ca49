// Fast row ops equal the scalar twins bit for bit, for odd shapes, odd addresses and numbers of
// every size, and write nothing past their rows.
#include <xmmintrin.h>

#include <algorithm>
#include <numeric>

#include "engine/cpu/quantise8.h"
#include "tests/engine/cpu/row_ops/row_ops_fixture.h"

namespace terrace::cpu::test {
namespace {

constexpr std::int64_t kWidths[] = {1,  2,  7,  8,  15,  16,  17,  31,  32,
                                    33, 63, 64, 65, 127, 200, 584, 1160};
constexpr std::int64_t kRowCounts[] = {1, 2, 3, 17};
constexpr Traps kTraps[] = {Traps::None, Traps::Finite, Traps::NotFinite};

class RowOpsEquality : public OnEveryIsa {
protected:
    Context twin() { return alone_.context(Isa::Scalar); }

    /// Calls body(n_rows, width, traps, seed) for all shapes.
    template <typename Body>
    void for_shapes(Body body) {
        std::uint32_t seed = 1;
        for (const std::int64_t width : kWidths) {
            for (const std::int64_t n_rows : kRowCounts) {
                for (const Traps traps : kTraps) {
                    SCOPED_TRACE(::testing::Message() << n_rows << " rows of " << width);
                    body(n_rows, width, traps, seed);
                    seed += 10;
                }
            }
        }
        // Wide enough that the threads share it.
        body(3, 6144, Traps::Finite, seed);
        body(40, 2500, Traps::None, seed + 1);
    }

    static void expect_same(const Activations& got, const Activations& want) {
        EXPECT_EQ(bits(got.values.data), bits(want.values.data));
        EXPECT_EQ(got.q, want.q);
        EXPECT_EQ(bits(got.scales), bits(want.scales));
        EXPECT_EQ(got.sums, want.sums);
    }

    /// The quantised form is quantise8 of the whole row, however the row was cut among threads.
    static void expect_quantised(Activations& out) {
        Activations want(out.values.n_rows, out.values.row_width);
        const ActivationRows rows = want.view();
        for (std::int64_t r = 0; r < rows.n_rows; ++r) {
            quantise_row_scalar(out.values.view().row(r), rows.width, rows.q + r * rows.q_stride(),
                                rows.scales + r * rows.n_groups(), rows.sums + r * rows.n_groups());
        }
        EXPECT_EQ(out.q, want.q);
        EXPECT_EQ(bits(out.scales), bits(want.scales));
        EXPECT_EQ(out.sums, want.sums);
    }

    Machine alone_{1};
};

TEST_P(RowOpsEquality, RmsNormEqualsTheTwin) {
    for_shapes([&](std::int64_t n_rows, std::int64_t width, Traps traps, std::uint32_t seed) {
        Rows x(n_rows, width, seed, traps);
        const auto weight = numbers(static_cast<std::size_t>(width + 1), seed + 1);
        const auto positions = positions_of(n_rows);
        Activations got(n_rows, width);
        Activations want(n_rows, width);
        rms_norm(context(), x.view(), weight.data() + 1, 1e-5f, got.view(), {positions.data(), 4});
        rms_norm(twin(), x.view(), weight.data() + 1, 1e-5f, want.view(), {positions.data(), 4});
        expect_same(got, want);
        expect_quantised(got);
    });
}

TEST_P(RowOpsEquality, RmsNormMayWriteOverItsInput) {
    Rows x(5, 333, 9);
    const auto weight = numbers(333, 10);
    Activations apart(5, 333);
    Activations over(5, 333);
    over.values = x;
    rms_norm(context(), x.view(), weight.data(), 1e-6f, apart.view(), {});
    rms_norm(context(), over.values.view(), weight.data(), 1e-6f, over.view(), {});
    for (std::int64_t r = 0; r < 5; ++r) {
        EXPECT_EQ(bits(over.values.view().row(r), 333), bits(apart.values.view().row(r), 333));
    }
    EXPECT_EQ(over.q, apart.q);
}

TEST_P(RowOpsEquality, LayerNormEqualsTheTwin) {
    for_shapes([&](std::int64_t n_rows, std::int64_t width, Traps traps, std::uint32_t seed) {
        Rows got(n_rows, width, seed, traps);
        Rows want = got;
        const auto weight = numbers(static_cast<std::size_t>(width), seed + 1);
        const auto bias = numbers(static_cast<std::size_t>(width), seed + 2);
        layer_norm(context(), got.view(), weight.data(), bias.data(), 1e-6f);
        layer_norm(twin(), want.view(), weight.data(), bias.data(), 1e-6f);
        EXPECT_EQ(bits(got.data), bits(want.data));
    });
}

TEST_P(RowOpsEquality, ActivationsEqualTheTwin) {
    for_shapes([&](std::int64_t n_rows, std::int64_t width, Traps traps, std::uint32_t seed) {
        Rows gate(n_rows, width, seed, traps);
        Rows up(n_rows, width, seed + 1, traps);
        for (float& g : gate.data) {
            g = g * 64;  // beyond the clamp and the ends of exp
        }
        for (float& u : up.data) {
            u = u * 8;
        }
        for (const auto activation : {Activation::SwiGlu, Activation::ClampedSwiGlu}) {
            Activations got(n_rows, width);
            Activations want(n_rows, width);
            swiglu(context(), gate.view(), up.view(), activation, got.view(), {});
            swiglu(twin(), gate.view(), up.view(), activation, want.view(), {});
            expect_same(got, want);
            expect_quantised(got);
        }
    });
}

TEST_P(RowOpsEquality, RotationEqualsTheTwin) {
    std::uint32_t seed = 1;
    for (const std::int64_t dims : {2, 6, 8, 14, 16, 18, 32, 34, 64, 128}) {
        for (const std::int64_t n_heads : {1, 3, 64}) {
            for (const auto pairs : {RopePairs::Interleaved, RopePairs::HalfSplit}) {
                Rows got(9, n_heads * (dims + 3), ++seed, Traps::Finite);
                Rows want = got;
                const auto cos = numbers(static_cast<std::size_t>(20 * dims / 2), seed);
                const auto sin = numbers(static_cast<std::size_t>(20 * dims / 2), seed + 50);
                const std::vector<std::int32_t> positions = {3, 4, 19, 0, 7, 7, 2, 11, 18};
                RopeJob job{got.first() + 1, got.stride, dims + 3,        9, n_heads, dims, pairs,
                            cos.data(),      sin.data(), positions.data()};
                rope(context(), job);
                job.x = want.first() + 1;
                rope(twin(), job);
                EXPECT_EQ(bits(got.data), bits(want.data)) << dims << " " << n_heads;
            }
        }
    }
}

TEST_P(RowOpsEquality, SumOfExpertsEqualsTheTwin) {
    for_shapes([&](std::int64_t n_rows, std::int64_t width, Traps traps, std::uint32_t seed) {
        constexpr std::int64_t top_k = 5;
        std::mt19937 random(seed);
        std::vector<std::int32_t> ids;
        std::vector<std::int32_t> output_rows(static_cast<std::size_t>(n_rows * top_k));
        std::iota(output_rows.begin(), output_rows.end(), 0);
        std::shuffle(output_rows.begin(), output_rows.end(), random);
        for (std::int64_t r = 0; r < n_rows; ++r) {
            std::vector<std::int32_t> row = {0, 255, 17, 3, 90};
            std::shuffle(row.begin(), row.end(), random);
            ids.insert(ids.end(), row.begin(), row.end());
        }
        const auto gates = numbers(ids.size(), seed + 1);
        const auto outputs =
            numbers(static_cast<std::size_t>(n_rows * top_k * width), seed + 2, traps);
        const auto shared = numbers(static_cast<std::size_t>(n_rows * width), seed + 3, traps);
        for (const float* shared_rows : {shared.data(), static_cast<const float*>(nullptr)}) {
            Rows got(n_rows, width, seed + 4, traps);
            Rows want = got;
            ExpertSum job{n_rows,
                          top_k,
                          width,
                          ids.data(),
                          gates.data(),
                          outputs.data(),
                          output_rows.data(),
                          shared_rows,
                          got.first(),
                          got.stride};
            sum_experts(context(), job);
            job.residual = want.first();
            sum_experts(twin(), job);
            EXPECT_EQ(bits(got.data), bits(want.data));
        }
    });
}

TEST_P(RowOpsEquality, AdditionEqualsTheTwin) {
    for_shapes([&](std::int64_t n_rows, std::int64_t width, Traps traps, std::uint32_t seed) {
        Rows got(n_rows, width, seed, traps);
        Rows want = got;
        Rows y(n_rows, width, seed + 1, traps);
        add(context(), got.view(), y.view());
        add(twin(), want.view(), y.view());
        EXPECT_EQ(bits(got.data), bits(want.data));
    });
}

TEST_P(RowOpsEquality, DenormalsAreKeptThoughTheCallerFlushesThem) {
    constexpr unsigned kFlushes = 0x8040;  // FTZ and DAZ
    for (const std::int64_t n_rows : {1, 64}) {
        Rows x(n_rows, 4096, 1);
        Rows y(n_rows, 4096, 2);
        std::fill(x.data.begin(), x.data.end(), 0x1p-140f);
        std::fill(y.data.begin(), y.data.end(), 0x1p-141f);
        const unsigned before = _mm_getcsr();
        _mm_setcsr(before | kFlushes);
        add(context(), x.view(), y.view());
        _mm_setcsr(before);
        const std::vector<std::uint32_t> want(4096, 0x300u);  // 1.5 * 2^-140
        for (std::int64_t r = 0; r < n_rows; ++r) {
            ASSERT_EQ(bits(x.view().row(r), 4096), want) << r;
        }
    }
}

/// A table of weights in the container's layout, made from the integers.
struct Table {
    RawMatrix matrix;
    std::vector<std::byte> payload;
    std::vector<float> scales;
    std::vector<float> values;
};

void put(std::vector<std::byte>& bytes, std::size_t at, int value, std::int64_t shift) {
    bytes[at] |= static_cast<std::byte>(value << shift);
}

void pack_row(std::vector<std::byte>& payload,
              std::size_t row,
              WeightKind kind,
              const std::vector<int>& q) {
    for (std::size_t c = 0; c < q.size(); ++c) {
        switch (kind) {
            case WeightKind::Int8:
                payload[row + c] = static_cast<std::byte>(q[c]);
                break;
            case WeightKind::Int4:
                put(payload, row + c / 2, q[c] + 8, static_cast<std::int64_t>(c % 2 * 4));
                break;
            case WeightKind::Int3:
                put(payload, row + c / 64 * 24 + c % 64 / 4, (q[c] + 4) & 3,
                    static_cast<std::int64_t>(c % 4 * 2));
                put(payload, row + c / 64 * 24 + 16 + c % 64 / 8, (q[c] + 4) >> 2,
                    static_cast<std::int64_t>(c % 8));
                break;
            case WeightKind::Int2:
                put(payload, row + c / 4, q[c] + 2, static_cast<std::int64_t>(c % 4 * 2));
                break;
            case WeightKind::Float32:
                break;
        }
    }
}

Table make_table(WeightFormat format, std::int64_t rows, std::int64_t cols, std::uint32_t seed) {
    const int half = format.kind == WeightKind::Int8   ? 128
                     : format.kind == WeightKind::Int4 ? 8
                     : format.kind == WeightKind::Int3 ? 4
                                                       : 2;
    std::mt19937 random(seed);
    Table table;
    const std::int64_t row_bytes = raw_row_bytes(format.kind, cols);
    const std::int64_t n_scales = scales_per_row(format, cols);
    table.payload.resize(static_cast<std::size_t>(rows * row_bytes));
    table.scales = numbers(static_cast<std::size_t>(rows * n_scales), seed + 1);
    for (std::int64_t r = 0; r < rows; ++r) {
        std::vector<int> q;
        for (std::int64_t c = 0; c < cols; ++c) {
            q.push_back(static_cast<int>(random() % static_cast<unsigned>(2 * half)) - half);
            const std::int64_t group = format.group == 0 ? 0 : c / format.group;
            table.values.push_back(static_cast<float>(q.back()) *
                                   table.scales[static_cast<std::size_t>(r * n_scales + group)]);
        }
        pack_row(table.payload, static_cast<std::size_t>(r * row_bytes), format.kind, q);
    }
    table.matrix = {format, rows, cols, table.payload.data(), table.scales.data()};
    return table;
}

TEST_P(RowOpsEquality, EmbeddingIsTheIntegerTimesItsScaleInEveryFormat) {
    const WeightFormat formats[] = {{WeightKind::Int8, 0},   {WeightKind::Int8, 64},
                                    {WeightKind::Int4, 0},   {WeightKind::Int4, 16},
                                    {WeightKind::Int4, 32},  {WeightKind::Int4, 64},
                                    {WeightKind::Int4, 128}, {WeightKind::Int4, 256},
                                    {WeightKind::Int3, 64},  {WeightKind::Int2, 0}};
    std::uint32_t seed = 1;
    for (const WeightFormat format : formats) {
        for (const std::int64_t cols : {1, 33, 64, 65, 200, 520, 3000}) {
            const Table table = make_table(format, 7, cols, ++seed);
            const std::vector<std::int32_t> ids = {6, 0, 3, 3, 5, 1};
            Rows out(6, cols, seed);
            const auto before = out.data;
            embed(context(), table.matrix, ids, out.view());
            for (std::size_t i = 0; i < ids.size(); ++i) {
                const float* want = table.values.data() + ids[i] * cols;
                EXPECT_EQ(bits(out.view().row(static_cast<std::int64_t>(i)),
                               static_cast<std::size_t>(cols)),
                          bits(want, static_cast<std::size_t>(cols)))
                    << static_cast<int>(format.kind) << " group " << format.group << " cols "
                    << cols;
            }
            EXPECT_EQ(out.data.back(), before.back());
        }
    }
}

TEST_P(RowOpsEquality, EmbeddingOfAFloatTableIsACopy) {
    const auto values = numbers(5 * 37, 3, Traps::NotFinite);
    const RawMatrix table{{WeightKind::Float32, 0},
                          5,
                          37,
                          reinterpret_cast<const std::byte*>(values.data()),
                          nullptr};
    const std::vector<std::int32_t> ids = {4, 2};
    Rows out(2, 37, 1);
    embed(context(), table, ids, out.view());
    EXPECT_EQ(bits(out.view().row(0), 37), bits(values.data() + 4 * 37, 37));
    EXPECT_EQ(bits(out.view().row(1), 37), bits(values.data() + 2 * 37, 37));
}

INSTANTIATE_TEST_SUITE_P(Isas, RowOpsEquality, ::testing::ValuesIn(available_isas()), isa_name);

}  // namespace
}  // namespace terrace::cpu::test
