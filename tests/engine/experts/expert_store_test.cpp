#include "engine/experts/expert_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/support/faults.h"
#include "engine/support/memory.h"
#include "tests/engine/experts/synthetic_model.h"

namespace terrace {
namespace {

using test::CopyOps;
using test::FileOrder;
using test::HeapDevice;
using test::SyntheticLayer;
using test::SyntheticModel;
using ::testing::HasSubstr;
using State = ExpertBatch::State;
using Clock = std::chrono::steady_clock;

// Two layers of one size and a third, as an MTP layer, of another.
std::vector<SyntheticLayer> three_layers() {
    return {{1, 8, Storage::Int4, 64}, {2, 8, Storage::Int4, 64}, {3, 6, Storage::Int8, 0}};
}

constexpr std::int64_t kAllExperts = 22;

std::unique_ptr<FaultInjector> make_faults(const std::vector<std::string>& specs) {
    Result<std::unique_ptr<FaultInjector>> faults = FaultInjector::parse(specs);
    EXPECT_TRUE(faults.ok());
    return std::move(faults).value();
}

std::vector<Demand> all_of(std::int32_t n) {
    std::vector<Demand> demands;
    for (std::int32_t expert = 0; expert < n; ++expert) {
        demands.push_back({expert, 1});
    }
    return demands;
}

std::vector<Demand> some_of(std::int32_t n, std::mt19937& random) {
    std::vector<Demand> demands = all_of(n);
    std::shuffle(demands.begin(), demands.end(), random);
    demands.resize(random() % (demands.size() + 1));
    for (Demand& demand : demands) {
        demand.n_rows = static_cast<std::int32_t>(1 + random() % 3);
    }
    return demands;
}

class ExpertStoreTest : public ::testing::Test {
protected:
    std::unique_ptr<ExpertStore> make(const SyntheticModel& model, ExpertStoreOptions options) {
        Result<std::unique_ptr<ExpertStore>> store =
            ExpertStore::create(model.source(), ops_, device_, options);
        EXPECT_TRUE(store.ok()) << store.error().text();
        return store.ok() ? std::move(store).value() : nullptr;
    }

    static std::size_t number_of(ExpertId id) {
        return static_cast<std::size_t>((id.layer - 1) * 8 + id.expert);
    }

    static void expect_weights(const SyntheticModel& model, const ExpertLease& lease) {
        const ExpertWeights& w = lease.weights();
        const WeightMatrix* matrices[] = {&w.gate, &w.up, &w.down};
        for (std::size_t i = 0; i < 3; ++i) {
            const TensorSource& source = model.matrix(number_of(lease.id()), i);
            EXPECT_EQ(matrices[i]->rows, source.rows);
            EXPECT_EQ(matrices[i]->cols, source.cols);
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(matrices[i]->data) % 64, 0U);
            const std::vector<std::byte> expected = model.packed(source);
            EXPECT_EQ(std::memcmp(matrices[i]->data, expected.data(), expected.size()), 0)
                << source.name;
        }
    }

    enum class Check { Everything, OrderOnly };

    /// Goes through a visit to its end; checks order, weights, and that every demanded expert
    /// comes once. Returns the error that ended it, if one did.
    static std::optional<Error> go_through(ExpertStore& store,
                                           const SyntheticModel& model,
                                           int layer,
                                           const std::vector<Demand>& demands,
                                           std::int64_t clock,
                                           Check check = Check::Everything) {
        std::multiset<std::int32_t> delivered;
        ExpertVisit visit = store.begin_visit(layer, demands, clock);
        while (true) {
            const Result<ExpertBatch> batch = visit.next_batch({});
            if (!batch) {
                return batch.error();
            }
            if (batch->state == State::Done) {
                break;
            }
            EXPECT_EQ(batch->state, State::Experts);
            EXPECT_FALSE(batch->leases.empty());
            std::int32_t last = -1;
            for (const ExpertLease& lease : batch->leases) {
                EXPECT_EQ(lease.id().layer, layer);
                EXPECT_LT(last, lease.id().expert);
                last = lease.id().expert;
                delivered.insert(last);
                if (check == Check::Everything) {
                    expect_weights(model, lease);
                }
            }
        }
        std::multiset<std::int32_t> demanded;
        for (const Demand& demand : demands) {
            demanded.insert(demand.expert);
        }
        EXPECT_EQ(delivered, demanded);
        return std::nullopt;
    }

