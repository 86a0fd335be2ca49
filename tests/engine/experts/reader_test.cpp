// Read plans and the pread reader.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/experts/pread_reader.h"
#include "engine/experts/read_plan.h"
#include "engine/support/faults.h"
#include "tests/engine/experts/synthetic_model.h"

namespace terrace {
namespace {

using test::HeapDevice;
using test::TempFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ReadPlan, JoinsNeighboursWhateverTheirOrder) {
    // Payloads down, gate, up back to back; scales far away, likewise.
    const std::vector<ReadExtent> parts = {{0, 1100, 100}, {0, 54, 4},     {0, 1200, 100},
                                           {0, 58, 4},     {0, 1000, 100}, {0, 50, 4}};
    const ReadPlan plan = plan_read(parts);
    ASSERT_EQ(plan.n_extents, 2U);
    EXPECT_EQ(plan.extents[0].offset, 50);
    EXPECT_EQ(plan.extents[0].bytes, 12);
    EXPECT_EQ(plan.extents[1].offset, 1000);
    EXPECT_EQ(plan.extents[1].bytes, 300);
    EXPECT_EQ(plan.parts[0].extent, 1);
    EXPECT_EQ(plan.parts[0].offset, 100);
    EXPECT_EQ(plan.parts[3].extent, 0);
    EXPECT_EQ(plan.parts[3].offset, 8);
    EXPECT_EQ(plan.bytes(), 312);
}

TEST(ReadPlan, KeepsFilesAndGapsApartAndSkipsEmptyParts) {
    const std::vector<ReadExtent> parts = {{0, 0, 10}, {1, 10, 10}, {0, 11, 10}, {0, 0, 0}};
    const ReadPlan plan = plan_read(parts);
    EXPECT_EQ(plan.n_extents, 3U);
    EXPECT_EQ(plan.parts[3].extent, -1);
    EXPECT_EQ(plan.parts[2].extent, 1);
    EXPECT_EQ(plan.extents[1].offset, 11);
}

TEST(ReadPlan, FindsEveryPartOfRandomLayouts) {
    std::mt19937 random(3);
    for (int round = 0; round < 500; ++round) {
        std::vector<ReadExtent> parts;
        std::int64_t at = 0;
        for (int i = 0; i < 6; ++i) {
            at += random() % 2 == 0 ? 0 : static_cast<std::int64_t>(random() % 5000);
            const auto bytes = static_cast<std::int64_t>(random() % 3000);
            parts.push_back({static_cast<std::int32_t>(random() % 2), at, bytes});
            at += bytes;
        }
        std::shuffle(parts.begin(), parts.end(), random);
        const ReadPlan plan = plan_read(parts);
        for (std::size_t i = 0; i < parts.size(); ++i) {
            if (parts[i].bytes == 0) {
                continue;
            }
            const ReadPart& part = plan.parts[i];
            const ReadExtent& extent = plan.extents[static_cast<std::size_t>(part.extent)];
            EXPECT_EQ(extent.file, parts[i].file);
            EXPECT_EQ(extent.offset + part.offset, parts[i].offset);
            EXPECT_LE(part.offset + part.bytes, extent.bytes);
        }
    }
}

/// Keeps what it is told.
class Recorder : public ReadListener {
public:
    struct Record {
        ReadCompletion::Outcome outcome = ReadCompletion::Outcome::Done;
        std::vector<std::vector<std::byte>> extents;
        std::string error;
    };

    void read_done(const ReadCompletion& completion) override {
        EXPECT_EQ(_mm_getcsr(), 0x1F80U);
        _mm_setcsr(0x1F80U | 0x8040U);  // as a careless library would leave it
        Record record;
        record.outcome = completion.outcome;
        for (const auto& extent : completion.extents) {
            record.extents.emplace_back(extent.begin(), extent.end());
        }
        record.error = completion.error ? completion.error->text() : "";
        std::unique_lock lock(mutex_);
        order_.push_back(completion.tag);
        records_[completion.tag] = std::move(record);
        changed_.notify_all();
        if (completion.tag == hold_tag_) {
            changed_.wait(lock, [this] { return !held_; });
        }
    }

    /// The completion of this request does not return before release().
    void hold(std::uint64_t tag) {
        const std::lock_guard lock(mutex_);
        hold_tag_ = tag;
        held_ = true;
    }

    void release() {
        const std::lock_guard lock(mutex_);
        held_ = false;
        changed_.notify_all();
    }

    void wait_for(std::uint64_t tag) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return records_.contains(tag); });
    }

    [[nodiscard]] Record record(std::uint64_t tag) {
        const std::lock_guard lock(mutex_);
        EXPECT_TRUE(records_.contains(tag));
        return records_[tag];
    }

    [[nodiscard]] std::vector<std::uint64_t> order() {
        const std::lock_guard lock(mutex_);
        return order_;
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::uint64_t, Record> records_;
    std::vector<std::uint64_t> order_;
    std::uint64_t hold_tag_ = ~std::uint64_t{0};
    bool held_ = false;
};

