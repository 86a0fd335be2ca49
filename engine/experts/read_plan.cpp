#include "engine/experts/read_plan.h"

#include <algorithm>

#include "engine/device/check.h"

namespace terrace {

std::int64_t ReadPlan::bytes() const {
    std::int64_t sum = 0;
    for (const ReadExtent& extent : used_extents()) {
        sum += extent.bytes;
    }
    return sum;
}

ReadPlan plan_read(std::span<const ReadExtent> parts) {
    CHECK(parts.size() <= kMaxExpertParts);
    const auto lies_before = [parts](std::size_t a, std::size_t b) {
        return parts[a].file != parts[b].file ? parts[a].file < parts[b].file
                                              : parts[a].offset < parts[b].offset;
    };
    // Insertion into six places at most.
    std::array<std::size_t, kMaxExpertParts> by_place = {};
    std::size_t n_parts = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        if (parts[i].bytes == 0) {
            continue;
        }
        std::size_t place = n_parts++;
        for (; place > 0 && lies_before(i, by_place[place - 1]); --place) {
            by_place[place] = by_place[place - 1];
        }
        by_place[place] = i;
    }
    ReadPlan plan;
    for (std::size_t k = 0; k < n_parts; ++k) {
        const ReadExtent& part = parts[by_place[k]];
        ReadExtent* last = plan.n_extents == 0 ? nullptr : &plan.extents[plan.n_extents - 1];
        const bool touches =
            last != nullptr && last->file == part.file && part.offset <= last->offset + last->bytes;
        if (!touches) {
            last = &plan.extents[plan.n_extents++];
            *last = {part.file, part.offset, 0};
        }
        last->bytes = std::max(last->bytes, part.offset + part.bytes - last->offset);
        plan.parts[by_place[k]] = {static_cast<std::int32_t>(plan.n_extents - 1),
                                   part.offset - last->offset, part.bytes};
    }
    return plan;
}

}  // namespace terrace
