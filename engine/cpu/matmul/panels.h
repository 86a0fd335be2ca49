// Brings quantised activations into the order in which the kernels eat them, gathering the wanted
// rows on the way.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/cpu/matmul/tile_work.h"
#include "engine/device/tensor.h"

namespace terrace::cpu {

/// Which panels a product needs. Two products with equal specs share them.
struct PanelSpec {
    ActivationRows input;
    const std::int32_t* rows = nullptr;  ///< [n_tokens] rows of the input; null: 0 .. n_tokens - 1
    std::int64_t n_tokens = 0;
    std::int64_t width = 1;
    std::int64_t scales_per_block = 1;
    Correction correction = Correction::None;
    std::int32_t offset = 0;

    [[nodiscard]] std::int64_t n_panels() const { return (n_tokens + width - 1) / width; }

    [[nodiscard]] bool same_as(const PanelSpec& other) const;
};

/// Bytes that the panels take; a multiple of 64.
[[nodiscard]] std::int64_t panel_bytes(const PanelSpec& spec);

/// Lays the panels out in `memory` (aligned to 64). A single token's numbers are used where they
/// stand; only its corrections are written.
[[nodiscard]] Panels place_panels(const PanelSpec& spec, std::byte* memory);

/// Fills one panel. Panels may be filled by different threads.
void fill_panel(const PanelSpec& spec, const Panels& panels, std::int64_t panel);

}  // namespace terrace::cpu
