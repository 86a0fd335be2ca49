// Faults, log, work queue, memory figures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "engine/support/faults.h"
#include "engine/support/log.h"
#include "engine/support/memory.h"
#include "engine/support/work_queue.h"
#include "tests/engine/support/temp_folder.h"

namespace terrace {
namespace {

using test::TempFolder;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(FaultInjector, IsAbsentWithoutSpecs) {
    const Result<std::unique_ptr<FaultInjector>> none = FaultInjector::parse({});
    ASSERT_TRUE(none.ok());
    EXPECT_EQ(none->get(), nullptr);
}

TEST(FaultInjector, FailsExactlyTheRequestedReads) {
    const std::vector<std::string> specs = {"disk.read:error@2", "disk.read:short@4,error@5"};
    const Result<std::unique_ptr<FaultInjector>> faults = FaultInjector::parse(specs);
    ASSERT_TRUE(faults.ok());
    std::vector<ReadFault> seen;
    for (int i = 0; i < 6; ++i) {
        seen.push_back((*faults)->next_read());
    }
    EXPECT_THAT(seen, ElementsAre(ReadFault::None, ReadFault::Error, ReadFault::None,
                                  ReadFault::Short, ReadFault::Error, ReadFault::None));
    EXPECT_EQ((*faults)->counts().injected, 3);
}

TEST(FaultInjector, FailsEveryAllocationAfterTheFirstN) {
    const std::vector<std::string> specs = {"alloc.host:after=2"};
    const Result<std::unique_ptr<FaultInjector>> faults = FaultInjector::parse(specs);
    ASSERT_TRUE(faults.ok());
    EXPECT_FALSE((*faults)->next_host_allocation_fails());
    EXPECT_FALSE((*faults)->next_host_allocation_fails());
    EXPECT_TRUE((*faults)->next_host_allocation_fails());
    EXPECT_TRUE((*faults)->next_host_allocation_fails());
    EXPECT_EQ((*faults)->counts().injected, 2);
}

TEST(FaultInjector, DelaysEveryRead) {
    const std::vector<std::string> specs = {"disk.read:delay=20"};
    const Result<std::unique_ptr<FaultInjector>> faults = FaultInjector::parse(specs);
    ASSERT_TRUE(faults.ok());
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ((*faults)->next_read(), ReadFault::None);
    EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(20));
}

TEST(FaultInjector, RefusesSpecsItDoesNotKnow) {
    for (const char* spec :
         {"", "disk", "disk.read", "disk.read:", "disk.read:error", "disk.read:error@",
          "disk.read:error@0", "disk.read:error@-1", "disk.read:error@1x", "disk.read:error@1,",
          "disk.read:delay=99999999", "alloc.host:after=", "alloc.host:error@1", "net.read:error@1",
          "disk.read:error@99999999999999999999"}) {
        const std::vector<std::string> specs = {spec};
        const Result<std::unique_ptr<FaultInjector>> faults = FaultInjector::parse(specs);
        ASSERT_FALSE(faults.ok()) << spec;
        EXPECT_EQ(faults.error().code, ErrorCode::WrongUse) << spec;
        EXPECT_THAT(faults.error().text(), HasSubstr(std::string("\"") + spec + "\""));
    }
}

TEST(FaultInjector, RefusesGraphicsCardsInThisBuild) {
    for (const char* spec :
         {"gpu.launch:after=0", "gpu.alloc:every=3", "gpu.upload:after=1", "gpu.copy:after=1",
          "gpu.event:after=1", "gpu.context:after=2", "gpu.hang", "gpu.last_error"}) {
        const std::vector<std::string> specs = {spec};
        const Result<std::unique_ptr<FaultInjector>> faults = FaultInjector::parse(specs);
        ASSERT_FALSE(faults.ok()) << spec;
        EXPECT_EQ(faults.error().code, ErrorCode::WrongUse);
        EXPECT_THAT(faults.error().message, HasSubstr("this build"));
    }
}

TEST(TextLog, WritesOneLineAnEventWithQuotedFields) {
    std::ostringstream out;
    TextLog log(out, LogLevel::Info);
    log.write(LogLevel::Warning, "file read buffered",
              {{"path", "a \"b\"\nc"}, {"errno", std::int64_t{22}}, {"empty", ""}});
    log.write(LogLevel::Debug, "not shown");
    const std::string text = out.str();
    EXPECT_THAT(text, EndsWith(" warning file read buffered path=\"a \\\"b\\\"\\nc\" errno=22 "
                               "empty=\"\"\n"));
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

TEST(WorkQueue, GivesUrgentItemsFirstAndKeepsTheOrderOfEqualOnes) {
    WorkQueue<std::string> queue(8);
    const std::stop_token never;
    EXPECT_TRUE(queue.push("a0", 0, never));
    EXPECT_TRUE(queue.push("a2", 2, never));
    EXPECT_TRUE(queue.push("b0", 0, never));
    EXPECT_TRUE(queue.push("b2", 2, never));
    EXPECT_TRUE(queue.push("a1", 1, never));
    queue.close();
    EXPECT_FALSE(queue.push("late", 9, never));
    std::vector<std::string> order;
    while (const std::optional<std::string> item = queue.pop(never)) {
        order.push_back(*item);
    }
    EXPECT_THAT(order, ElementsAre("a2", "b2", "a1", "a0", "b0"));
}

TEST(WorkQueue, IsBounded) {
    WorkQueue<int> queue(1);
    EXPECT_TRUE(queue.try_push(1, 0));
    EXPECT_FALSE(queue.try_push(2, 0));
    EXPECT_EQ(queue.size(), 1U);
    std::atomic<bool> pushed{false};
    std::jthread producer([&](const std::stop_token& stop) {
        EXPECT_TRUE(queue.push(3, 0, stop));
        pushed = true;
    });
    EXPECT_EQ(queue.pop({}), 1);
    EXPECT_EQ(queue.pop({}), 3);
    producer.join();
    EXPECT_TRUE(pushed);
}

TEST(WorkQueue, StopWakesWhoWaits) {
    WorkQueue<int> queue(1);
    {
        std::jthread consumer(
            [&](const std::stop_token& stop) { EXPECT_FALSE(queue.pop(stop).has_value()); });
        consumer.request_stop();
    }
    EXPECT_TRUE(queue.try_push(1, 0));
    std::jthread producer(
        [&](const std::stop_token& stop) { EXPECT_FALSE(queue.push(2, 0, stop)); });
    producer.request_stop();
}

TEST(WorkQueue, LosesNothingBetweenManyThreads) {
    constexpr int kItems = 2000;
    WorkQueue<int> queue(7);
    std::atomic<std::int64_t> sum{0};
    std::atomic<int> n_taken{0};
    {
        std::vector<std::jthread> consumers;
        for (int i = 0; i < 3; ++i) {
            consumers.emplace_back([&] {
                while (const std::optional<int> item = queue.pop({})) {
                    sum += *item;
                    ++n_taken;
                }
            });
        }
        {
            std::vector<std::jthread> producers;
            for (int p = 0; p < 2; ++p) {
                producers.emplace_back([&queue, p] {
                    for (int i = p; i < kItems; i += 2) {
                        EXPECT_TRUE(queue.push(i, i % 3, {}));
                    }
                });
            }
        }
        queue.close();
    }
    EXPECT_EQ(n_taken, kItems);
    EXPECT_EQ(sum, std::int64_t{kItems} * (kItems - 1) / 2);
}

/// A fake root folder with files of /proc and /sys.
class FakeRoot {
public:
    void put(const std::string& name, const std::string& text) {
        const std::filesystem::path path = folder_ / name;
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path) << text;
    }

    [[nodiscard]] const std::filesystem::path& path() const { return folder_.path(); }

private:
    TempFolder folder_;
};

TEST(ProcessMemory, AddsUpWhatNobodyElseCanHave) {
    FakeRoot root;
    root.put(
        "proc/self/status",
        "Name:\tx\nVmRSS:\t  900 kB\nRssAnon:\t  100 kB\nRssFile:\t 700 kB\nRssShmem:\t 20 kB\n"
        "VmSwap:\t 3 kB\nHugetlbPages:\t 2048 kB\n");
    const Result<ProcessMemory> memory = process_memory(root.path());
    ASSERT_TRUE(memory.ok());
    EXPECT_EQ(memory->total_bytes(), (100 + 20 + 3 + 2048) * 1024);
}

TEST(ProcessMemory, GrowsByWhatThisProcessTouches) {
    constexpr std::size_t kBytes = 64U << 20;
    const Result<ProcessMemory> before = process_memory();
    ASSERT_TRUE(before.ok());
    const std::vector<char> block(kBytes, 'x');
    const Result<ProcessMemory> after = process_memory();
    ASSERT_TRUE(after.ok());
    const std::int64_t growth = after->total_bytes() - before->total_bytes();
    // Pages freed meanwhile may hide some; a sanitizer may add its shadow (1/8 and more).
    EXPECT_GT(growth, std::int64_t{kBytes} * 7 / 8);
}

TEST(ProcessMemory, SaysWhatIsMissing) {
    FakeRoot root;
    EXPECT_FALSE(process_memory(root.path()).ok());
    EXPECT_FALSE(available_memory(root.path()).ok());
}

constexpr std::int64_t kMib = 1 << 20;

TEST(AvailableMemory, IsWhatTheMachineSaysWithoutLimits) {
    FakeRoot root;
    root.put("proc/meminfo", "MemTotal: 16384 kB\nMemAvailable: 8192 kB\n");
    const Result<AvailableMemory> memory = available_memory(root.path());
    ASSERT_TRUE(memory.ok());
    EXPECT_EQ(memory->bytes, 8 * kMib);
    EXPECT_EQ(memory->cgroup_bytes, -1);
    EXPECT_TRUE(memory->limited_by.empty());
}

TEST(AvailableMemory, ObeysTheTightestEnclosingGroupOfVersion2) {
    FakeRoot root;
    root.put("proc/meminfo", "MemAvailable: 1048576 kB\n");
    root.put("proc/self/mountinfo",
             "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
    root.put("proc/self/cgroup", "0::/user.slice/app.scope\n");
    const std::string top = "sys/fs/cgroup/user.slice/";
    root.put(top + "memory.max", "104857600\n");     // 100 MiB
    root.put(top + "memory.current", "62914560\n");  // 60 MiB
    root.put(top + "memory.stat", "anon 1\ninactive_file 10485760\nactive_file 5242880\n");
    root.put(top + "app.scope/memory.max", "max\n");
    root.put(top + "app.scope/memory.current", "1048576\n");
    const Result<AvailableMemory> memory = available_memory(root.path());
    ASSERT_TRUE(memory.ok());
    EXPECT_EQ(memory->bytes, (100 - 60 + 15) * kMib);
    EXPECT_EQ(memory->limited_by.filename(), "user.slice");

    root.put(top + "app.scope/memory.high", "5242880\n");
    const Result<AvailableMemory> tighter = available_memory(root.path());
    ASSERT_TRUE(tighter.ok());
    EXPECT_EQ(tighter->bytes, 4 * kMib);
    EXPECT_EQ(tighter->limited_by.filename(), "app.scope");
}

TEST(AvailableMemory, ObeysVersion1AndItsWordForNoLimit) {
    FakeRoot root;
    root.put("proc/meminfo", "MemAvailable: 1048576 kB\n");
    root.put("proc/self/mountinfo",
             "30 23 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
             "31 23 0:27 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    // A container that sees its host's path: the mount point is its own group.
    root.put("proc/self/cgroup", "5:cpu:/docker/abc\n4:memory:/docker/abc\n");
    const std::string group = "sys/fs/cgroup/memory/";
    root.put(group + "memory.limit_in_bytes", "9223372036854771712\n");
    root.put(group + "memory.usage_in_bytes", "41943040\n");
    EXPECT_EQ(available_memory(root.path())->cgroup_bytes, -1);
    root.put(group + "memory.limit_in_bytes", "52428800\n");  // 50 MiB, 40 used
    root.put(group + "memory.stat", "total_inactive_file 2097152\ntotal_active_file 0\n");
    EXPECT_EQ(available_memory(root.path())->bytes, 12 * kMib);
}

TEST(AvailableMemory, IsNeverNegative) {
    FakeRoot root;
    root.put("proc/meminfo", "MemAvailable: 1048576 kB\n");
    root.put("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    root.put("proc/self/cgroup", "0::/\n");
    root.put("sys/fs/cgroup/memory.max", "1048576\n");
    root.put("sys/fs/cgroup/memory.current", "2097152\n");
    EXPECT_EQ(available_memory(root.path())->bytes, 0);
}

TEST(AvailableMemory, IsFoundOnThisMachine) {
    const Result<AvailableMemory> memory = available_memory();
    ASSERT_TRUE(memory.ok()) << memory.error().text();
    EXPECT_GT(memory->bytes, 0);
    EXPECT_LE(memory->bytes, memory->machine_bytes);
}

}  // namespace
}  // namespace terrace
