// Scratch memory of an op of the attention family.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/cpu/cpu_context.h"
#include "engine/cpu/thread_pool.h"

namespace terrace::cpu {

/// The pool's scratch, aligned to 64; valid until the next op asks for its own. Null: the stream
/// keeps an OutOfMemory error that names the size.
[[nodiscard]] std::byte* op_scratch(Context context,
                                    std::int64_t bytes,
                                    ScratchSlot slot = ScratchSlot::Op);

}  // namespace terrace::cpu
