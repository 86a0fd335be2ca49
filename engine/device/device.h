// Memory of a compute device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "engine/device/result.h"

namespace terrace {

class Device;

/// A piece of device memory. Move-only; gives its memory back to its device, which must outlive it.
class Buffer {
public:
    Buffer() = default;

    Buffer(Device* device, std::byte* data, std::int64_t bytes)
        : device_(device), data_(data), bytes_(bytes) {}

    Buffer(Buffer&& other) noexcept
        : device_(std::exchange(other.device_, nullptr)),
          data_(std::exchange(other.data_, nullptr)),
          bytes_(std::exchange(other.bytes_, 0)) {}

    Buffer& operator=(Buffer&& other) noexcept {
        std::swap(device_, other.device_);
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }

    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer();

    [[nodiscard]] std::byte* data() const { return data_; }

    [[nodiscard]] std::int64_t bytes() const { return bytes_; }

    template <typename T>
    [[nodiscard]] T* as() const {
        return reinterpret_cast<T*>(data_);
    }

private:
    Device* device_ = nullptr;
    std::byte* data_ = nullptr;
    std::int64_t bytes_ = 0;
};

/// A compute device as a source of memory. Thread-safe.
class Device {
public:
    virtual ~Device() = default;

    [[nodiscard]] virtual std::string name() const = 0;

    /// Zeroed memory, aligned to 4096 bytes; an OutOfMemory error that names size and device.
    [[nodiscard]] virtual Result<Buffer> allocate(std::int64_t bytes) = 0;

    /// Bytes given out now.
    [[nodiscard]] virtual std::int64_t allocated_bytes() const = 0;

protected:
    friend class Buffer;
    virtual void release(std::byte* data, std::int64_t bytes) = 0;
};

inline Buffer::~Buffer() {
    if (device_ != nullptr) {
        device_->release(data_, bytes_);
    }
}

}  // namespace terrace
