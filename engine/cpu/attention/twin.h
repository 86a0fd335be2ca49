// The scalar twins of the attention family, written straight from arithmetic.md 1 and 3. They are
// what Isa::Scalar runs and what every fast version must equal bit for bit.
#pragma once

#include <cstdint>

#include "engine/cpu/attention/row_faults.h"
#include "engine/device/ops.h"

namespace terrace::cpu {

/// Groups of 64 that a cached row or an index key may have.
inline constexpr std::int64_t kMostCachedGroups = 64;

}  // namespace terrace::cpu

namespace terrace::cpu::twin {

/// Scratch numbers (f32) that `attend` needs for a selection of `count` keys.
[[nodiscard]] std::int64_t attend_scratch(const MlaCache& cache, std::int64_t count);

/// z of one head of one row: out [latent]. Both kinds of session.
void attend(
    const MlaAttention& job, std::int64_t row, std::int64_t head, RowFaults faults, float* scratch);

/// qa [latent] of one head: column sum of q [nope] over the rows of k.
void absorb(const WeightMatrix& k, const float* q, RowFaults faults, float* out);

/// Index scores of keys first .. first + n of one row: scores [n].
void index_scores(const IndexSelect& job,
                  std::int64_t row,
                  std::int64_t first,
                  std::int64_t n,
                  RowFaults faults,
                  float* scores);

/// Writes one cached row: latent [cache.latent], key [cache.rope].
void write_mla_row(const MlaCache& cache,
                   std::int64_t position,
                   const float* latent,
                   const float* key,
                   RowFaults faults);

/// Writes one index key [cache.dim].
void write_index_row(const IndexCache& cache,
                     std::int64_t position,
                     const float* key,
                     RowFaults faults);

}  // namespace terrace::cpu::twin
