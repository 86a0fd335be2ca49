// Every family and every number of threads gives the bits of the scalar twin.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/cpu/attention/index_scores.h"
#include "tests/engine/cpu/attention/attention_fixture.h"

namespace terrace::cpu::test {

namespace {

/// The families but the twin itself.
std::vector<Isa> fast_isas() {
    std::vector<Isa> isas = available_isas();
    std::erase(isas, Isa::Scalar);
    return isas;
}

class EqualsTheTwin : public OnEveryIsa {};

INSTANTIATE_TEST_SUITE_P(Isa, EqualsTheTwin, ::testing::ValuesIn(fast_isas()), isa_name);

struct Shape {
    std::int64_t n_rows;
    std::int64_t n_heads;
    std::int64_t latent;
    std::int64_t rope;
    std::int64_t n_keys;  ///< that the last row sees
};

enum class Select { Dense, Gathered };

/// How numbers are drawn.
enum class Sizes { Usual, Wild, Peaked };

/// One attention problem; the cache is written by the twin.
struct Problem {
    Problem(std::uint64_t seed, Shape s, Select select, Session session, Sizes sizes)
        : shape(s), memory(s.n_keys + s.n_rows + 3, s.latent, s.rope, session) {
        Random random(seed);
        const float spread = sizes == Sizes::Wild ? 12.0f : 0.5f;
        const std::int64_t capacity = memory.cache.capacity;
        auto latent = random_numbers(random, capacity * s.latent, spread);
        auto key = random_numbers(random, capacity * s.rope, spread);
        Machine machine(1);
        const auto all = positions_from(0, capacity);
        write_mla_cache(machine.context(Isa::Scalar), memory.cache, rows_of(latent, s.latent),
                        rows_of(key, s.rope), {all.data(), 0});
        absorbed = random_numbers(random, s.n_rows * s.n_heads * s.latent, spread);
        // q_rope stands behind the nope part of each head, as the query projection leaves it.
        head_stride = s.rope + 5;
        q = random_numbers(random, s.n_rows * s.n_heads * head_stride + 5, spread);
        scale = sizes == Sizes::Peaked ? 3.0f : 0.05f;
        for (std::int64_t r = 0; r < s.n_rows; ++r) {
            const auto seen = std::max<std::int64_t>(1, s.n_keys - (s.n_rows - 1 - r));
            positions.push_back(static_cast<std::int32_t>(seen - 1));
            lists.emplace_back();
            if (select == Select::Gathered && r % 3 != 2) {
                for (std::int64_t p = 0; p < seen; ++p) {
                    if (random() % 3 != 0 || p + 1 == seen) {
                        lists.back().push_back(static_cast<std::int32_t>(p));
                    }
                }
            }
        }
        for (std::int64_t r = 0; r < s.n_rows; ++r) {
            const auto& list = lists[static_cast<std::size_t>(r)];
            selections.push_back(
                list.empty() ? Selection{nullptr, positions[static_cast<std::size_t>(r)] + 1}
                             : Selection{list.data(), static_cast<std::int32_t>(list.size())});
        }
    }

    std::vector<std::uint32_t> solve(Context context) {
        std::vector<float> z(static_cast<std::size_t>(shape.n_rows * shape.n_heads * shape.latent),
                             -1.0f);
        MlaAttention job;
        job.cache = &memory.cache;
        job.n_rows = shape.n_rows;
        job.n_heads = shape.n_heads;
        job.absorbed = absorbed.data();
        job.q_rope = q.data() + 5;
        job.q_row_stride = shape.n_heads * head_stride;
        job.q_head_stride = head_stride;
        job.scale = scale;
        job.selections = selections;
        job.out = z.data();
        mla_attention(context, job, {positions.data(), 1});
        return bits(z);
    }

