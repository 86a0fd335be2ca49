// The kernels of AVX-VNNI with the instruction in its EVEX form, so that they can be run on
// processors that have AVX-512 and no AVX-VNNI. Everything but the encoding is the same source.
#pragma once

#include "engine/cpu/attention/kernels.h"

namespace terrace::cpu {

[[nodiscard]] const AttentionKernels& attention_kernels_evex256();

}  // namespace terrace::cpu
