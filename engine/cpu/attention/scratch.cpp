#include "engine/cpu/attention/scratch.h"

#include <string>

#include "engine/device/result.h"

namespace terrace::cpu {

std::byte* op_scratch(Context context, std::int64_t bytes, ScratchSlot slot) {
    std::byte* base = context.pool->scratch(bytes, slot);
    if (base == nullptr && bytes > 0) {
        context.stream->fail({ErrorCode::OutOfMemory,
                              "attention needs " + std::to_string(bytes) +
                                  " bytes of working memory, and the system gave none",
                              "", "close other programs, or use a shorter context"});
    }
    return base;
}

}  // namespace terrace::cpu