    CopyOps ops_;
    HeapDevice device_;
};

TEST_F(ExpertStoreTest, DeliversEveryDemandedExpertOnceWithAnyNumberOfSlots) {
    for (const FileOrder order : {FileOrder::Reference, FileOrder::Extents}) {
        const SyntheticModel model(three_layers(), 128, 64, order, 1);
        for (std::int64_t n_slots = 2; n_slots <= kAllExperts + 1; ++n_slots) {
            ExpertStoreOptions options;
            options.n_slots = n_slots;
            options.n_io_threads = 2;
            options.n_staging_slabs = static_cast<int>(1 + n_slots % 3);
            options.read_mode = n_slots % 2 == 0 ? ReadMode::Auto : ReadMode::Buffered;
            const auto store = make(model, options);
            ASSERT_NE(store, nullptr);
            EXPECT_EQ(store->all_fit(), n_slots >= kAllExperts);
            for (std::int64_t clock = 1; clock <= 4; ++clock) {
                EXPECT_FALSE(go_through(*store, model, 1, all_of(8), clock).has_value());
                EXPECT_FALSE(go_through(*store, model, 2, all_of(8), clock).has_value());
                EXPECT_FALSE(go_through(*store, model, 3, all_of(6), clock).has_value());
            }
            const ExpertStoreStats stats = store->stats();
            EXPECT_EQ(stats.n_slots, std::min(n_slots, kAllExperts));
            EXPECT_EQ(stats.lookups, 4 * kAllExperts);
            EXPECT_EQ(stats.hits_ram + stats.misses, stats.lookups);
            EXPECT_LE(stats.n_resident, stats.n_slots);
            EXPECT_EQ(stats.evictions, stats.misses - stats.n_resident);
            if (store->all_fit()) {
                EXPECT_EQ(stats.misses, kAllExperts);
                EXPECT_EQ(stats.evictions, 0);
            }
        }
    }
    EXPECT_EQ(device_.allocated_bytes(), 0);
}

TEST_F(ExpertStoreTest, SurvivesRandomVisits) {
    const SyntheticModel model(three_layers(), 128, 64, FileOrder::Reference, 2);
    for (unsigned seed = 1; seed <= 12; ++seed) {
        std::mt19937 random(seed);
        ExpertStoreOptions options;
        options.n_slots = static_cast<std::int64_t>(2 + random() % 21);
        options.n_transient_slots = static_cast<std::int64_t>(random() % 8);
        options.n_io_threads = static_cast<int>(1 + random() % 4);
        options.n_staging_slabs = static_cast<int>(1 + random() % 4);
        options.heat_half_life_tokens = 1.0 + static_cast<double>(random() % 300);
        const auto store = make(model, options);
        ASSERT_NE(store, nullptr);
        for (std::int64_t clock = 1; clock <= 60; ++clock) {
            const int layer = static_cast<int>(1 + random() % 3);
            const std::vector<Demand> demands = some_of(layer == 3 ? 6 : 8, random);
            if (random() % 4 == 0) {
                // Left early: what was not delivered is dropped.
                ExpertVisit visit = store->begin_visit(layer, demands, clock);
                if (random() % 2 == 0) {
                    const Result<ExpertBatch> batch = visit.next_batch({});
                    EXPECT_TRUE(batch.ok());
                }
                continue;
            }
            const std::optional<Error> error = go_through(*store, model, layer, demands, clock);
            ASSERT_FALSE(error.has_value()) << "seed " << seed << ": " << error->text();
        }
    }
}

TEST_F(ExpertStoreTest, AnExpertInMemoryIsNotReadAgain) {
    const SyntheticModel model(three_layers(), 128, 64, FileOrder::Extents, 3);
    const auto store = make(model, {});
    EXPECT_FALSE(go_through(*store, model, 2, {{3, 1}, {5, 1}}, 1).has_value());
    const std::int64_t bytes_read = store->stats().bytes_read;
    EXPECT_GT(bytes_read, 0);
    EXPECT_FALSE(go_through(*store, model, 2, {{5, 1}, {3, 1}}, 2).has_value());
    EXPECT_EQ(store->stats().bytes_read, bytes_read);
    EXPECT_EQ(store->stats().hits_ram, 2);
    EXPECT_EQ(store->stats().misses, 2);
}

TEST_F(ExpertStoreTest, KeepsTheExpertsThatAreUsedMost) {
    const SyntheticModel model(three_layers(), 128, 64, FileOrder::Extents, 4);
    ExpertStoreOptions options;
    options.n_slots = 10;
    options.n_transient_slots = 2;
    const auto store = make(model, options);
    std::mt19937 random(4);
    // Experts 0 and 1 of layer 1 always, of layer 2 another one each time.
    for (std::int64_t clock = 1; clock <= 40; ++clock) {
        EXPECT_FALSE(go_through(*store, model, 1, {{0, 1}, {1, 1}}, clock).has_value());
        const auto other = static_cast<std::int32_t>(clock % 8);
        EXPECT_FALSE(go_through(*store, model, 2, {{other, 1}}, clock).has_value());
    }
    const ExpertStoreStats before = store->stats();
    EXPECT_FALSE(go_through(*store, model, 1, {{0, 1}, {1, 1}}, 41).has_value());
    EXPECT_EQ(store->stats().misses, before.misses);
    EXPECT_GE(before.hits_ram, 39 * 2);
}

TEST_F(ExpertStoreTest, HandsOutTheNextBatchWhileTheLastOneIsHeld) {
    const SyntheticModel model(three_layers(), 128, 64, FileOrder::Extents, 5);
    ExpertStoreOptions options;
    options.n_slots = 22;
    const auto store = make(model, options);
    ExpertVisit visit = store->begin_visit(1, all_of(8), 1);
    std::vector<ExpertBatch> held;
    std::size_t n = 0;
    while (true) {
        Result<ExpertBatch> batch = visit.next_batch({});
        ASSERT_TRUE(batch.ok());
        if (batch->state == State::Done) {
            break;
        }
        n += batch->leases.size();
        held.push_back(std::move(batch).value());
    }
    EXPECT_EQ(n, 8U);
    for (const ExpertBatch& batch : held) {
        for (const ExpertLease& lease : batch.leases) {
            expect_weights(model, lease);
        }
    }
}

TEST_F(ExpertStoreTest, RefusesInsteadOfWaitingForLeasesThatTheCallerHolds) {
    const SyntheticModel model(three_layers(), 128, 64, FileOrder::Extents, 6);
    ExpertStoreOptions options;
    options.n_slots = 2;
    const auto store = make(model, options);
    {
        ExpertVisit visit = store->begin_visit(1, all_of(3), 1);
        std::vector<ExpertBatch> held;
        std::optional<Error> error;
        for (int i = 0; i < 3 && !error; ++i) {
            Result<ExpertBatch> batch = visit.next_batch({});
            if (batch) {
                held.push_back(std::move(batch).value());
            } else {
                error = batch.error();
            }
        }
        ASSERT_TRUE(error.has_value());
        EXPECT_EQ(error->code, ErrorCode::Internal);
        held.clear();
        const Result<ExpertBatch> batch = visit.next_batch({});
        ASSERT_TRUE(batch.ok()) << "leases that came back are slots again";
        EXPECT_EQ(batch->state, State::Experts);
    }
    EXPECT_FALSE(go_through(*store, model, 1, all_of(8), 2).has_value());
}

TEST_F(ExpertStoreTest, AnEmptyDemandIsDoneAtOnce) {
    const SyntheticModel model(three_layers(), 128, 64, FileOrder::Extents, 7);
    const auto store = make(model, {});
    ExpertVisit visit = store->begin_visit(1, {}, 1);
    const Result<ExpertBatch> batch = visit.next_batch({});
    ASSERT_TRUE(batch.ok());
    EXPECT_EQ(batch->state, State::Done);
}

TEST_F(ExpertStoreTest, RefusesPlansThatCannotWork) {
    const SyntheticModel model(three_layers(), 128, 64, FileOrder::Extents, 8);
    for (const std::int64_t n_slots : {-1, 1}) {
        ExpertStoreOptions options;
        options.n_slots = n_slots;
        const auto store = ExpertStore::create(model.source(), ops_, device_, options);
        ASSERT_FALSE(store.ok());
        EXPECT_EQ(store.error().code, ErrorCode::WrongUse);
        EXPECT_THAT(store.error().text(), HasSubstr(std::to_string(n_slots)));
    }
    ExpertSource no_experts = model.source();
    no_experts.matrices = {};
    EXPECT_FALSE(ExpertStore::create(no_experts, ops_, device_, {}).ok());
    ExpertSource no_file = model.source();
    no_file.paths[0] += ".gone";
    const auto store = ExpertStore::create(no_file, ops_, device_, {});
    ASSERT_FALSE(store.ok());
    EXPECT_EQ(store.error().code, ErrorCode::NotFound);
    EXPECT_EQ(device_.allocated_bytes(), 0);
}

TEST_F(ExpertStoreTest, AFailedAllocationIsAnErrorWhicheverItIs) {
    const SyntheticModel model(three_layers(), 128, 64, FileOrder::Extents, 9);
    bool succeeded = false;
    for (int n = 0; n < 20 && !succeeded; ++n) {
        const auto faults = make_faults({"alloc.host:after=" + std::to_string(n)});
        ExpertStoreOptions options;
        options.faults = faults.get();
        const auto store = ExpertStore::create(model.source(), ops_, device_, options);
        succeeded = store.ok();
        if (!succeeded) {
            EXPECT_EQ(store.error().code, ErrorCode::OutOfMemory);
            EXPECT_EQ(device_.allocated_bytes(), 0);
        }
        EXPECT_TRUE(n > 0 || !succeeded);
    }
    EXPECT_TRUE(succeeded);
}

TEST_F(ExpertStoreTest, RepairsOrReportsEveryFailedRead) {
    const SyntheticModel model(three_layers(), 128, 64, FileOrder::Reference, 10);
    for (const char* kind : {"error", "short"}) {
        for (int n = 1; n <= 40; ++n) {
            const auto faults =
                make_faults({std::string("disk.read:") + kind + "@" + std::to_string(n)});
            ExpertStoreOptions options;
            options.n_slots = 6;
            options.n_io_threads = 2;
            options.faults = faults.get();
            const auto store = make(model, options);
            ASSERT_NE(store, nullptr);
            for (std::int64_t clock = 1; clock <= 2; ++clock) {
                const auto one = go_through(*store, model, 1, all_of(8), clock);
                const auto two = go_through(*store, model, 2, all_of(8), clock);
                EXPECT_FALSE(one.has_value() || two.has_value()) << kind << "@" << n;
            }
            EXPECT_EQ(store->stats().faults_injected, 1) << kind << "@" << n;
            EXPECT_EQ(store->stats().faults_repaired, 1) << kind << "@" << n;
        }
    }
}

TEST_F(ExpertStoreTest, ReportsAReadThatFailsTwiceAndGoesOn) {
    const SyntheticModel model(three_layers(), 128, 64, FileOrder::Extents, 11);
    int n_reported = 0;
    for (int n = 1; n <= 40; ++n) {
        const std::string spec =
            "disk.read:error@" + std::to_string(n) + ",error@" + std::to_string(n + 1);
        const auto faults = make_faults({spec});
        ExpertStoreOptions options;
        options.n_slots = 6;
        // One thread: the repetition of a failed read is the next read.
        options.n_io_threads = 1;
        options.faults = faults.get();
        const auto store = make(model, options);
        ASSERT_NE(store, nullptr);
        int n_errors = 0;
        for (std::int64_t clock = 1; clock <= 6; ++clock) {
            const int layer = static_cast<int>(1 + clock % 2);
            if (const auto error = go_through(*store, model, layer, all_of(8), clock)) {
                ++n_errors;
                EXPECT_EQ(error->code, ErrorCode::Io);
                EXPECT_THAT(error->text(), HasSubstr(model.path().string()));
                EXPECT_THAT(error->text(), HasSubstr("offset"));
                EXPECT_THAT(error->text(), HasSubstr("errno 5"));
            }
        }
        EXPECT_EQ(n_errors, 1) << spec;
        n_reported += n_errors;
        EXPECT_FALSE(go_through(*store, model, 1, all_of(8), 9).has_value());
    }
    EXPECT_EQ(n_reported, 40);
}

TEST_F(ExpertStoreTest, ReportsWeightsThatBreakTheirFormat) {
    SyntheticModel model(three_layers(), 128, 64, FileOrder::Extents, 12);
    // Scales where the payload's random bytes are: some are not finite or far out of range.
    TensorSource& source = model.matrices()[3 * 2];
    source.scales.offset = source.payload.offset + 4;
    const auto store = make(model, {});
    const auto error = go_through(*store, model, 1, {{1, 1}, {2, 1}}, 1);
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code, ErrorCode::Corrupt);
    EXPECT_THAT(error->text(), HasSubstr("layer 1 expert 2 matrix 0"));
    EXPECT_FALSE(go_through(*store, model, 1, {{1, 1}, {3, 1}}, 2).has_value());
}

