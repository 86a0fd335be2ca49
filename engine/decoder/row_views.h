// Short names for pieces of scratch memory, so that the blocks read as lists of ops.
#pragma once

#include "engine/device/check.h"
#include "engine/device/ops.h"

namespace terrace {

[[nodiscard]] inline FloatRows first_rows(FloatRows x, std::int64_t n) {
    CHECK(n <= x.n_rows);
    x.n_rows = n;
    return x;
}

[[nodiscard]] inline ActivationRows first_rows(const ActivationRows& x, std::int64_t n) {
    CHECK(n <= x.n_rows);
    return x.rows(0, n);
}

/// The same memory as narrower rows.
[[nodiscard]] inline FloatRows narrowed(FloatRows x, std::int64_t n, std::int64_t width) {
    CHECK(n <= x.n_rows && width <= x.width);
    return FloatRows{x.data, n, width, x.stride};
}

[[nodiscard]] inline ActivationRows narrowed(ActivationRows x, std::int64_t n, std::int64_t width) {
    CHECK(n <= x.n_rows && width <= x.width);
    x.n_rows = n;
    x.width = width;
    return x;
}

/// The float form alone, for ops whose result is not quantised.
[[nodiscard]] inline ActivationRows in_place(FloatRows x) {
    ActivationRows out;
    out.values = x.data;
    out.stride = x.stride;
    out.n_rows = x.n_rows;
    out.width = x.width;
    return out;
}

[[nodiscard]] inline FloatRows float_form(const ActivationRows& x) {
    return FloatRows{x.values, x.n_rows, x.width, x.stride};
}

[[nodiscard]] inline MatmulJob matmul_job(const WeightMatrix& weight,
                                          const ActivationRows& input,
                                          FloatRows out) {
    CHECK(weight.cols == input.width && weight.rows == out.width);
    MatmulJob job;
    job.weight = weight;
    job.input = input;
    job.out = out.data;
    job.out_stride = out.stride;
    return job;
}

}  // namespace terrace
