#include "engine/cpu/cpu_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace terrace::cpu {

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr CpuFeatures kAvx2Machine{(1u << 12) | (1u << 27) | (1u << 29), 1u << 5, 0, 0, 0x07};

CpuFeatures avx512_machine() {
    CpuFeatures f = kAvx2Machine;
    f.leaf7_ebx |= (1u << 16) | (1u << 17) | (1u << 30) | (1u << 31);
    f.leaf7_ecx |= 1u << 11;
    f.saved_states = 0xe7;
    return f;
}

}  // namespace

TEST(CpuContextTest, KnowsTheFamiliesByTheirFeatures) {
    EXPECT_THAT(isas_of(kAvx2Machine), ElementsAre(Isa::Scalar, Isa::Avx2));
    CpuFeatures vnni = kAvx2Machine;
    vnni.leaf7_1_eax = 1u << 4;
    EXPECT_THAT(isas_of(vnni), ElementsAre(Isa::Scalar, Isa::Avx2, Isa::AvxVnni));
    EXPECT_THAT(isas_of(avx512_machine()), ElementsAre(Isa::Scalar, Isa::Avx2, Isa::Avx512));
}

TEST(CpuContextTest, AVectorUnitThatTheSystemDoesNotSaveIsNotUsed) {
    CpuFeatures no_zmm = avx512_machine();
    no_zmm.saved_states = 0x07;
    EXPECT_THAT(isas_of(no_zmm), ElementsAre(Isa::Scalar, Isa::Avx2));
    CpuFeatures no_ymm = avx512_machine();
    no_ymm.saved_states = 0x03;
    EXPECT_TRUE(isas_of(no_ymm).empty());
}

TEST(CpuContextTest, EveryPartOfTheFloorIsNeeded) {
    for (const int missing : {12, 29}) {
        CpuFeatures f = kAvx2Machine;
        f.leaf1_ecx &= ~(1u << missing);
        EXPECT_TRUE(isas_of(f).empty()) << missing;
    }
    CpuFeatures no_vnni = avx512_machine();
    no_vnni.leaf7_ecx = 0;
    EXPECT_THAT(isas_of(no_vnni), ElementsAre(Isa::Scalar, Isa::Avx2));
}

TEST(CpuContextTest, AutoIsTheFastest) {
    EXPECT_EQ(choose_isa("auto", isas_of(avx512_machine())).value(), Isa::Avx512);
    EXPECT_EQ(choose_isa("scalar", isas_of(avx512_machine())).value(), Isa::Scalar);
}

TEST(CpuContextTest, ErrorsNameWhatThisProcessorOffers) {
    const Result<Isa> lacking = choose_isa("avx512", isas_of(kAvx2Machine));
    ASSERT_FALSE(lacking.ok());
    EXPECT_EQ(lacking.error().code, ErrorCode::Unsupported);
    EXPECT_THAT(lacking.error().text(), HasSubstr("scalar, avx2"));
    const Result<Isa> unknown = choose_isa("sse", isas_of(kAvx2Machine));
    ASSERT_FALSE(unknown.ok());
    EXPECT_EQ(unknown.error().code, ErrorCode::WrongUse);
    EXPECT_THAT(unknown.error().text(), HasSubstr("avx512"));
    const Result<Isa> floor = choose_isa("auto", {});
    ASSERT_FALSE(floor.ok());
    EXPECT_THAT(floor.error().text(), HasSubstr("AVX2"));
}

}  // namespace terrace::cpu