/// Asks a waiting visit to stop and says how long the answer and the end of the visit took.
Clock::duration stop_a_waiting_visit(ExpertStore& store, std::int64_t clock) {
    std::stop_source stop;
    ExpertVisit visit = store.begin_visit(1, all_of(8), clock);
    Clock::time_point asked;
    std::jthread user([&] {
        std::mutex mutex;
        std::unique_lock lock(mutex);
        std::condition_variable nobody;
        nobody.wait_for(lock, std::chrono::milliseconds(50), [] { return false; });
        asked = Clock::now();
        stop.request_stop();
    });
    const Result<ExpertBatch> batch = visit.next_batch(stop.get_token());
    const Clock::time_point answered = Clock::now();
    user.join();
    EXPECT_TRUE(batch.ok());
    EXPECT_EQ(batch->state, State::Stopped);
    EXPECT_TRUE(batch->leases.empty());
    const Clock::time_point ending = Clock::now();
    visit = ExpertVisit();
    return (answered - asked) + (Clock::now() - ending);
}

TEST_F(ExpertStoreTest, AStopIsAnsweredWhileADriveIsSlow) {
    const SyntheticModel model(three_layers(), 128, 64, FileOrder::Extents, 13);
    const auto faults = make_faults({"disk.read:delay=400"});
    ExpertStoreOptions options;
    options.faults = faults.get();
    // The quickest of three: a busy machine may take the processor away for longer.
    Clock::duration quickest = std::chrono::hours(1);
    for (std::int64_t clock = 1; clock <= 3; ++clock) {
        const auto store = make(model, options);
        quickest = std::min(quickest, stop_a_waiting_visit(*store, clock));
        if (clock == 1) {
            EXPECT_FALSE(go_through(*store, model, 1, {{0, 1}, {7, 1}}, 2).has_value());
        }
    }
    EXPECT_LT(quickest, std::chrono::milliseconds(100));
}

