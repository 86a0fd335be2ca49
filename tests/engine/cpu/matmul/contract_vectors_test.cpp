// The recorded results of arithmetic.md 1, made by an implementation that shares no code with ours.
#include <gtest/gtest.h>

#include <bit>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/cpu/quantise8.h"
#include "engine/cpu/thread_pool.h"
#include "engine/device/stream.h"
#include "tests/engine/cpu/matmul/matmul_fixture.h"

namespace terrace::cpu {

namespace {

nlohmann::json read_vectors() {
    std::ifstream in(TERRACE_SOURCE_DIR "/tests/data/contract/vectors.json");
    return nlohmann::json::parse(in);
}

std::vector<std::uint32_t> hex_words(const std::string& text, std::size_t digits) {
    std::vector<std::uint32_t> words;
    for (std::size_t i = 0; i < text.size(); i += digits) {
        words.push_back(
            static_cast<std::uint32_t>(std::stoul(text.substr(i, digits), nullptr, 16)));
    }
    return words;
}

std::vector<float> hex_floats(const std::string& text) {
    std::vector<float> values;
    for (const std::uint32_t word : hex_words(text, 8)) {
        values.push_back(std::bit_cast<float>(word));
    }
    return values;
}

std::vector<int> hex_int8(const std::string& text) {
    std::vector<int> values;
    for (const std::uint32_t word : hex_words(text, 2)) {
        values.push_back(static_cast<std::int8_t>(word));
    }
    return values;
}

WeightKind kind_of(int bits) {
    return bits == 8   ? WeightKind::Int8
           : bits == 4 ? WeightKind::Int4
           : bits == 3 ? WeightKind::Int3
                       : WeightKind::Int2;
}

}  // namespace

TEST(ContractVectorsTest, QuantiseAgreesOnEveryInstructionSet) {
    const nlohmann::json vectors = read_vectors();
    ASSERT_GT(vectors["quantise"].size(), 0u);
    for (const auto& entry : vectors["quantise"]) {
        const std::vector<float> x = hex_floats(entry["x"]);
        const std::vector<int> expected_q = hex_int8(entry["q"]);
        const std::vector<float> expected_s = hex_floats(entry["s"]);
        for (const Isa isa : available_isas()) {
            std::vector<std::int8_t> q(expected_q.size());
            std::vector<float> scales(expected_s.size());
            const std::uint32_t largest = quantise_row(isa)(
                x.data(), static_cast<std::int64_t>(x.size()), q.data(), scales.data(), nullptr);
            EXPECT_EQ(largest >= kNotFiniteBits, entry["fault"].get<bool>());
            for (std::size_t i = 0; i < q.size(); ++i) {
                ASSERT_EQ(q[i], expected_q[i]) << to_string(isa) << " q " << i;
            }
            for (std::size_t i = 0; i < scales.size(); ++i) {
                ASSERT_EQ(std::bit_cast<std::uint32_t>(scales[i]),
                          std::bit_cast<std::uint32_t>(expected_s[i]))
                    << to_string(isa) << " scale " << i;
            }
        }
    }
}

TEST(ContractVectorsTest, RowDotAgreesOnEveryInstructionSet) {
    const nlohmann::json vectors = read_vectors();
    ASSERT_GT(vectors["rowdot"].size(), 0u);
    ThreadPool pool(1);
    Stream stream;
    for (const auto& entry : vectors["rowdot"]) {
        const auto n = entry["n"].get<std::int64_t>();
        std::vector<float> x(static_cast<std::size_t>(n), 1.0f);
        std::vector<int> w(static_cast<std::size_t>(n), -128);
        if (entry.contains("x")) {
            x = hex_floats(entry["x"]);
            w = hex_int8(entry["w"]);
        } else {  // the entry at the limit is given in words: all 1, but x[0] and x[700] -1
            x[0] = x[700] = -1.0f;
        }
        const WeightFormat format{kind_of(entry["bits"]), entry["group"].get<std::int32_t>()};
        const StoredMatrix m = store_matrix(format, 1, n, w, hex_floats(entry["scales"]));
        const PackedMatrix packed(m);
        std::mt19937_64 random(1);
        Activations activations(1, n, random);
        std::copy(x.begin(), x.end(), activations.values.begin());
        activations.quantise();
        const std::uint32_t expected = hex_words(entry["y"], 8).at(0);
        for (const NamedKernels& kernels : runnable_kernels()) {
            float y = 0.0f;
            const MatmulJob job{packed.view(), activations.rows, {}, &y, 1};
            matmul_with(kernels.kernels, {&pool, &stream, kernels.isa}, {&job, 1});
            EXPECT_EQ(std::bit_cast<std::uint32_t>(y), expected)
                << kernels.name << " bits " << entry["bits"] << " group " << entry["group"] << " n "
                << n;
        }
    }
}

}  // namespace terrace::cpu
