// The parts of the AVX-512 table that live in files of their own.
#pragma once

#include "engine/cpu/attention/kernels.h"

namespace terrace::cpu {

void column_sum_avx512(const ColumnJob& job, std::uint32_t* worst);
void index_scores_avx512(const IndexJob& job);

}  // namespace terrace::cpu
