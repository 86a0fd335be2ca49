// How the pieces of one expert are fetched with as few reads as the file allows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/experts/expert_reader.h"

namespace terrace {

/// Gate, up and down: payload and scales of each.
inline constexpr std::size_t kMaxExpertParts = 6;

/// Where the bytes of one part are within the extents.
struct ReadPart {
    std::int32_t extent = -1;  ///< -1: the part is empty
    std::int64_t offset = 0;   ///< within the extent
    std::int64_t bytes = 0;
};

/// The extents of one expert and what is where in them. Value type without allocations.
struct ReadPlan {
    std::array<ReadExtent, kMaxExpertParts> extents;
    std::size_t n_extents = 0;
    std::array<ReadPart, kMaxExpertParts> parts;

    [[nodiscard]] std::span<const ReadExtent> used_extents() const {
        return std::span(extents).first(n_extents);
    }

    [[nodiscard]] std::int64_t bytes() const;
};

/// Sorts the parts by file and offset and joins those that touch; parts that overlap share their
/// bytes. parts: at most kMaxExpertParts, bytes 0 = no such part.
[[nodiscard]] ReadPlan plan_read(std::span<const ReadExtent> parts);

}  // namespace terrace
