// The 256-bit kernels of AVX-VNNI with the instruction in its EVEX form, so that they can be run on
// processors that have AVX-512 and no AVX-VNNI. Everything but the encoding is the same source.
#pragma once

#include "engine/cpu/matmul/tile_work.h"

namespace terrace::cpu {

void matmul_tile_evex256(const TileWork& work);

}  // namespace terrace::cpu
