#include "engine/cpu/cpu_device.h"

#include <sys/mman.h>
#include <sys/sysinfo.h>

#include <cstdio>

namespace terrace::cpu {

namespace {

constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kHugePage = std::int64_t{2} << 20;

// What a buffer takes from the address space; large ones get room to begin on a huge page.
std::int64_t mapped_bytes(std::int64_t bytes) {
    const std::int64_t unit = bytes >= kHugePage ? kHugePage : kPage;
    return (bytes + unit - 1) / unit * unit;
}

// Memory and swap of the machine: Linux promises more than it has (overcommit) and kills the
// process when it is touched, so what can never fit is refused here. A container with a lower
// limit is the business of the memory budget, which knows the limit.
std::int64_t machine_bytes() {
    struct sysinfo info = {};
    if (sysinfo(&info) != 0) {
        return INT64_MAX;
    }
    return static_cast<std::int64_t>(info.totalram + info.totalswap) *
           static_cast<std::int64_t>(info.mem_unit);
}

std::string gigabytes(std::int64_t bytes) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3f GB", static_cast<double>(bytes) * 1e-9);
    return text;
}

Error out_of_memory(std::int64_t bytes, std::int64_t in_use, std::int64_t machine) {
    return Error{ErrorCode::OutOfMemory,
                 "expected " + gigabytes(bytes) + " (" + std::to_string(bytes) +
                     " bytes) of main memory; the machine has " + gigabytes(machine) +
                     " with swap, and " + gigabytes(in_use) + " are in use here",
                 "", "Choose a smaller context, fewer expert slots or a smaller model."};
}

// Anonymous zeroed memory beginning on `unit`; null when the system refuses.
std::byte* map_aligned(std::int64_t bytes, std::int64_t unit) {
    const std::int64_t slack = unit > kPage ? unit : 0;
    const auto size = static_cast<std::size_t>(bytes + slack);
    void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        return nullptr;
    }
    auto* begin = static_cast<std::byte*>(p);
    if (slack == 0) {
        return begin;
    }
    const auto address = reinterpret_cast<std::uintptr_t>(p);
    const auto head =
        static_cast<std::int64_t>((0 - address) & static_cast<std::uintptr_t>(unit - 1));
    if (head > 0) {
        munmap(begin, static_cast<std::size_t>(head));
    }
    if (slack - head > 0) {
        munmap(begin + head + bytes, static_cast<std::size_t>(slack - head));
    }
    return begin + head;
}

}  // namespace

Result<Buffer> CpuDevice::allocate(std::int64_t bytes) {
    if (bytes <= 0) {
        return Buffer();
    }
    const std::int64_t machine = machine_bytes();
    const std::int64_t in_use = allocated_bytes();
    // Compared so that no sum can overflow.
    if (bytes > machine || in_use > machine - bytes) {
        return out_of_memory(bytes, in_use, machine);
    }
    const std::int64_t size = mapped_bytes(bytes);
    const bool large = bytes >= kHugePage;
    std::byte* data = map_aligned(size, large ? kHugePage : kPage);
    if (data == nullptr) {
        return out_of_memory(bytes, in_use, machine);
    }
    if (large) {
        madvise(data, static_cast<std::size_t>(size), MADV_HUGEPAGE);  // a wish; no harm if refused
    }
    allocated_.fetch_add(bytes, std::memory_order_relaxed);
    return Buffer(this, data, bytes);
}

void CpuDevice::release(std::byte* data, std::int64_t bytes) {
    munmap(data, static_cast<std::size_t>(mapped_bytes(bytes)));
    allocated_.fetch_sub(bytes, std::memory_order_relaxed);
}

}  // namespace terrace::cpu
