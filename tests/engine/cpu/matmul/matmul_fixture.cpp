#include "tests/engine/cpu/matmul/matmul_fixture.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/cpu/quantise8.h"
#include "tests/engine/cpu/matmul/evex_kernels.h"

namespace terrace::cpu {

namespace {

int smallest(WeightKind kind) {
    switch (kind) {
        case WeightKind::Int8:
            return -128;
        case WeightKind::Int4:
            return -8;
        case WeightKind::Int3:
            return -4;
        case WeightKind::Int2:
            return -2;
        case WeightKind::Float32:
            break;
    }
    return 0;
}

void put(WeightKind kind, std::uint8_t* row, std::int64_t c, int value) {
    const auto stored = static_cast<unsigned>(value - smallest(kind));
    switch (kind) {
        case WeightKind::Int8:
            row[c] = static_cast<std::uint8_t>(value);
            break;
        case WeightKind::Int4:
            row[c / 2] = static_cast<std::uint8_t>(row[c / 2] | (stored << (c % 2 * 4)));
            break;
        case WeightKind::Int3: {
            std::uint8_t* group = row + c / 64 * 24;
            const std::int64_t k = c % 64;
            group[k / 4] = static_cast<std::uint8_t>(group[k / 4] | ((stored & 3) << (k % 4 * 2)));
            group[16 + k / 8] =
                static_cast<std::uint8_t>(group[16 + k / 8] | ((stored >> 2) << (k % 8)));
            break;
        }
        case WeightKind::Int2:
            row[c / 4] = static_cast<std::uint8_t>(row[c / 4] | (stored << (c % 4 * 2)));
            break;
        case WeightKind::Float32:
            break;
    }
}

int get(WeightKind kind, const std::uint8_t* row, std::int64_t c) {
    switch (kind) {
        case WeightKind::Int8:
            return static_cast<std::int8_t>(row[c]);
        case WeightKind::Int4:
            return ((row[c / 2] >> (c % 2 * 4)) & 15) - 8;
        case WeightKind::Int3: {
            const std::uint8_t* group = row + c / 64 * 24;
            const std::int64_t k = c % 64;
            const int low = (group[k / 4] >> (k % 4 * 2)) & 3;
            return low + 4 * ((group[16 + k / 8] >> (k % 8)) & 1) - 4;
        }
        case WeightKind::Int2:
            return ((row[c / 4] >> (c % 4 * 2)) & 3) - 2;
        case WeightKind::Float32:
            break;
    }
    return 0;
}

}  // namespace

RawMatrix StoredMatrix::raw() const {
    return {format, rows, cols, payload.data() + 1, scales.empty() ? nullptr : scales.data()};
}

StoredMatrix store_matrix(WeightFormat format,
                          std::int64_t rows,
                          std::int64_t cols,
                          const std::vector<int>& weights,
                          std::vector<float> scales) {
    StoredMatrix m{format, rows, cols, {}, std::move(scales)};
    const std::int64_t row_bytes = raw_row_bytes(format.kind, cols);
    m.payload.resize(static_cast<std::size_t>(rows * row_bytes + 1));
    auto* bytes = reinterpret_cast<std::uint8_t*>(m.payload.data() + 1);
    for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < cols; ++c) {
            put(format.kind, bytes + r * row_bytes, c, weights[r * cols + c]);
        }
    }
    return m;
}

StoredMatrix random_matrix(WeightFormat format,
                           std::int64_t rows,
                           std::int64_t cols,
                           std::mt19937_64& random) {
    if (!format.quantised()) {
        StoredMatrix m{format, rows, cols, {}, {}};
        m.payload.resize(static_cast<std::size_t>(rows * cols * 4 + 1));
        std::normal_distribution<float> normal;
        for (std::int64_t i = 0; i < rows * cols; ++i) {
            const float w = random() % 16 == 0 ? -0.0f : normal(random);
            std::memcpy(m.payload.data() + 1 + 4 * i, &w, 4);
        }
        return m;
    }
    const int low = smallest(format.kind);
    std::vector<int> weights(static_cast<std::size_t>(rows * cols));
    for (int& w : weights) {
        const std::uint64_t draw = random();
        w = draw % 4 == 0   ? low
            : draw % 4 == 1 ? -low - 1
                            : low + static_cast<int>((draw >> 8) % static_cast<unsigned>(-2 * low));
    }
    std::vector<float> scales(static_cast<std::size_t>(rows * scales_per_row(format, cols)));
    std::uniform_real_distribution<float> mantissa(1.0f, 2.0f);
    for (float& s : scales) {
        s = std::ldexp(mantissa(random), static_cast<int>(random() % 12) - 10);
        if (random() % 32 == 0) {
            s = 0.0f;
        }
    }
    return store_matrix(format, rows, cols, weights, std::move(scales));
}