TEST_F(ExpertStoreTest, IsDestroyedSafelyInTheMiddleOfReads) {
    const SyntheticModel model(three_layers(), 128, 64, FileOrder::Reference, 14);
    const auto faults = make_faults({"disk.read:delay=3"});
    for (int round = 0; round < 10; ++round) {
        ExpertStoreOptions options;
        options.n_slots = 2 + round;
        options.faults = faults.get();
        const auto store = make(model, options);
        ExpertVisit visit = store->begin_visit(1, all_of(8), 1);
        if (round % 2 == 0) {
            EXPECT_TRUE(visit.next_batch({}).ok());
        }
    }
    EXPECT_EQ(device_.allocated_bytes(), 0);
}

TEST_F(ExpertStoreTest, FillsEverySlotWhenAllExpertsFit) {
    const SyntheticModel model(three_layers(), 128, 64, FileOrder::Reference, 15);
    const auto store = make(model, {});
    std::int64_t last = -1;
    const Result<std::int64_t> n = store->prefill_slots(
        [&last](std::int64_t n_resident, std::int64_t n_experts) {
            EXPECT_EQ(n_experts, kAllExperts);
            EXPECT_LE(last, n_resident);
            last = n_resident;
        },
        {});
    ASSERT_TRUE(n.ok()) << n.error().text();
    EXPECT_EQ(*n, kAllExperts);
    EXPECT_EQ(last, kAllExperts);
    EXPECT_EQ(store->stats().n_resident, kAllExperts);
    EXPECT_FALSE(go_through(*store, model, 3, all_of(6), 1).has_value());
    EXPECT_EQ(store->stats().misses, 0);

    ExpertStoreOptions too_few;
    too_few.n_slots = kAllExperts - 1;
    const Result<std::int64_t> refused = make(model, too_few)->prefill_slots({}, {});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::WrongUse);
}

