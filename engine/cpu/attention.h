// Everything that reads or writes the cache (arithmetic.md 3) on the CPU.
#pragma once

#include "engine/cpu/cpu_context.h"
#include "engine/device/ops.h"

namespace terrace::cpu {

void write_mla_cache(
    Context context, const MlaCache& cache, FloatRows latent, FloatRows key, RowScope scope);
void write_index_cache(Context context, const IndexCache& cache, FloatRows keys, RowScope scope);
void absorb_query(Context context,
                  const HeadMatrices& k,
                  FloatRows q,
                  std::int64_t q_head_stride,
                  float* out,
                  RowScope scope);
void mla_attention(Context context, const MlaAttention& job, RowScope scope);
void project_values(Context context,
                    const HeadMatrices& v,
                    const float* z,
                    const ActivationRows& out,
                    RowScope scope);
void index_select(Context context, const IndexSelect& job, RowScope scope);

}  // namespace terrace::cpu
