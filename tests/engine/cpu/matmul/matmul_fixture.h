// Random matrices in the container's layout, random activations, and the row dot read straight from
// arithmetic.md 1 over the container's bytes (it shares no code with packing or kernels).
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "engine/cpu/matmul.h"
#include "engine/cpu/matmul/kernels.h"

namespace terrace::cpu {

/// A matrix as the container stores it, deliberately at an odd address.
struct StoredMatrix {
    WeightFormat format;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::vector<std::byte> payload;
    std::vector<float> scales;

    [[nodiscard]] RawMatrix raw() const;
};

/// Integers [rows, cols] in range of the kind, and [rows, scales_per_row] scales.
StoredMatrix store_matrix(WeightFormat format,
                          std::int64_t rows,
                          std::int64_t cols,
                          const std::vector<int>& weights,
                          std::vector<float> scales);

/// Random integers (with the smallest value often) and scales within [2^-10, 2^2).
StoredMatrix random_matrix(WeightFormat format,
                           std::int64_t rows,
                           std::int64_t cols,
                           std::mt19937_64& random);

/// Packed and aligned.
struct PackedMatrix {
    explicit PackedMatrix(const StoredMatrix& stored);

    [[nodiscard]] WeightMatrix view() const;

    StoredMatrix shape;  // without its payload
    std::vector<std::byte> memory;
    std::byte* data = nullptr;
};

/// n rows of activations and their quantised form.
struct Activations {
    Activations(std::int64_t n_rows, std::int64_t width, std::mt19937_64& random);

    /// Fills the quantised form again after `values` were changed.
    void quantise();

    ActivationRows rows;
    std::vector<float> values;
    std::vector<std::int8_t> q_memory;
    std::vector<float> scales;
    std::vector<std::int32_t> sums;
};

/// Row dot of one stored row with one quantised token.
float row_dot_reference(const RawMatrix& raw,
                        std::int64_t row,
                        const std::int8_t* q,
                        const float* scales);

/// dot32 of one stored float row with one token.
float dot32_reference(const RawMatrix& raw, std::int64_t row, const float* x);

/// A set of kernels that this processor can run.
struct NamedKernels {
    std::string name;
    Isa isa = Isa::Scalar;
    IsaKernels kernels;
};

std::vector<NamedKernels> runnable_kernels();

}  // namespace terrace::cpu