    Shape shape;
    MlaMemory memory;
    std::vector<float> absorbed;
    std::vector<float> q;
    std::int64_t head_stride = 0;
    float scale = 1.0f;
    std::vector<std::int32_t> positions;
    std::vector<std::vector<std::int32_t>> lists;
    std::vector<Selection> selections;
};

void expect_equal(Isa isa, Problem& problem, const std::string& what) {
    Machine one(1);
    const auto expected = problem.solve(one.context(Isa::Scalar));
    for (const int n_threads : {1, 2, 3}) {
        Machine machine(n_threads);
        EXPECT_EQ(problem.solve(machine.context(isa)), expected)
            << what << ", " << n_threads << " threads";
        EXPECT_EQ(machine.stream().faults().first().has_value(),
                  one.stream().faults().first().has_value());
    }
}

std::string text(const Shape& s) {
    return std::to_string(s.n_rows) + " rows, " + std::to_string(s.n_heads) + " heads, " +
           std::to_string(s.latent) + "+" + std::to_string(s.rope) + ", " +
           std::to_string(s.n_keys) + " keys";
}

const Shape kShapes[] = {
    {1, 1, 64, 16, 1},     {1, 3, 72, 4, 15},     {1, 20, 512, 64, 10},  {1, 4, 192, 64, 16},
    {1, 7, 192, 16, 17},   {1, 2, 136, 24, 33},   {1, 4, 192, 64, 255},  {1, 5, 192, 64, 256},
    {1, 20, 192, 64, 257}, {1, 64, 64, 64, 300},  {2, 4, 512, 64, 513},  {3, 6, 72, 16, 600},
    {5, 4, 576, 72, 270},  {8, 20, 192, 64, 260}, {9, 3, 64, 4, 520},    {17, 5, 192, 16, 290},
    {40, 4, 72, 16, 530},  {33, 20, 64, 16, 40},  {6, 33, 136, 64, 259}, {1, 128, 64, 16, 70},
    {2, 1, 1024, 64, 300},
};

TEST_P(EqualsTheTwin, OverDenseKeys) {
    for (const Shape& shape : kShapes) {
        Problem problem(11, shape, Select::Dense, Session::Quantised, Sizes::Usual);
        expect_equal(GetParam(), problem, text(shape));
    }
}

TEST_P(EqualsTheTwin, OverGatheredKeys) {
    for (const Shape& shape : kShapes) {
        Problem problem(12, shape, Select::Gathered, Session::Quantised, Sizes::Usual);
        expect_equal(GetParam(), problem, text(shape));
    }
}

TEST_P(EqualsTheTwin, OverNumbersOfAllSizes) {
    for (const Sizes sizes : {Sizes::Wild, Sizes::Peaked}) {
        for (const Shape& shape : {kShapes[3], kShapes[8], kShapes[11], kShapes[15]}) {
            Problem problem(13, shape, Select::Gathered, Session::Quantised, sizes);
            expect_equal(GetParam(), problem, text(shape));
        }
    }
}

TEST_P(EqualsTheTwin, OverSeededShapes) {
    const std::uint64_t seed = std::random_device{}();
    RecordProperty("seed", std::to_string(seed));
    Random random(seed);
    for (int i = 0; i < 25; ++i) {
        const auto draw = [&](std::int64_t low, std::int64_t high) {
            return low +
                   static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
        };
        const Shape shape = {draw(1, 17), draw(1, 12), draw(1, 40) * 8, draw(1, 24) * 2,
                             draw(1, 620)};
        const Select select = random() % 2 == 0 ? Select::Dense : Select::Gathered;
        Problem problem(random(), shape, select, Session::Quantised, Sizes::Usual);
        expect_equal(GetParam(), problem, text(shape) + ", seed " + std::to_string(seed));
    }
}

TEST_P(EqualsTheTwin, InAFloatSession) {
    for (const Shape& shape : {kShapes[0], kShapes[1], kShapes[5], kShapes[11], kShapes[15]}) {
        Problem problem(14, shape, Select::Gathered, Session::Float, Sizes::Usual);
        expect_equal(GetParam(), problem, text(shape));
    }
}

TEST_P(EqualsTheTwin, WhenEqualKeysTie) {
    Problem problem(15, {2, 4, 128, 64, 300}, Select::Dense, Session::Quantised, Sizes::Usual);
    const std::int64_t width = problem.memory.cache.row_bytes();
    for (std::int64_t t = 1; t < 300; ++t) {
        std::memcpy(problem.memory.cache.rows + t * width, problem.memory.cache.rows,
                    static_cast<std::size_t>(width));
    }
    expect_equal(GetParam(), problem, "equal keys");
}

TEST_P(EqualsTheTwin, WhenKeysAreZero) {
    Problem problem(16, {1, 4, 128, 64, 40}, Select::Dense, Session::Quantised, Sizes::Usual);
    std::memset(problem.memory.cache.rows, 0, 40 * 192);
    std::memset(problem.memory.cache.scales, 0, 40 * 3 * 4);
    expect_equal(GetParam(), problem, "zero keys");
}

/// All weight kinds and legal groups.
std::vector<WeightFormat> formats() {
    std::vector<WeightFormat> all = {{WeightKind::Float32, 0}, {WeightKind::Int3, 64}};
    for (const std::int32_t group : {0, 16, 32, 64, 128, 256}) {
        all.push_back({WeightKind::Int4, group});
        all.push_back({WeightKind::Int8, group});
        all.push_back({WeightKind::Int2, group});
    }
    return all;
}

TEST_P(EqualsTheTwin, InAbsorbedQueriesOfEveryFormat) {
    Random random(21);
    const std::int64_t shapes[][4] = {// rows, heads, nope, latent
                                      {1, 3, 192, 512}, {1, 5, 64, 192}, {2, 2, 6, 72},
                                      {3, 4, 128, 136}, {17, 2, 40, 64}, {40, 3, 24, 72},
                                      {1, 1, 600, 24},  {5, 1, 1100, 70}};
    for (const WeightFormat format : formats()) {
        for (const auto& [n_rows, n_heads, nope, latent] : shapes) {
            Heads heads(random, format, WeightUse::ColumnSum, n_heads, nope, latent);
            const std::int64_t head_stride = nope + 8;
            auto q = random_numbers(random, n_rows * n_heads * head_stride, 0.5f);
            const auto positions = positions_from(0, n_rows);
            const auto solve = [&](Context context) {
                std::vector<float> out(static_cast<std::size_t>(n_rows * n_heads * latent));
                absorb_query(context, heads.matrices, rows_of(q, n_heads * head_stride),
                             head_stride, out.data(), {positions.data(), 0});
                return bits(out);
            };
            Machine one(1);
            const auto expected = solve(one.context(Isa::Scalar));
            for (const int n_threads : {1, 3}) {
                Machine machine(n_threads);
                EXPECT_EQ(solve(machine.context(GetParam())), expected)
                    << static_cast<int>(format.kind) << " group " << format.group << ", " << n_rows
                    << " rows, " << nope << " x " << latent;
            }
        }
    }
}

TEST_P(EqualsTheTwin, InAbsorbedQueriesAtTheLimits) {
    Random random(22);
    for (const WeightKind kind : {WeightKind::Int8, WeightKind::Int4}) {
        for (const int pattern : {0x00, 0x80, 0xff, 0x7f}) {  // -128, -8 and both ends
            Heads heads(random, {kind, 0}, WeightUse::ColumnSum, 1, 128, 64);
            std::fill(heads.payload.begin(), heads.payload.end(), static_cast<std::byte>(pattern));
            std::fill(heads.scales.begin(), heads.scales.end(), 1.0f);
            pack_columns({{kind, 0}, 128, 64, heads.payload.data(), heads.scales.data()},
                         heads.packed.data());
            for (const float value : {1.0f, -1.0f}) {
                std::vector<float> q(128, value);
                const std::int32_t position = 0;
                const auto solve = [&](Isa isa) {
                    std::vector<float> out(64);
                    absorb_query(machine_.context(isa), heads.matrices, rows_of(q, 128), 128,
                                 out.data(), {&position, 0});
                    return bits(out);
                };
                EXPECT_EQ(solve(GetParam()), solve(Isa::Scalar)) << pattern << " " << value;
            }
        }
    }
}

TEST_P(EqualsTheTwin, InProjectedValues) {
    Random random(23);
    for (const WeightFormat format : formats()) {
        for (const std::int64_t n_rows : {1, 2, 9}) {
            const std::int64_t n_heads = 3;
            const std::int64_t v_dim = 40;
            const std::int64_t latent = 136;
            Heads heads(random, format, WeightUse::RowDot, n_heads, v_dim, latent);
            const auto z = random_numbers(random, n_rows * n_heads * latent, 0.5f);
            const auto positions = positions_from(0, n_rows);
            const auto solve = [&](Context context) {
                std::vector<float> values(static_cast<std::size_t>(n_rows * n_heads * v_dim));
                Aligned<std::int8_t> q(n_rows * 128);
                std::vector<float> scales(static_cast<std::size_t>(n_rows * 2));
                std::vector<std::int32_t> sums(static_cast<std::size_t>(n_rows * 2));
                const ActivationRows out{values.data(),  n_heads * v_dim, q.data(),
                                         scales.data(),  sums.data(),     n_rows,
                                         n_heads * v_dim};
                project_values(context, heads.matrices, z.data(), out, {positions.data(), 0});
                auto all = bits(values);
                const auto s = bits(scales);
                all.insert(all.end(), s.begin(), s.end());
                all.insert(all.end(), sums.begin(), sums.end());
                all.insert(all.end(), q.data(), q.data() + n_rows * 128);
                return all;
            };
            Machine one(1);
            Machine three(3);
            const auto expected = solve(one.context(Isa::Scalar));
            EXPECT_EQ(solve(one.context(GetParam())), expected);
            EXPECT_EQ(solve(three.context(GetParam())), expected);
        }
    }
}

TEST_P(EqualsTheTwin, InWrittenCaches) {
    Random random(24);
    for (const Session session : {Session::Quantised, Session::Float}) {
        const std::int64_t n = 41;
        auto latent = random_numbers(random, n * 136, 9.0f);
        auto key = random_numbers(random, n * 24, 9.0f);
        const auto positions = positions_from(3, n);
        const auto solve = [&](Isa isa) {
            MlaMemory memory(50, 136, 24, session);
            IndexMemory index(50, 136, session);
            write_mla_cache(machine_.context(isa), memory.cache, rows_of(latent, 136),
                            rows_of(key, 24), {positions.data(), 0});
            write_index_cache(machine_.context(isa), index.cache, rows_of(latent, 136),
                              {positions.data(), 0});
            std::uint64_t h = 0;
            if (session == Session::Quantised) {
                h = fnv64(memory.cache.rows, 50 * 256);
                h = fnv64(memory.cache.scales, 50 * 4 * 4, h);
                h = fnv64(index.cache.keys, 64 * 192, h);
                h = fnv64(index.cache.scales, 64 * 3 * 4, h);
            } else {
                h = fnv64(memory.cache.values, 50 * 160 * 4);
                h = fnv64(index.cache.values, 50 * 136 * 4, h);
            }
            return h;
        };
        EXPECT_EQ(solve(GetParam()), solve(Isa::Scalar));
    }
}

/// Index keys, queries and weights of some rows.
struct IndexProblem {
    IndexProblem(Random& random,
                 std::int64_t rows,
                 std::int64_t heads,
                 std::int64_t dim,
                 std::int64_t n_keys,
                 Session session)
        : n_rows(rows), memory(n_keys, dim, session) {
        Machine machine(1);
        auto keys = random_numbers(random, n_keys * dim, 0.5f);
        const auto all = positions_from(0, n_keys);
        write_index_cache(machine.context(Isa::Scalar), memory.cache, rows_of(keys, dim),
                          {all.data(), 0});
        q = random_numbers(random, rows * heads * dim, 0.5f);
        weights = random_numbers(random, rows * (heads + 3), 0.3f);
        positions = positions_from(static_cast<std::int32_t>(n_keys - rows), rows);
        job.cache = &memory.cache;
        job.n_rows = rows;
        job.n_heads = heads;
        job.q = q.data();
        job.head_weights = weights.data();
        job.weights_stride = heads + 3;
        job.head_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(heads)));
        job.key_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
    }

