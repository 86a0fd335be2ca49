// How the attention family reports a numeric fault of one row.
#pragma once

#include <cstdint>

#include "engine/device/stream.h"
#include "engine/device/tensor.h"

namespace terrace::cpu {

/// Names the row of a fault. A view: the stream's fault word must outlive it. Thread-safe.
struct RowFaults {
    FaultWord* word = nullptr;
    std::int32_t position = 0;
    std::int32_t layer = 0;

    void report(FaultSite site) const { word->report({position, layer, site}); }
};

[[nodiscard]] inline RowFaults row_faults(Stream& stream, RowScope scope, std::int64_t row) {
    return {&stream.faults(), scope.positions[row], scope.layer};
}

}  // namespace terrace::cpu
