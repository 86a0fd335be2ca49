#include "engine/device/stream.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace terrace {
namespace {

TEST(FaultWord, KeepsTheSmallestRowThenLayerThenSite) {
    FaultWord faults;
    EXPECT_FALSE(faults.first().has_value());
    faults.report({7, 2, FaultSite::Quantise});
    faults.report({6, 9, FaultSite::Logits});
    EXPECT_EQ(faults.first()->position, 6);
    faults.report({6, 3, FaultSite::Score});
    faults.report({6, 3, FaultSite::Router});
    faults.report({6, 4, FaultSite::Quantise});
    EXPECT_EQ(faults.first()->position, 6);
    EXPECT_EQ(faults.first()->layer, 3);
    EXPECT_EQ(faults.first()->site, FaultSite::Router);
    faults.clear();
    EXPECT_FALSE(faults.first().has_value());
}

TEST(FaultWord, KeepsTheSmallestOfManyThreads) {
    FaultWord faults;
    {
        std::vector<std::jthread> threads;
        for (int t = 0; t < 4; ++t) {
            threads.emplace_back([&faults, t] {
                for (int p = 1000; p > 0; --p) {
                    faults.report({4 * p + t, t, FaultSite::Score});
                }
            });
        }
    }
    EXPECT_EQ(faults.first()->position, 4);
    EXPECT_EQ(faults.first()->layer, 0);
}

TEST(Stream, KeepsTheFirstErrorUntilItIsTaken) {
    Stream stream;
    EXPECT_FALSE(stream.take_error().has_value());
    stream.fail({ErrorCode::Device, "first", "", ""});
    stream.fail({ErrorCode::Io, "second", "", ""});
    EXPECT_EQ(stream.take_error()->message, "first");
    EXPECT_FALSE(stream.take_error().has_value());
}

}  // namespace
}  // namespace terrace
