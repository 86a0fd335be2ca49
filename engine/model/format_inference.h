// Which integer format a payload with `.qs` scales is: containers do not say, byte counts do
// (container.md 2.5). Internal to engine/model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/device/result.h"
#include "engine/model/weights.h"

namespace terrace {

/// What is known about one payload.
struct PayloadFacts {
    std::int64_t rows = 0;  ///< from config.json
    std::int64_t cols = 0;
    std::int64_t payload_bytes = 0;
    std::int64_t n_scales = 0;
    std::optional<std::int64_t> stated_group;  ///< `__metadata__` of the file
    std::string stated_format;                 ///< colibri.fmt entry; empty: none
};

struct InferredFormat {
    Storage storage = Storage::Int8;
    std::int32_t group = 0;
};

/// Ties are resolved as the reference reader does: int8 before fp8, int4 before int3, and the
/// first group size of its list. Errors: Corrupt with all byte counts that would fit, Unsupported
/// for a group size or a format that we do not run. They name no tensor.
[[nodiscard]] Result<InferredFormat> infer_format(const PayloadFacts& facts);

}  // namespace terrace
