// NaN and infinity: where they are reported, by whose name, and that they count as +0.
#include <limits>

#include "tests/engine/cpu/attention/attention_fixture.h"

namespace terrace::cpu::test {

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

class AttentionFaults : public OnEveryIsa {
protected:
    /// The first fault since the last look.
    std::optional<NumericFault> take_fault() {
        const auto fault = machine_.stream().faults().first();
        machine_.stream().faults().clear();
        return fault;
    }

    void expect_fault(std::int32_t position, std::int32_t layer, FaultSite site) {
        const auto fault = take_fault();
        ASSERT_TRUE(fault.has_value());
        EXPECT_EQ(fault->position, position);
        EXPECT_EQ(fault->layer, layer);
        EXPECT_EQ(fault->site, site);
    }
};

INSTANTIATE_TEST_SUITE_P(Isa, AttentionFaults, ::testing::ValuesIn(available_isas()), isa_name);

TEST_P(AttentionFaults, CacheWritesNameTheRowAndWriteZero) {
    for (const Session session : {Session::Quantised, Session::Float}) {
        for (const float bad : {kNan, -kNan, kInf, -kInf}) {
            MlaMemory memory(8, 64, 16, session);
            std::vector<float> latent(3 * 64, 1.0f);
            std::vector<float> key(3 * 16, 1.0f);
            latent[64 + 7] = bad;
            key[2 * 16 + 3] = bad;
            const std::int32_t positions[] = {4, 5, 6};
            write_mla_cache(context(), memory.cache, rows_of(latent, 64), rows_of(key, 16),
                            {positions, 2});
            expect_fault(5, 2, FaultSite::Quantise);
            if (session == Session::Quantised) {
                EXPECT_EQ(memory.cache.rows[5 * 128 + 6], 127);
                EXPECT_EQ(memory.cache.rows[5 * 128 + 7], 0);
                EXPECT_EQ(memory.cache.rows[6 * 128 + 64 + 3], 0);
            } else {
                EXPECT_EQ(memory.cache.values[5 * 80 + 6], 1.0f);
                EXPECT_EQ(memory.cache.values[5 * 80 + 7], 0.0f);
                EXPECT_EQ(memory.cache.values[6 * 80 + 64 + 3], 0.0f);
            }
            IndexMemory index(8, 16, session);
            write_index_cache(context(), index.cache, rows_of(key, 16), {positions, 2});
            expect_fault(6, 2, FaultSite::Quantise);
        }
    }
}

/// One head of two rows over 20 keys of ones.
struct Small {
    explicit Small(Context context, Session session, float key_value)
        : memory(20, 64, 16, session), absorbed(128, 1.0f), q(32, 1.0f), z(128) {
        std::vector<float> latent(20 * 64, 1.0f);
        std::vector<float> key(20 * 16, key_value);
        const auto all = positions_from(0, 20);
        write_mla_cache(context, memory.cache, rows_of(latent, 64), rows_of(key, 16),
                        {all.data(), 0});
    }

    void solve(Context context) {
        MlaAttention job;
        job.cache = &memory.cache;
        job.n_rows = 2;
        job.n_heads = 1;
        job.absorbed = absorbed.data();
        job.q_rope = q.data();
        job.q_row_stride = 16;
        job.q_head_stride = 16;
        job.selections = selections;
        job.out = z.data();
        const std::int32_t positions[] = {18, 19};
        mla_attention(context, job, {positions, 3});
    }