TEST_F(ExpertStoreTest, FillingStopsWhenAskedAndReportsAFailedRead) {
    const SyntheticModel model(three_layers(), 128, 64, FileOrder::Extents, 16);
    const auto slow = make_faults({"disk.read:delay=30"});
    ExpertStoreOptions options;
    options.n_io_threads = 1;
    options.faults = slow.get();
    const auto store = make(model, options);
    std::stop_source stop;
    const Result<std::int64_t> n = store->prefill_slots(
        [&stop](std::int64_t n_resident, std::int64_t) {
            if (n_resident >= 2) {
                stop.request_stop();
            }
        },
        stop.get_token());
    ASSERT_TRUE(n.ok());
    EXPECT_GE(*n, 2);
    EXPECT_LT(*n, kAllExperts);
    EXPECT_FALSE(go_through(*store, model, 2, all_of(8), 1).has_value());

    const auto broken = make_faults({"disk.read:error@5,error@6"});
    options.faults = broken.get();
    const auto other = make(model, options);
    const Result<std::int64_t> failed = other->prefill_slots({}, {});
    ASSERT_FALSE(failed.ok());
    EXPECT_THAT(failed.error().text(), HasSubstr("errno 5"));
    const Result<std::int64_t> again = other->prefill_slots({}, {});
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(*again, kAllExperts);
}

