// SHA-256 for comparing with recorded digests; tests only.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace terrace {

/// 64 lower-case hex digits.
[[nodiscard]] std::string sha256_hex(std::span<const std::byte> bytes);

}  // namespace terrace
