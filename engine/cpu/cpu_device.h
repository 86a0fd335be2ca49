// Main memory as a device.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "engine/device/device.h"

namespace terrace::cpu {

/// Gives out memory of the machine. Large buffers begin on a 2 MiB boundary and ask for huge pages,
/// so that a walk through the weights does not wait for page tables.
/// Owner: the engine; it must outlive its buffers. Thread-safe. Failure: OutOfMemory, also when the
/// machine would give the addresses but could never back them with memory.
class CpuDevice final : public Device {
public:
    [[nodiscard]] std::string name() const override { return "main memory"; }

    [[nodiscard]] Result<Buffer> allocate(std::int64_t bytes) override;

    [[nodiscard]] std::int64_t allocated_bytes() const override {
        return allocated_.load(std::memory_order_relaxed);
    }

protected:
    void release(std::byte* data, std::int64_t bytes) override;

private:
    std::atomic<std::int64_t> allocated_{0};
};

}  // namespace terrace::cpu