class PreadReaderTest : public ::testing::Test {
protected:
    void SetUp() override {
        bytes_.resize((9U << 20) + 1234);
        test::fill_random(bytes_, 11);
        Result<File> file = File::create(folder_ / "data");
        ASSERT_TRUE(file.ok());
        ASSERT_TRUE(file->write(bytes_).ok());
    }

    std::unique_ptr<PreadReader> make(PreadReaderOptions options) {
        const std::vector<std::filesystem::path> paths = {folder_ / "data"};
        options.slab_bytes = options.slab_bytes == 0 ? 10 << 20 : options.slab_bytes;
        Result<std::unique_ptr<PreadReader>> reader =
            PreadReader::create(paths, device_, recorder_, options);
        EXPECT_TRUE(reader.ok()) << reader.error().text();
        return std::move(reader).value();
    }

    [[nodiscard]] std::vector<std::byte> expected(const ReadExtent& extent) const {
        const auto begin = bytes_.begin() + extent.offset;
        return {begin, begin + extent.bytes};
    }

    TempFolder folder_;
    HeapDevice device_;
    std::vector<std::byte> bytes_;
    Recorder recorder_;
};

TEST_F(PreadReaderTest, ReadsAnyExtentsInEveryMode) {
    for (const ReadMode mode : {ReadMode::Buffered, ReadMode::Auto}) {
        const auto reader = make({3, 2, 0, mode, nullptr});
        std::mt19937 random(5);
        std::vector<std::vector<ReadExtent>> requests;
        for (int i = 0; i < 30; ++i) {
            std::vector<ReadExtent> extents;
            for (unsigned k = 0; k < 1 + random() % 3; ++k) {
                const auto bytes = static_cast<std::int64_t>(1 + random() % (3U << 20));
                const auto room = static_cast<std::int64_t>(bytes_.size()) - bytes;
                extents.push_back({0, static_cast<std::int64_t>(random()) % (room + 1), bytes});
            }
            requests.push_back(extents);
        }
        requests.push_back({{0, static_cast<std::int64_t>(bytes_.size()) - 1, 1}});
        requests.push_back({{0, 0, static_cast<std::int64_t>(bytes_.size())}});
        for (std::size_t i = 0; i < requests.size(); ++i) {
            reader->submit({i, requests[i], static_cast<ReadPriority>(i % 3)});
        }
        reader->drain();
        for (std::size_t i = 0; i < requests.size(); ++i) {
            const Recorder::Record record = recorder_.record(i);
            ASSERT_EQ(record.outcome, ReadCompletion::Outcome::Done) << record.error;
            ASSERT_EQ(record.extents.size(), requests[i].size());
            for (std::size_t k = 0; k < requests[i].size(); ++k) {
                EXPECT_TRUE(record.extents[k] == expected(requests[i][k])) << i << "." << k;
            }
        }
    }
}

TEST_F(PreadReaderTest, DirectModeIsHonouredOrRefused) {
    const std::vector<std::filesystem::path> paths = {folder_ / "data"};
    const Result<std::unique_ptr<PreadReader>> reader =
        PreadReader::create(paths, device_, recorder_, {1, 1, 1 << 20, ReadMode::Direct, nullptr});
    if (reader.ok()) {
        EXPECT_TRUE((*reader)->direct());
    } else {
        EXPECT_THAT(reader.error().text(), HasSubstr("page cache"));
    }
    EXPECT_FALSE(make({1, 1, 0, ReadMode::Buffered, nullptr})->direct());
}

TEST_F(PreadReaderTest, SaysWhichFileCannotBeOpened) {
    const std::vector<std::filesystem::path> paths = {folder_ / "data", folder_ / "missing"};
    const Result<std::unique_ptr<PreadReader>> reader =
        PreadReader::create(paths, device_, recorder_, {1, 1, 1 << 20, ReadMode::Auto, nullptr});
    ASSERT_FALSE(reader.ok());
    EXPECT_EQ(reader.error().code, ErrorCode::NotFound);
    EXPECT_THAT(reader.error().text(), HasSubstr("missing"));
    EXPECT_EQ(device_.allocated_bytes(), 0);
}