PackedMatrix::PackedMatrix(const StoredMatrix& stored)
    : shape{stored.format, stored.rows, stored.cols, {}, {}} {
    const std::int64_t bytes =
        packed_bytes(stored.format, WeightUse::RowDot, stored.rows, stored.cols);
    memory.assign(static_cast<std::size_t>(bytes + 64), std::byte{0xee});
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    data = memory.data() + ((64 - address % 64) % 64);
    pack(stored.raw(), WeightUse::RowDot, data);
}

WeightMatrix PackedMatrix::view() const {
    return {shape.format, WeightUse::RowDot, shape.rows, shape.cols, data};
}

Activations::Activations(std::int64_t n_rows, std::int64_t width, std::mt19937_64& random) {
    values.resize(static_cast<std::size_t>(n_rows * width));
    std::normal_distribution<float> normal;
    for (float& x : values) {
        const std::uint64_t draw = random() % 64;
        x = draw == 0   ? 0.0f
            : draw == 1 ? -0.0f
            : draw == 2 ? 0x1p-140f
                        : std::ldexp(normal(random), -static_cast<int>(random() % 8));
    }
    rows.n_rows = n_rows;
    rows.width = width;
    rows.stride = width;
    rows.values = values.data();
    q_memory.resize(static_cast<std::size_t>(n_rows * rows.q_stride() + 64));
    const auto address = reinterpret_cast<std::uintptr_t>(q_memory.data());
    rows.q = q_memory.data() + ((64 - address % 64) % 64);
    scales.resize(static_cast<std::size_t>(n_rows * rows.n_groups()));
    sums.resize(scales.size());
    rows.scales = scales.data();
    rows.sums = sums.data();
    quantise();
}

void Activations::quantise() {
    for (std::int64_t r = 0; r < rows.n_rows; ++r) {
        quantise_row_scalar(values.data() + r * rows.width, rows.width,
                            rows.q + r * rows.q_stride(), rows.scales + r * rows.n_groups(),
                            rows.sums + r * rows.n_groups());
    }
}

float row_dot_reference(const RawMatrix& raw,
                        std::int64_t row,
                        const std::int8_t* q,
                        const float* scales) {
    const std::int64_t n = raw.cols;
    const std::int64_t group = raw.format.group == 0 ? n : raw.format.group;
    const std::int64_t b = raw.format.group == 0 || raw.format.group >= 64 ? 64 : raw.format.group;
    const auto* payload = reinterpret_cast<const std::uint8_t*>(raw.payload) +
                          row * raw_row_bytes(raw.format.kind, n);
    const float* row_scales = raw.scales + row * scales_per_row(raw.format, n);
    float tot = 0.0f;
    for (std::int64_t segment = 0; segment < n; segment += 512) {
        float acc = 0.0f;
        for (std::int64_t begin = segment; begin < n && begin < segment + 512; begin += b) {
            std::int32_t isum = 0;
            for (std::int64_t c = begin; c < n && c < begin + b; ++c) {
                isum += get(raw.format.kind, payload, c) * q[c];
            }
            const float c = row_scales[begin / group] * scales[begin / 64];
            acc = std::fma(static_cast<float>(isum), c, acc);
        }
        tot = tot + acc;
    }
    return tot;
}

float dot32_reference(const RawMatrix& raw, std::int64_t row, const float* x) {
    float acc[32] = {};
    for (std::int64_t i = 0; i < raw.cols || i % 32 != 0; ++i) {
        float w = 0.0f;
        if (i < raw.cols) {
            std::memcpy(&w, raw.payload + (row * raw.cols + i) * 4, 4);
        }
        acc[i % 32] = std::fma(i < raw.cols ? x[i] : 0.0f, w, acc[i % 32]);
    }
    for (int m = 16; m >= 1; m /= 2) {
        for (int i = 0; i < m; ++i) {
            acc[i] = acc[i] + acc[i + m];
        }
    }
    return acc[0];
}

std::vector<NamedKernels> runnable_kernels() {
    std::vector<NamedKernels> all;
    for (const Isa isa : available_isas()) {
        all.push_back({to_string(isa), isa, kernels_of(isa)});
        if (isa == Isa::Avx512) {
            IsaKernels evex = kernels_of(Isa::AvxVnni);
            evex.integer.tile = matmul_tile_evex256;
            all.push_back({"avxvnni (EVEX form)", isa, evex});
        }
    }
    return all;
}

}  // namespace terrace::cpu
