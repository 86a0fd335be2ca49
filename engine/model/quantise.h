// The quantiser of the reference container (container.md 2.9) and its inverse, one row at a time.
// Every step is binary32, so that every writer produces the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "engine/device/result.h"
#include "engine/device/tensor.h"

namespace terrace {

/// The largest and smallest scale that a reader accepts, zero aside.
inline constexpr float kMaxScale = 0x1p40F;
inline constexpr float kMinScale = 0x1p-40F;

/// Why a row cannot be quantised.
struct QuantiseFault {
    enum class Kind : std::uint8_t { NotFinite, ScaleTooLarge };
    Kind kind = Kind::NotFinite;
    std::int64_t column = 0;  ///< of the weight that is to blame
    float value = 0.0F;
};

/// Quantises one row.
///   w        [cols] f32
///   format   an integer kind; int3 needs group 64, int8 and int2 group 0
///   payload  raw_row_bytes(format.kind, cols)
///   scales   scales_per_row(format, cols)
/// On a fault the outputs are undefined.
[[nodiscard]] std::optional<QuantiseFault> quantise_row(std::span<const float> w,
                                                        WeightFormat format,
                                                        std::byte* payload,
                                                        float* scales);

/// Widens one row: float(q) * scale, one rounding.
///   payload, scales  as in quantise_row
///   out              [cols] f32
void dequantise_row(const std::byte* payload,
                    const float* scales,
                    WeightFormat format,
                    std::span<float> out);

/// The error for a fault: names tensor, row and column.
[[nodiscard]] Error quantise_error(const std::string& tensor,
                                   std::int64_t row,
                                   const QuantiseFault& fault);

}  // namespace terrace
