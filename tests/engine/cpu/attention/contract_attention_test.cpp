// The recorded vectors of attention, absorbed query and indexer on every instruction set.
#include <algorithm>
#include <cmath>
#include <fstream>

#include "engine/cpu/attention/index_scores.h"
#include "tests/engine/cpu/attention/attention_fixture.h"

namespace terrace::cpu::test {

namespace {

/// The generator of the recorded keys.
struct SplitMix {
    std::uint64_t state = 0;

    std::uint64_t next() {
        state += 0x9e3779b97f4a7c15ULL;
        std::uint64_t z = state;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
        return z ^ (z >> 31);
    }

    float number(float factor) {
        const float a = static_cast<float>(static_cast<std::int32_t>(next() >> 32)) * 0x1p-31f;
        const auto e = static_cast<int>(next() & 7);
        return a * (std::ldexp(1.0f, -e) * factor);
    }
};

std::vector<std::int8_t> bytes_of(const std::string& hex) {
    std::vector<std::int8_t> b;
    for (std::size_t i = 0; i + 2 <= hex.size(); i += 2) {
        b.push_back(static_cast<std::int8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    }
    return b;
}

const nlohmann::json& more_vectors() {
    static const nlohmann::json vectors = [] {
        std::ifstream file(TERRACE_SOURCE_DIR "/tests/data/contract/more_vectors.json");
        return nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
    }();
    return vectors;
}

class ContractAttention : public OnEveryIsa {};

INSTANTIATE_TEST_SUITE_P(Isa, ContractAttention, ::testing::ValuesIn(available_isas()), isa_name);

void check_attention(Context context, const nlohmann::json& entry, Session session) {
    const auto n = entry["keys"].get<std::int64_t>();
    const auto latent = entry["latent"].get<std::int64_t>();
    const auto rope = entry["rope"].get<std::int64_t>();
    SplitMix numbers{entry["seed"].get<std::uint64_t>()};
    std::vector<float> q;
    for (std::int64_t i = 0; i < latent + rope; ++i) {
        q.push_back(numbers.number(4.0f));
    }
    ASSERT_EQ(bits(q), words_of(entry["q"]));
    std::vector<float> keys;
    for (std::int64_t i = 0; i < n * (latent + rope); ++i) {
        keys.push_back(numbers.number(1.0f));
    }
    ASSERT_EQ(fnv64(keys.data(), keys.size() * 4),
              std::stoull(entry["fnv64_of_keys"].get<std::string>(), nullptr, 16));
    MlaMemory memory(n, latent, rope, session);
    const auto positions = positions_from(0, n);
    write_mla_cache(context, memory.cache, {keys.data(), n, latent, latent + rope},
                    {keys.data() + latent, n, rope, latent + rope}, {positions.data(), 0});
    if (session == Session::Quantised) {
        const auto key_q = bytes_of(entry["first_key_q"].get<std::string>());
        EXPECT_EQ(
            std::vector<std::int8_t>(memory.cache.rows,
                                     memory.cache.rows + static_cast<std::ptrdiff_t>(key_q.size())),
            key_q);
        EXPECT_EQ(bits(memory.cache.scales, static_cast<std::size_t>(memory.cache.n_groups())),
                  words_of(entry["first_key_s"]));
    }
    const Selection selection{nullptr, static_cast<std::int32_t>(n)};
    std::vector<float> z(static_cast<std::size_t>(latent));
    MlaAttention job;
    job.cache = &memory.cache;
    job.n_rows = 1;
    job.n_heads = 1;
    job.absorbed = q.data();
    job.q_rope = q.data() + latent;
    job.scale = floats_of(entry["scale"])[0];
    job.selections = {&selection, 1};
    job.out = z.data();
    const std::int32_t position = static_cast<std::int32_t>(n - 1);
    mla_attention(context, job, {&position, 0});
    EXPECT_EQ(bits(z), words_of(entry[session == Session::Quantised ? "z" : "z_float_session"]))
        << n << " keys";
}

TEST_P(ContractAttention, GivesTheRecordedValueSums) {
    ASSERT_EQ(contract_vectors()["attention"].size(), 8u);
    for (const auto& entry : contract_vectors()["attention"]) {
        check_attention(context(), entry, Session::Quantised);
    }
}

TEST_P(ContractAttention, GivesTheRecordedValueSumsInAFloatSession) {
    for (const auto& entry : contract_vectors()["attention"]) {
        check_attention(context(), entry, Session::Float);
    }
}

TEST_P(ContractAttention, GivesTheRecordedAbsorbedQueries) {
    ASSERT_EQ(contract_vectors()["absorbed_query"].size(), 6u);
    for (const auto& entry : contract_vectors()["absorbed_query"]) {
        const auto cols = entry["kv_lora"].get<std::int64_t>();
        const auto rows = entry["nope"].get<std::int64_t>();
        const WeightFormat format{
            entry["bits"].get<int>() == 8 ? WeightKind::Int8 : WeightKind::Int4,
            entry["group"].get<std::int32_t>()};
        const auto w = bytes_of(entry["w"].get<std::string>());
        const auto scales = floats_of(entry["scales"]);
        std::vector<std::byte> payload(
            static_cast<std::size_t>(rows * raw_row_bytes(format.kind, cols)));
        for (std::int64_t r = 0; r < rows; ++r) {
            for (std::int64_t c = 0; c < cols; ++c) {
                const int value = w[static_cast<std::size_t>(r * cols + c)];
                const auto at = r * raw_row_bytes(format.kind, cols);
                if (format.kind == WeightKind::Int8) {
                    payload[static_cast<std::size_t>(at + c)] = static_cast<std::byte>(value);
                } else {
                    payload[static_cast<std::size_t>(at + c / 2)] |=
                        static_cast<std::byte>((value + 8) << (c % 2 * 4));
                }
            }
        }
        const RawMatrix raw{format, rows, cols, payload.data(), scales.data()};
        Aligned<std::byte> packed(packed_column_bytes(format, rows, cols));
        pack_columns(raw, packed.data());
        HeadMatrices k;
        k.first = {format, WeightUse::ColumnSum, rows, cols, packed.data()};
        k.n_heads = 1;
        auto q = floats_of(entry["q_nope"]);
        std::vector<float> qa(static_cast<std::size_t>(cols));
        const std::int32_t position = 0;
        absorb_query(context(), k, rows_of(q, rows), rows, qa.data(), {&position, 0});
        EXPECT_EQ(bits(qa), words_of(entry["qa"])) << format.group << " " << rows;
    }
}

TEST_P(ContractAttention, GivesTheRecordedAbsorbedQueryOfFloatWeights) {
    const auto& entry = more_vectors()["absorbed_query_float"];
    const auto cols = entry["kv_lora"].get<std::int64_t>();
    const auto rows = entry["nope"].get<std::int64_t>();
    const auto w = floats_of(entry["w_float"]);
    ASSERT_EQ(static_cast<std::int64_t>(w.size()), rows * cols);
    const WeightFormat format{};
    const RawMatrix raw{format, rows, cols, reinterpret_cast<const std::byte*>(w.data()), nullptr};
    Aligned<std::byte> packed(packed_column_bytes(format, rows, cols));
    pack_columns(raw, packed.data());
    HeadMatrices k;
    k.first = {format, WeightUse::ColumnSum, rows, cols, packed.data()};
    k.n_heads = 1;
    auto q = floats_of(entry["q_nope"]);
    std::vector<float> qa(static_cast<std::size_t>(cols));
    const std::int32_t position = 0;
    absorb_query(context(), k, rows_of(q, rows), rows, qa.data(), {&position, 0});
    EXPECT_EQ(bits(qa), words_of(entry["qa"]));
}

/// Key, query and weights of one recorded index entry.
struct IndexEntry {
    IndexEntry(Context context, const nlohmann::json& entry)
        : heads(entry["heads"].get<std::int64_t>()),
          dim(entry["d"].get<std::int64_t>()),
          q(floats_of(entry["q"])),
          keys(floats_of(entry["k"])),
          weights(floats_of(entry["w"])),
          n(static_cast<std::int64_t>(keys.size()) / dim),
          memory(n, dim, Session::Quantised) {
        const auto positions = positions_from(0, n);
        write_index_cache(context, memory.cache, rows_of(keys, dim), {positions.data(), 0});
        job.cache = &memory.cache;
        job.n_rows = 1;
        job.n_heads = heads;
        job.q = q.data();
        job.head_weights = weights.data();
        job.weights_stride = heads;
        job.head_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(heads)));
        job.key_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
        position = static_cast<std::int32_t>(n - 1);
    }