TEST_F(PreadReaderTest, ReadsDemandsBeforePrefetchAndRaisedOnesInBetween) {
    const auto reader = make({1, 1, 0, ReadMode::Buffered, nullptr});
    const std::vector<ReadExtent> extents = {{0, 100, 1000}};
    recorder_.hold(0);
    reader->submit({0, extents, ReadPriority::Demand});
    recorder_.wait_for(0);  // the only thread is busy until release()
    reader->submit({1, extents, ReadPriority::Background});
    reader->submit({2, extents, ReadPriority::Prefetch});
    reader->submit({3, extents, ReadPriority::Demand});
    reader->submit({4, extents, ReadPriority::Prefetch});
    reader->submit({5, extents, ReadPriority::Background});
    reader->raise_priority(5, ReadPriority::Demand);
    reader->raise_priority(77, ReadPriority::Demand);
    EXPECT_EQ(reader->cancel(2), ExpertReader::CancelOutcome::Dropped);
    EXPECT_EQ(reader->cancel(77), ExpertReader::CancelOutcome::WillComplete);
    recorder_.release();
    reader->drain();
    EXPECT_THAT(recorder_.order(), ElementsAre(0, 3, 5, 4, 1));
}

TEST_F(PreadReaderTest, KeepsTheLastSlabForADemand) {
    const auto reader = make({2, 2, 0, ReadMode::Buffered, nullptr});
    const std::vector<ReadExtent> extents = {{0, 100, 1000}};
    recorder_.hold(0);
    reader->submit({0, extents, ReadPriority::Prefetch});
    recorder_.wait_for(0);
    reader->submit({1, extents, ReadPriority::Prefetch});
    reader->submit({2, extents, ReadPriority::Demand});
    recorder_.wait_for(2);
    recorder_.release();
    reader->drain();
    EXPECT_THAT(recorder_.order(), ElementsAre(0, 2, 1));
}

TEST_F(PreadReaderTest, ACancelledReadCompletesAndItsSlabIsUsedAgain) {
    const std::vector<std::string> specs = {"disk.read:delay=20"};
    const auto faults = FaultInjector::parse(specs).value();
    const auto reader = make({1, 1, 0, ReadMode::Buffered, faults.get()});
    const std::vector<ReadExtent> big = {{0, 0, 9 << 20}};
    const std::vector<ReadExtent> small = {{0, 5, 50}};
    reader->submit({1, big, ReadPriority::Demand});
    // One read of nine is at work or about to begin; either way it ends early.
    std::this_thread::yield();
    if (reader->cancel(1) == ExpertReader::CancelOutcome::WillComplete) {
        recorder_.wait_for(1);
        EXPECT_EQ(recorder_.record(1).outcome, ReadCompletion::Outcome::Cancelled);
    }
    reader->submit({2, small, ReadPriority::Demand});
    reader->drain();
    EXPECT_TRUE(recorder_.record(2).extents[0] == expected(small[0]));
}

TEST_F(PreadReaderTest, ReportsAFailedReadOnceAndGoesOn) {
    const std::vector<std::string> specs = {"disk.read:error@1,error@2"};
    const auto faults = FaultInjector::parse(specs).value();
    const auto reader = make({1, 1, 0, ReadMode::Buffered, faults.get()});
    const std::vector<ReadExtent> big = {{0, 4096, 5 << 20}};
    reader->submit({1, big, ReadPriority::Demand});
    reader->submit({2, big, ReadPriority::Demand});
    reader->drain();
    EXPECT_EQ(recorder_.record(1).outcome, ReadCompletion::Outcome::Failed);
    EXPECT_THAT(recorder_.record(1).error, HasSubstr("offset 4096"));
    EXPECT_THAT(recorder_.record(1).error, HasSubstr("errno 5"));
    EXPECT_TRUE(recorder_.record(2).extents[0] == expected(big[0]));
}

TEST_F(PreadReaderTest, ReportsAFileThatBecameShorter) {
    const auto reader = make({2, 1, 0, ReadMode::Auto, nullptr});
    std::filesystem::resize_file(folder_ / "data", 3 << 20);
    const std::vector<ReadExtent> big = {{0, 0, 9 << 20}};
    reader->submit({1, big, ReadPriority::Demand});
    reader->drain();
    EXPECT_EQ(recorder_.record(1).outcome, ReadCompletion::Outcome::Failed);
    EXPECT_THAT(recorder_.record(1).error, HasSubstr("ends too early"));
}

TEST_F(PreadReaderTest, IsDestroyedSafelyWhileReading) {
    const std::vector<std::string> specs = {"disk.read:delay=5"};
    const auto faults = FaultInjector::parse(specs).value();
    const std::vector<ReadExtent> big = {{0, 0, 9 << 20}};
    for (std::uint64_t round = 0; round < 5; ++round) {
        auto reader = make({3, 2, 0, ReadMode::Auto, faults.get()});
        for (std::uint64_t i = 0; i < 20; ++i) {
            reader->submit({i, big, static_cast<ReadPriority>(i % 3)});
        }
        reader.reset();
    }
    EXPECT_EQ(device_.allocated_bytes(), 0);
}

}  // namespace
}  // namespace terrace
