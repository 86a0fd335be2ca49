// A way to see every intermediate that the reference data names, for --dump and for tests.
#pragma once

#include <cstdint>
#include <span>

#include "engine/device/ops.h"

namespace terrace {

/// Called by the decoder on the engine thread while a sweep runs; views are valid during the call
/// only. All rows of a call have consecutive positions starting at `first_position`.
class StepObserver {
public:
    virtual ~StepObserver() = default;

    /// Residual stream: index 0 after the embedding, index l + 1 after layer l. [n, H]
    virtual void hidden(std::int64_t index, std::int32_t first_position, FloatRows rows) = 0;
    /// After model.norm. [n, H]
    virtual void final_norm(std::int32_t first_position, FloatRows rows) = 0;
    /// Experts in order of choice and their weights. [n, k] each
    virtual void routing(std::int64_t layer,
                         std::int32_t first_position,
                         std::int64_t n_rows,
                         std::int64_t top_k,
                         const std::int32_t* ids,
                         const float* gates) = 0;
    /// What the rows may see, of layers with an indexer of their own. [n]
    virtual void selection(std::int64_t layer,
                           std::int32_t first_position,
                           std::span<const Selection> rows) = 0;
};

}  // namespace terrace