    MlaMemory memory;
    std::vector<float> absorbed;
    std::vector<float> q;
    std::vector<float> z;
    Selection selections[2] = {{nullptr, 19}, {nullptr, 20}};
};

TEST_P(AttentionFaults, AQueryThatIsNotFiniteIsAQuantiseFault) {
    Small small(context(), Session::Quantised, 1.0f);
    small.absorbed[64 + 3] = kNan;
    small.solve(context());
    expect_fault(19, 3, FaultSite::Quantise);
    EXPECT_EQ(bits(small.z.data(), 1), bits(small.z.data() + 64, 1));  // equal keys: z is c
    small.absorbed[64 + 3] = 1.0f;
    small.q[2] = kInf;
    small.solve(context());
    expect_fault(18, 3, FaultSite::Quantise);
}

TEST_P(AttentionFaults, AScoreThatIsNotFiniteIsAScoreFault) {
    for (const Session session : {Session::Quantised, Session::Float}) {
        Small small(context(), session, 1e37f);
        for (int i = 16; i < 32; ++i) {
            small.q[static_cast<std::size_t>(i)] = 3e38f;  // of the second row alone
        }
        small.solve(context());
        expect_fault(19, 3, FaultSite::Score);
        // Every score counts as +0, so every key weighs the same.
        EXPECT_NEAR(small.z[64], 1.0f, 0.01f);
        for (int i = 16; i < 32; ++i) {
            small.q[static_cast<std::size_t>(i)] = -3e38f;  // minus infinity is found as well
        }
        small.solve(context());
        expect_fault(19, 3, FaultSite::Score);
    }
}

TEST_P(AttentionFaults, FiniteAttentionReportsNothing) {
    for (const Session session : {Session::Quantised, Session::Float}) {
        Small small(context(), session, 1.0f);
        small.solve(context());
        EXPECT_FALSE(take_fault().has_value());
    }
}

TEST_P(AttentionFaults, AbsorbedQueriesReportTheirFactors) {
    Random random(3);
    for (const std::int32_t group : {0, 16, 64}) {
        Heads heads(random, {WeightKind::Int4, group}, WeightUse::ColumnSum, 2, 70, 72);
        for (const float bad : {kNan, kInf, -kInf}) {
            auto q = random_numbers(random, 3 * 140);
            q[140 + 75] = bad;
            const std::int32_t positions[] = {7, 8, 9};
            std::vector<float> out(3 * 2 * 72);
            const auto solve = [&](Isa isa) {
                absorb_query(machine_.context(isa), heads.matrices, rows_of(q, 140), 70, out.data(),
                             {positions, 1});
                return bits(out);
            };
            const auto fast = solve(GetParam());
            expect_fault(8, 1, FaultSite::Quantise);
            EXPECT_EQ(fast, solve(Isa::Scalar));
            q[140 + 75] = 0.0f;
            take_fault();
            EXPECT_EQ(fast, solve(Isa::Scalar)) << "a fault counts as +0";
            EXPECT_FALSE(take_fault().has_value());
        }
    }
}

TEST_P(AttentionFaults, ProjectedValuesReportZ) {
    Random random(4);
    Heads heads(random, {WeightKind::Int4, 64}, WeightUse::RowDot, 2, 32, 64);
    auto z = random_numbers(random, 2 * 2 * 64);
    z[2 * 64 + 64 + 5] = kInf;
    std::vector<float> values(2 * 64);
    const ActivationRows out{values.data(), 64, nullptr, nullptr, nullptr, 2, 64};
    const std::int32_t positions[] = {7, 8};
    project_values(context(), heads.matrices, z.data(), out, {positions, 5});
    expect_fault(8, 5, FaultSite::Quantise);
}

TEST_P(AttentionFaults, IndexScoresReportTheSumAndQueriesTheirQuantising) {
    for (const Session session : {Session::Quantised, Session::Float}) {
        IndexMemory memory(40, 64, session);
        std::vector<float> keys(40 * 64, 1.0f);
        const auto all = positions_from(0, 40);
        write_index_cache(context(), memory.cache, rows_of(keys, 64), {all.data(), 0});
        std::vector<float> q(2 * 3 * 64, 1.0f);
        std::vector<float> weights(2 * 3, 1.0f);
        std::vector<std::int32_t> chosen(2 * 4);
        Selection selections[2];
        IndexSelect job;
        job.cache = &memory.cache;
        job.n_rows = 2;
        job.n_heads = 3;
        job.q = q.data();
        job.head_weights = weights.data();
        job.weights_stride = 3;
        job.top_k = 4;
        job.positions = chosen.data();
        job.selections = selections;
        const std::int32_t positions[] = {38, 39};
        index_select(context(), job, {positions, 6});
        EXPECT_FALSE(take_fault().has_value());
        weights[3 + 1] = kNan;
        index_select(context(), job, {positions, 6});
        expect_fault(39, 6, FaultSite::Indexer);
        // All scores count as +0: the lowest positions win.
        EXPECT_EQ(std::vector<std::int32_t>(chosen.begin() + 4, chosen.end()),
                  (std::vector<std::int32_t>{0, 1, 2, 3}));
        weights[3 + 1] = kInf;
        index_select(context(), job, {positions, 6});
        expect_fault(39, 6, FaultSite::Indexer);
        weights[3 + 1] = 1.0f;
        q[0] = kNan;
        index_select(context(), job, {positions, 6});
        if (session == Session::Quantised) {
            expect_fault(38, 6, FaultSite::Quantise);
        } else {
            EXPECT_FALSE(take_fault().has_value());  // relu drops it, and sums are finite
        }
    }
}

TEST_P(AttentionFaults, RowsThatSeeFewKeysAreNotScored) {
    IndexMemory memory(8, 64, Session::Quantised);
    std::vector<float> q(64, kNan);
    const float weight = kNan;
    std::int32_t chosen[8] = {};
    Selection selection;
    IndexSelect job;
    job.cache = &memory.cache;
    job.n_rows = 1;
    job.n_heads = 1;
    job.q = q.data();
    job.head_weights = &weight;
    job.weights_stride = 1;
    job.top_k = 8;
    job.positions = chosen;
    job.selections = &selection;
    const std::int32_t position = 7;
    index_select(context(), job, {&position, 0});
    EXPECT_FALSE(take_fault().has_value());
    EXPECT_EQ(selection.positions, nullptr);
    EXPECT_EQ(selection.count, 8);
}

TEST_P(AttentionFaults, AStoppedRequestLeavesAtOnce) {
    std::stop_source source;
    source.request_stop();
    machine_.stream().set_stop(source.get_token());
    Small small(context(), Session::Quantised, 1.0f);
    std::fill(small.z.begin(), small.z.end(), -7.0f);
    small.solve(context());
    EXPECT_EQ(small.z[0], -7.0f);
}

}  // namespace

}  // namespace terrace::cpu::test
