// Cuts the scratch of an op into named arrays.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/device/tensor.h"

namespace terrace::cpu {

/// Hands out consecutive arrays aligned to 64 bytes. With a null base it only counts, so the same
/// code measures the scratch and then cuts it. A view; one thread.
class Carver {
public:
    explicit Carver(std::byte* base) : base_(base) {}

    template <typename T>
    [[nodiscard]] T* take(std::int64_t n) {
        std::byte* at = base_ == nullptr ? nullptr : base_ + used_;
        used_ += round_up(n * static_cast<std::int64_t>(sizeof(T)), 64);
        return reinterpret_cast<T*>(at);
    }

    [[nodiscard]] std::int64_t bytes() const { return used_; }

private:
    std::byte* base_;
    std::int64_t used_ = 0;
};

}  // namespace terrace::cpu
