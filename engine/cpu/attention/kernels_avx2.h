// The parts of the AVX2 table that live in files of their own.
#pragma once

#include "engine/cpu/attention/kernels.h"

namespace terrace::cpu {

void column_sum_avx2(const ColumnJob& job, std::uint32_t* worst);
void index_scores_avx2(const IndexJob& job);

}  // namespace terrace::cpu
