// The name of one routed expert.
#pragma once

#include <compare>
#include <cstdint>

namespace terrace {

/// layer is numbered as in the checkpoint (MTP layers too), expert within its layer.
struct ExpertId {
    std::int32_t layer = 0;
    std::int32_t expert = 0;

    bool operator==(const ExpertId&) const = default;
    auto operator<=>(const ExpertId&) const = default;
};

}  // namespace terrace