TEST_F(ExpertStoreTest, SplitsLargeExpertsIntoManyReads) {
    // 3.4 MB of payload an expert: several requests each, shared by all threads.
    const SyntheticModel model({{1, 8, Storage::Int4, 64}}, 2048, 1120, FileOrder::Reference, 17);
    for (const ReadMode mode : {ReadMode::Buffered, ReadMode::Auto}) {
        ExpertStoreOptions options;
        options.n_slots = 3;
        options.read_mode = mode;
        const auto store = make(model, options);
        EXPECT_FALSE(go_through(*store, model, 1, all_of(8), 1).has_value());
        EXPECT_FALSE(go_through(*store, model, 1, all_of(8), 2).has_value());
    }
}

TEST_F(ExpertStoreTest, FloatSessionsHoldFloats) {
    const SyntheticModel model({{1, 4, Storage::Int8, 0}}, 64, 32, FileOrder::Reference, 18);
    ExpertStoreOptions options;
    options.precision = ExpertPrecision::Float;
    const auto store = make(model, options);
    ExpertVisit visit = store->begin_visit(1, all_of(4), 1);
    const Result<ExpertBatch> batch = visit.next_batch({});
    ASSERT_TRUE(batch.ok()) << batch.error().text();
    for (const ExpertLease& lease : batch->leases) {
        const WeightMatrix& down = lease.weights().down;
        EXPECT_EQ(down.format.kind, WeightKind::Float32);
        const TensorSource& source = model.matrix(static_cast<std::size_t>(lease.id().expert), 2);
        const std::byte* payload = model.bytes().data() + source.payload.offset;
        float scale = 0.0F;
        std::memcpy(&scale, model.bytes().data() + source.scales.offset, sizeof scale);
        for (std::int64_t col = 0; col < down.cols; ++col) {
            float value = 0.0F;
            std::memcpy(&value, down.data + col * 4, sizeof value);
            EXPECT_EQ(value, static_cast<float>(static_cast<std::int8_t>(payload[col])) * scale);
        }
    }
}

