#include "engine/device/philox.h"

#include "tests/engine/device/contract_vectors.h"

namespace terrace {
namespace {

TEST(Philox, ProducesThePublishedWords) {
    const auto& cases = test::contract_vectors()["philox4x32_10"];
    ASSERT_GE(cases.size(), 4u);
    for (const auto& c : cases) {
        const auto key = test::words_of(c["key"]);
        const auto counter = test::words_of(c["counter"]);
        const auto words = philox4x32({key.at(0), key.at(1)},
                                      {counter.at(0), counter.at(1), counter.at(2), counter.at(3)});
        EXPECT_EQ(std::vector<std::uint32_t>(words.begin(), words.end()),
                  test::words_of(c["words"]));
    }
}

}  // namespace
}  // namespace terrace
