#include "engine/cpu/attention/scratch.h"

#include <string>

#include "engine/device/result.h"

namespace terrace::cpu {

std::byte* op_scratch(Context context, std::int64_t bytes, ScratchSlot slot) {
    // Never 0 bytes: null is the answer of a machine that has no memory.
    std::byte* base = context.pool->scratch(bytes + 64, slot);
    if (base == nullptr) {
        context.stream->fail({ErrorCode::OutOfMemory,
                              "attention needs " + std::to_string(bytes) +
                                  " bytes of working memory, and the system gave none",
                              "", "close other programs, or use a shorter context"});
    }
    return base;
}

}  // namespace terrace::cpu
