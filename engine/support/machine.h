// The processors that this process may use.
#pragma once

#include <cstdint>
#include <filesystem>

namespace terrace {

/// Physical cores that this process may run on: hardware threads of one core count once; the CPU
/// quota of an enclosing control group (v1 and v2) counts too. At least 1.
/// `root` stands in front of /proc and /sys: another folder in tests.
[[nodiscard]] std::int64_t usable_cores(const std::filesystem::path& root = "/");

}  // namespace terrace