TEST_F(ExpertStoreTest, MemoryStaysFlat) {
    const SyntheticModel model(three_layers(), 256, 128, FileOrder::Reference, 19);
    ExpertStoreOptions options;
    options.n_slots = 7;
    const auto store = make(model, options);
    const std::int64_t allocated = device_.allocated_bytes();
    const ExpertStoreStats made = store->stats();
    EXPECT_EQ(allocated, made.slot_bytes + made.staging_bytes);
    const auto round = [&](std::int64_t clock) {
        // Comparing weights would fill a sanitizer's quarantine with our own copies.
        const auto check = Check::OrderOnly;
        EXPECT_FALSE(go_through(*store, model, 1, all_of(8), clock, check).has_value());
        EXPECT_FALSE(go_through(*store, model, 3, all_of(6), clock, check).has_value());
    };
    for (std::int64_t clock = 1; clock <= 20; ++clock) {
        round(clock);
    }
    const std::int64_t before = process_memory()->total_bytes();
    for (std::int64_t clock = 21; clock <= 220; ++clock) {
        round(clock);
    }
    const std::int64_t after = process_memory()->total_bytes();
    EXPECT_EQ(device_.allocated_bytes(), allocated);
    // 2,800 experts of 53 to 98 kB went through; heap slack and a sanitizer's quarantine aside,
    // nothing may stay.
    EXPECT_LT(after - before, std::int64_t{48} << 20);
}

TEST_F(ExpertStoreTest, CountsTheWaitThatTheUserSees) {
    const SyntheticModel model(three_layers(), 128, 64, FileOrder::Extents, 20);
    const auto faults = make_faults({"disk.read:delay=30"});
    ExpertStoreOptions options;
    options.faults = faults.get();
    const auto store = make(model, options);
    EXPECT_FALSE(go_through(*store, model, 1, {{0, 1}}, 1).has_value());
    const ExpertStoreStats stats = store->stats();
    EXPECT_GE(stats.visible_wait_seconds, 0.025);
    EXPECT_GE(stats.read_seconds, 0.025);
    EXPECT_FALSE(go_through(*store, model, 1, {{0, 1}}, 2).has_value());
    EXPECT_EQ(store->stats().visible_wait_seconds, stats.visible_wait_seconds);
}

TEST_F(ExpertStoreTest, AResidentVisitCostsNextToNothing) {
    // As many experts as a large layer has, 8 of them demanded.
    const SyntheticModel model({{1, 128, Storage::Int4, 64}, {2, 128, Storage::Int4, 64}}, 64, 64,
                               FileOrder::Extents, 21);
    const auto store = make(model, {});
    ASSERT_TRUE(store->prefill_slots({}, {}).ok());
    std::mt19937 random(21);
    constexpr int kVisits = 2000;
    std::vector<double> seconds;
    for (int i = 0; i < kVisits; ++i) {
        std::vector<Demand> demands = all_of(128);
        std::shuffle(demands.begin(), demands.end(), random);
        demands.resize(8);
        const auto begin = Clock::now();
        {
            ExpertVisit visit = store->begin_visit(1 + i % 2, demands, i);
            const Result<ExpertBatch> batch = visit.next_batch({});
            ASSERT_EQ(batch->leases.size(), 8U);
        }
        seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
    std::sort(seconds.begin(), seconds.end());
    const double median_us = seconds[kVisits / 2] * 1e6;
    RecordProperty("median_us", std::to_string(median_us));
    std::printf("a resident visit of 8 experts, leases returned: median %.2f us\n", median_us);
    // The aim is 2 us; sanitizers and a busy machine are slower, a lost order of magnitude is not.
    EXPECT_LT(median_us, 60.0);
}

}  // namespace
}  // namespace terrace
