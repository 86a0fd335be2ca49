#include "engine/cpu/cpu_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace terrace::cpu {

TEST(CpuDeviceTest, GivesZeroedAlignedMemoryAndCountsIt) {
    CpuDevice device;
    for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{5000}, std::int64_t{5} << 20}) {
        Result<Buffer> buffer = device.allocate(bytes);
        ASSERT_TRUE(buffer.ok());
        EXPECT_EQ(buffer->bytes(), bytes);
        EXPECT_EQ(device.allocated_bytes(), bytes);
        const auto address = reinterpret_cast<std::uintptr_t>(buffer->data());
        EXPECT_EQ(address % (bytes >= (2 << 20) ? (2 << 20) : 4096), 0u);
        for (std::int64_t i = 0; i < bytes; i += 997) {
            ASSERT_EQ(buffer->data()[i], std::byte{0});
        }
        buffer->data()[bytes - 1] = std::byte{1};
    }
    EXPECT_EQ(device.allocated_bytes(), 0);
}

TEST(CpuDeviceTest, AnImpossibleRequestIsAnErrorThatNamesTheSize) {
    CpuDevice device;
    for (const std::int64_t bytes : {std::int64_t{16} << 40, INT64_MAX}) {
        const Result<Buffer> buffer = device.allocate(bytes);
        ASSERT_FALSE(buffer.ok());
        EXPECT_EQ(buffer.error().code, ErrorCode::OutOfMemory);
        EXPECT_THAT(buffer.error().text(), testing::HasSubstr(std::to_string(bytes)));
        EXPECT_FALSE(buffer.error().next_step.empty());
    }
    EXPECT_EQ(device.allocated_bytes(), 0);
}

TEST(CpuDeviceTest, NothingIsANullBuffer) {
    CpuDevice device;
    Result<Buffer> buffer = device.allocate(0);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(buffer->bytes(), 0);
}

}  // namespace terrace::cpu
