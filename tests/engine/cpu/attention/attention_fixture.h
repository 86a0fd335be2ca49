// What the tests of the attention family share: a pool with a stream, caches with their memory,
// packed heads, seeded numbers.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "engine/cpu/attention.h"
#include "engine/cpu/attention/pack_columns.h"
#include "engine/cpu/matmul.h"
#include "engine/cpu/thread_pool.h"
#include "tests/engine/device/contract_vectors.h"

namespace terrace::cpu::test {

using terrace::test::bits;
using terrace::test::contract_vectors;
using terrace::test::floats_of;
using terrace::test::fnv64;
using terrace::test::words_of;

/// A pool and a stream, as an engine owns them.
class Machine {
public:
    explicit Machine(int n_threads) : pool_(n_threads) {}

    Context context(Isa isa) { return {&pool_, &stream_, isa}; }

    Stream& stream() { return stream_; }

private:
    ThreadPool pool_;
    Stream stream_;
};

class OnEveryIsa : public ::testing::TestWithParam<Isa> {
protected:
    Context context() { return machine_.context(GetParam()); }

    Machine machine_{2};
};

inline std::string isa_name(const ::testing::TestParamInfo<Isa>& info) {
    return to_string(info.param);
}

/// Numbers that begin on a 64-byte boundary.
template <typename T>
class Aligned {
public:
    explicit Aligned(std::int64_t n) : bytes_(static_cast<std::size_t>(n) * sizeof(T) + 64) {}

    T* data() {
        auto at = reinterpret_cast<std::uintptr_t>(bytes_.data());
        return reinterpret_cast<T*>((at + 63) / 64 * 64);
    }

private:
    std::vector<std::byte> bytes_;
};

using Random = std::mt19937_64;

/// Numbers of very different sizes, some zero.
inline std::vector<float> random_numbers(Random& random, std::int64_t n, float spread = 1.0f) {
    std::normal_distribution<float> normal;
    std::vector<float> x(static_cast<std::size_t>(n));
    for (float& v : x) {
        v = random() % 29 == 0 ? 0.0f : normal(random) * std::exp(spread * normal(random));
    }
    return x;
}

enum class Session { Quantised, Float };

/// An MLA cache with its memory, zeroed.
struct MlaMemory {
    MlaMemory(std::int64_t capacity, std::int64_t latent, std::int64_t rope, Session session)
        : rows(session == Session::Quantised ? capacity * (latent + rope + 128) : 0),
          scales(capacity * (latent + rope + 128) / 32),
          values(session == Session::Float ? capacity * (latent + rope) : 0) {
        cache.capacity = capacity;
        cache.latent = latent;
        cache.rope = rope;
        if (session == Session::Quantised) {
            cache.rows = rows.data();
            cache.scales = scales.data();
        } else {
            cache.values = values.data();
        }
    }

    Aligned<std::int8_t> rows;
    Aligned<float> scales;
    Aligned<float> values;
    MlaCache cache;
};

/// An index cache with its memory, zeroed.
struct IndexMemory {
    IndexMemory(std::int64_t capacity, std::int64_t dim, Session session)
        : keys(round_up(capacity, 16) * round_up(dim, 64)),
          scales(round_up(capacity, 16) * round_up(dim, 64) / 64),
          values(capacity * dim) {
        cache.capacity = capacity;
        cache.dim = dim;
        if (session == Session::Quantised) {
            cache.keys = keys.data();
            cache.scales = scales.data();
        } else {
            cache.values = values.data();
        }
    }

    Aligned<std::int8_t> keys;
    Aligned<float> scales;
    Aligned<float> values;
    IndexCache cache;
};

/// Random heads of a weight matrix in the container's layout, and packed.
struct Heads {
    Heads(Random& random,
          WeightFormat format,
          WeightUse use,
          std::int64_t n_heads,
          std::int64_t rows,
          std::int64_t cols)
        : payload(static_cast<std::size_t>(n_heads * rows * raw_row_bytes(format.kind, cols))),
          scales(static_cast<std::size_t>(n_heads * rows * scales_per_row(format, cols))),
          packed(n_heads * packed_bytes(format, use, rows, cols)) {
        std::normal_distribution<float> normal;
        if (format.quantised()) {
            for (auto& b : payload) {
                b = static_cast<std::byte>(random());
            }
        } else {
            for (std::size_t i = 0; i + 4 <= payload.size(); i += 4) {
                const float x = normal(random);
                std::memcpy(&payload[i], &x, 4);
            }
        }
        for (float& s : scales) {
            s = 0.01f * std::exp(normal(random));
        }
        const RawMatrix raw{format, n_heads * rows, cols, payload.data(),
                            format.quantised() ? scales.data() : nullptr};
        matrices.first = {format, use, rows, cols, packed.data()};
        matrices.n_heads = n_heads;
        matrices.stride_bytes = packed_bytes(format, use, rows, cols);
        for (std::int64_t h = 0; h < n_heads; ++h) {
            pack(raw_rows(raw, h * rows, rows), use, packed.data() + h * matrices.stride_bytes);
        }
    }

    std::vector<std::byte> payload;
    std::vector<float> scales;
    Aligned<std::byte> packed;
    HeadMatrices matrices;
};

/// 0 .. n - 1, plus first.
inline std::vector<std::int32_t> positions_from(std::int32_t first, std::int64_t n) {
    std::vector<std::int32_t> p(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < p.size(); ++i) {
        p[i] = first + static_cast<std::int32_t>(i);
    }
    return p;
}

inline FloatRows rows_of(std::vector<float>& x, std::int64_t width) {
    return {x.data(), static_cast<std::int64_t>(x.size()) / width, width, width};
}

}  // namespace terrace::cpu::test
