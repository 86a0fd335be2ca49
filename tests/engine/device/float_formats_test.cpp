#include "engine/device/float_formats.h"

#include <cmath>
#include <filesystem>
#include <limits>

#include "tests/engine/device/contract_vectors.h"

namespace terrace {
namespace {

using test::contract_vectors;

std::uint32_t bits(float x) {
    return x != x ? 0x7fc00000u : std::bit_cast<std::uint32_t>(x);
}

/// The arrays of the recorded number formats, a safetensors file made by another program.
class RecordedFormats {
public:
    RecordedFormats() {
        std::ifstream file(std::string(TERRACE_ORACLE_DIR) + "/container/vectors.safetensors",
                           std::ios::binary);
        std::uint64_t header_bytes = 0;
        if (!file.read(reinterpret_cast<char*>(&header_bytes), 8)) {
            return;
        }
        std::string header(header_bytes, ' ');
        file.read(header.data(), static_cast<std::streamsize>(header_bytes));
        header_ = nlohmann::json::parse(header, nullptr, false);
        data_.assign(std::istreambuf_iterator<char>(file), {});
    }

    [[nodiscard]] bool present() const { return !data_.empty(); }

    template <typename T>
    [[nodiscard]] std::vector<T> array(const std::string& name) const {
        const auto& offsets = header_.at(name).at("data_offsets");
        const auto first = offsets[0].get<std::size_t>();
        const auto n_bytes = offsets[1].get<std::size_t>() - first;
        std::vector<T> numbers(n_bytes / sizeof(T));
        std::memcpy(numbers.data(), data_.data() + first, n_bytes);
        return numbers;
    }

private:
    nlohmann::json header_;
    std::vector<char> data_;
};

constexpr const char* kSkipped =
    "6 arrays of container/vectors.safetensors (bf16, f16, e4m3fn, ue8m0, f16_encode, mxfp4): the "
    "reference data is not here";

TEST(FloatFormats, EveryRecordedCodeWidensToItsValue) {
    const RecordedFormats recorded;
    if (!recorded.present()) {
        GTEST_SKIP() << kSkipped;
    }
    const auto check = [&](const char* name, auto code_type, auto widen) {
        const auto codes = recorded.array<decltype(code_type)>(std::string(name) + ".codes");
        const auto want = recorded.array<float>(std::string(name) + ".f32");
        ASSERT_EQ(codes.size(), want.size());
        ASSERT_GE(codes.size(), 256u);
        for (std::size_t i = 0; i < codes.size(); ++i) {
            EXPECT_EQ(bits(widen(codes[i])), bits(want[i])) << name << " " << int{codes[i]};
        }
    };
    check("bf16", std::uint16_t{}, from_bf16);
    check("f16", std::uint16_t{}, from_f16);
    check("e4m3fn", std::uint8_t{}, from_e4m3fn);
    check("ue8m0", std::uint8_t{}, from_ue8m0);
}

TEST(FloatFormats, EveryRecordedNumberNarrowsToItsHalf) {
    const RecordedFormats recorded;
    if (!recorded.present()) {
        GTEST_SKIP() << kSkipped;
    }
    const auto numbers = recorded.array<float>("f16_encode.f32");
    const auto want = recorded.array<std::uint16_t>("f16_encode.codes");
    ASSERT_EQ(numbers.size(), want.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        EXPECT_EQ(bits(from_f16(to_f16(numbers[i]))), bits(from_f16(want[i]))) << numbers[i];
        EXPECT_EQ(std::isnan(numbers[i]) ? want[i] : to_f16(numbers[i]), want[i]) << numbers[i];
    }
}

TEST(FloatFormats, FourBitFloatsTimesTheirScaleGiveTheRecordedNumbers) {
    const RecordedFormats recorded;
    if (!recorded.present()) {
        GTEST_SKIP() << kSkipped;
    }
    for (const std::string name : {"mxfp4.scales", "mxfp4.experts"}) {
        const auto blocks = recorded.array<std::uint8_t>(name + ".blocks");
        const auto scales = recorded.array<std::uint8_t>(name + ".scales");
        const auto want = recorded.array<float>(name + ".f32");
        ASSERT_EQ(want.size(), 2 * blocks.size());
        for (std::size_t i = 0; i < want.size(); ++i) {
            const auto code = static_cast<std::uint8_t>(blocks[i / 2] >> (4 * (i % 2)));
            const float number = from_e2m1(code) * from_ue8m0(scales[i / 32]);
            EXPECT_EQ(bits(number), bits(want[i])) << name << " " << i;
        }
    }
}

TEST(FloatFormats, NumbersNarrowToTheRecordedHalves) {
    const auto halves = contract_vectors()["binary16"]["half"].get<std::string>();
    const auto numbers = test::floats_of(contract_vectors()["binary16"]["x"]);
    ASSERT_GT(numbers.size(), 20u);
    ASSERT_EQ(halves.size(), 4 * numbers.size());
    int n_exact = 0;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        const auto half = static_cast<std::uint16_t>(test::bits_of(halves.substr(4 * i, 4)));
        EXPECT_EQ(to_f16(numbers[i]), half) << numbers[i];
        // Only numbers with at most eleven significant bits come back unchanged.
        if ((std::bit_cast<std::uint32_t>(numbers[i]) & 0x1fff) == 0 &&
            std::abs(numbers[i]) >= 0x1p-14f) {
            EXPECT_EQ(bits(from_f16(half)), bits(numbers[i])) << half;
            ++n_exact;
        }
    }
    EXPECT_GE(n_exact, 3);
}

TEST(FloatFormats, EveryHalfSurvivesTheRoundTrip) {
    for (std::uint32_t code = 0; code < 65536; ++code) {
        const float x = from_f16(static_cast<std::uint16_t>(code));
        if (!std::isnan(x)) {
            ASSERT_EQ(to_f16(x), code);
        }
    }
    EXPECT_TRUE(std::isnan(from_f16(to_f16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(FloatFormats, HalfWayNumbersGoToTheEvenHalf) {
    for (std::uint32_t code = 0; code < 0x7bff; ++code) {
        const auto low = from_f16(static_cast<std::uint16_t>(code));
        const auto high = from_f16(static_cast<std::uint16_t>(code + 1));
        const float middle = low / 2 + high / 2;  // exact in binary32
        ASSERT_EQ(to_f16(middle), code + (code & 1)) << code;
        ASSERT_EQ(to_f16(std::nextafter(middle, 1e30f)), code + 1) << code;
        ASSERT_EQ(to_f16(std::nextafter(middle, 0.0f)), code) << code;
        ASSERT_EQ(to_f16(-middle), 0x8000 + code + (code & 1)) << code;
    }
    EXPECT_EQ(to_f16(65519.996f), 0x7bff);
    EXPECT_EQ(to_f16(65520.0f), 0x7c00);
    EXPECT_EQ(to_f16(-std::numeric_limits<float>::infinity()), 0xfc00);
}

TEST(FloatFormats, ArraysWidenLikeSingleCodesAtAnyAlignment) {
    std::vector<std::byte> bytes(515);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = static_cast<std::byte>(i * 167 + 13);
    }
    for (const std::size_t shift : {0u, 1u, 3u}) {
        std::vector<float> out(256);
        const auto code_at = [&](std::size_t i) {
            return static_cast<std::uint16_t>(std::to_integer<unsigned>(bytes[shift + 2 * i]) |
                                              std::to_integer<unsigned>(bytes[shift + 2 * i + 1])
                                                  << 8);
        };
        widen_bf16(bytes.data() + shift, 256, out.data());
        for (std::size_t i = 0; i < 256; ++i) {
            EXPECT_EQ(bits(out[i]), bits(from_bf16(code_at(i))));
        }
        widen_f16(bytes.data() + shift, 256, out.data());
        for (std::size_t i = 0; i < 256; ++i) {
            EXPECT_EQ(bits(out[i]), bits(from_f16(code_at(i))));
        }
        widen_e4m3fn(bytes.data() + shift, 256, out.data());
        for (std::size_t i = 0; i < 256; ++i) {
            EXPECT_EQ(bits(out[i]),
                      bits(from_e4m3fn(std::to_integer<std::uint8_t>(bytes[shift + i]))));
        }
    }
}

}  // namespace
}  // namespace terrace