    std::vector<std::uint32_t> scores(Context context) {
        Aligned<float> out(round_up(n, 16));
        index_scores_of_row(context, job, 0, {&position, 0}, out.data());
        return bits(out.data(), static_cast<std::size_t>(n));
    }

    std::int64_t heads;
    std::int64_t dim;
    std::vector<float> q;
    std::vector<float> keys;
    std::vector<float> weights;
    std::int64_t n;
    IndexMemory memory;
    IndexSelect job;
    std::int32_t position = 0;
};

TEST_P(ContractAttention, GivesTheRecordedIndexScore) {
    IndexEntry entry(context(), contract_vectors()["indexer"]);
    EXPECT_EQ(entry.scores(context()), words_of(contract_vectors()["indexer"]["score"]));
}

TEST_P(ContractAttention, GivesManyRecordedIndexScoresAndTheirOrder) {
    ASSERT_EQ(more_vectors()["indexer"].size(), 3u);
    for (const auto& recorded : more_vectors()["indexer"]) {
        IndexEntry entry(context(), recorded);
        EXPECT_EQ(entry.scores(context()), words_of(recorded["scores"]));
        auto order = recorded["first_7_of_the_order"].get<std::vector<std::int32_t>>();
        std::vector<std::int32_t> chosen(order.size());
        Selection selection;
        entry.job.top_k = static_cast<std::int64_t>(order.size());
        entry.job.positions = chosen.data();
        entry.job.selections = &selection;
        index_select(context(), entry.job, {&entry.position, 0});
        std::sort(order.begin(), order.end());
        EXPECT_EQ(chosen, order);
        EXPECT_EQ(selection.count, 7);
        EXPECT_EQ(selection.positions, chosen.data());
    }
}

}  // namespace

}  // namespace terrace::cpu::test