    std::vector<std::uint32_t> scores(Context context, std::int64_t row) {
        const std::int64_t n = positions[static_cast<std::size_t>(row)] + 1;
        Aligned<float> out(round_up(n, 16));
        index_scores_of_row(context, job, row, {positions.data(), 0}, out.data());
        return bits(out.data(), static_cast<std::size_t>(n));
    }

    std::vector<std::int32_t> select(Context context, std::int64_t top_k) {
        std::vector<std::int32_t> chosen(static_cast<std::size_t>(n_rows * top_k), -1);
        std::vector<Selection> selections(static_cast<std::size_t>(n_rows));
        job.top_k = top_k;
        job.positions = chosen.data();
        job.selections = selections.data();
        index_select(context, job, {positions.data(), 0});
        for (const Selection& s : selections) {
            chosen.push_back(s.count);
            chosen.push_back(s.positions == nullptr ? 0 : 1);
        }
        return chosen;
    }

    std::int64_t n_rows;
    IndexMemory memory;
    std::vector<float> q;
    std::vector<float> weights;
    std::vector<std::int32_t> positions;
    IndexSelect job;
};

TEST_P(EqualsTheTwin, InIndexScoresAndChoices) {
    Random random(25);
    const std::int64_t shapes[][4] = {// rows, heads, dim, keys
                                      {1, 32, 128, 700}, {1, 3, 72, 40},    {2, 5, 24, 17},
                                      {3, 4, 64, 2100},  {17, 6, 128, 300}, {1, 1, 8, 16},
                                      {40, 2, 192, 64},  {1, 3, 640, 50}};
    for (const Session session : {Session::Quantised, Session::Float}) {
        for (const auto& [n_rows, heads, dim, n_keys] : shapes) {
            IndexProblem problem(random, n_rows, heads, dim, n_keys, session);
            Machine one(1);
            EXPECT_EQ(problem.scores(one.context(GetParam()), n_rows - 1),
                      problem.scores(one.context(Isa::Scalar), n_rows - 1))
                << n_rows << " rows, " << heads << " heads x " << dim << ", " << n_keys << " keys";
            for (const std::int64_t top_k : {std::int64_t{1}, n_keys / 3, n_keys - 1, n_keys}) {
                const auto expected = problem.select(one.context(Isa::Scalar), top_k);
                for (const int n_threads : {1, 2, 3}) {
                    Machine machine(n_threads);
                    EXPECT_EQ(problem.select(machine.context(GetParam()), top_k), expected)
                        << n_keys << " keys, first " << top_k;
                }
            }
        }
    }
}

}  // namespace

}  // namespace terrace::cpu::test
