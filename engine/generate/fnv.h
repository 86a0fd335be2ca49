// FNV-1a 64 over the bits of logits: how two runs are compared without keeping them.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace terrace {

/// Running FNV-1a 64 over the little-endian bytes of binary32 values. Value type.
class Fnv64 {
public:
    void add(std::span<const float> values) {
        for (const float value : values) {
            const auto bits = std::bit_cast<std::uint32_t>(value);
            for (int shift = 0; shift < 32; shift += 8) {
                hash_ = (hash_ ^ ((bits >> shift) & 0xffU)) * 1099511628211ULL;
            }
        }
    }

    [[nodiscard]] std::uint64_t value() const { return hash_; }

private:
    std::uint64_t hash_ = 14695981039346656037ULL;
};

}  // namespace terrace
