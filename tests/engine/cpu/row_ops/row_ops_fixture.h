// What the tests of the row ops share: a pool with a stream, rows full of traps, and the list of
// instruction sets of this machine.
#pragma once

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

#include "engine/cpu/row_ops.h"
#include "engine/cpu/thread_pool.h"
#include "tests/engine/device/contract_vectors.h"

namespace terrace::cpu::test {

using terrace::test::bits;
using terrace::test::contract_vectors;
using terrace::test::floats_of;
using terrace::test::more_contract_vectors;
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

/// A base class for tests that run once for every instruction set.
class OnEveryIsa : public ::testing::TestWithParam<Isa> {
protected:
    Context context() { return machine_.context(GetParam()); }

    Machine machine_{3};
};

inline std::string isa_name(const ::testing::TestParamInfo<Isa>& info) {
    return to_string(info.param);
}

/// Which traps random numbers contain.
enum class Traps { None, Finite, NotFinite };

/// Seeded numbers of many sizes; with traps also zeros of both signs, denormals, huge numbers and,
/// if asked, NaN and infinity.
inline std::vector<float> numbers(std::size_t n, std::uint32_t seed, Traps traps = Traps::None) {
    std::mt19937 random(seed);
    std::vector<float> x(n);
    for (float& value : x) {
        const auto exponent =
            static_cast<std::uint32_t>(127 - 12 + static_cast<int>(random() % 14));
        const std::uint32_t word = (random() & 0x807fffff) | exponent << 23;
        value = std::bit_cast<float>(word);
        if (traps == Traps::None || random() % 16 != 0) {
            continue;
        }
        switch (random() % (traps == Traps::Finite ? 5 : 7)) {
            case 0:
                value = 0.0f;
                break;
            case 1:
                value = -0.0f;
                break;
            case 2:
                value = std::bit_cast<float>(word & 0x807fffff);
                break;
            case 3:
                value = value * 0x1p100f;
                break;
            case 4:
                value = value * 0x1p-100f;
                break;
            case 5:
                value = std::numeric_limits<float>::quiet_NaN();
                break;
            default:
                value = std::copysign(std::numeric_limits<float>::infinity(), value);
                break;
        }
    }
    return x;
}

/// Rows at an odd address with room behind each row, so that a write past the end is seen.
struct Rows {
    Rows(std::int64_t rows, std::int64_t width, std::uint32_t seed, Traps traps = Traps::None)
        : n_rows(rows),
          row_width(width),
          stride(width + 5),
          data(numbers(static_cast<std::size_t>(rows * stride + 3), seed, traps)) {}

    float* first() { return data.data() + 3; }

    FloatRows view() { return {first(), n_rows, row_width, stride}; }

    std::int64_t n_rows;
    std::int64_t row_width;
    std::int64_t stride;
    std::vector<float> data;
};

/// Activations in both forms, all of it owned.
struct Activations {
    Activations(std::int64_t n_rows, std::int64_t width)
        : values(n_rows, width, 0),
          q(static_cast<std::size_t>(n_rows * round_up(width, 64)), 99),
          scales(static_cast<std::size_t>(n_rows * round_up(width, 64) / 64), -1.0f),
          sums(scales.size(), -1) {}

    ActivationRows view() {
        return {values.first(), values.stride, q.data(),        scales.data(),
                sums.data(),    values.n_rows, values.row_width};
    }

    Rows values;
    std::vector<std::int8_t> q;
    std::vector<float> scales;
    std::vector<std::int32_t> sums;
};

/// Positions 100, 101 ...
inline std::vector<std::int32_t> positions_of(std::int64_t n_rows) {
    std::vector<std::int32_t> positions(static_cast<std::size_t>(n_rows));
    for (std::size_t i = 0; i < positions.size(); ++i) {
        positions[i] = static_cast<std::int32_t>(100 + i);
    }
    return positions;
}

}  // namespace terrace::cpu::test
