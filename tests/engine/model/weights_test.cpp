#include "engine/model/weights.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <vector>

#include "engine/device/float_formats.h"
#include "engine/model/format_inference.h"

namespace terrace {
namespace {

TensorSource source_of(Storage storage, std::int64_t rows, std::int64_t cols) {
    TensorSource source;
    source.name = "model.layers.1.mlp.experts.3.up_proj.weight";
    source.role = TensorRole::RoutedExpert;
    source.layer = 1;
    source.storage = storage;
    source.rows = rows;
    source.cols = cols;
    return source;
}

std::vector<std::byte> bytes_of(const std::vector<float>& values) {
    std::vector<std::byte> out(values.size() * sizeof(float));
    std::memcpy(out.data(), values.data(), out.size());
    return out;
}

/// int4 per row: two rows of four, values 0 to 7 and -8.
struct Int4Case {
    TensorSource source = source_of(Storage::Int4, 2, 4);
    std::vector<std::byte> payload = {std::byte{0x98}, std::byte{0xBA}, std::byte{0x00},
                                      std::byte{0xFF}};
    std::vector<std::byte> scales = bytes_of({0.5F, 2.0F});

    Int4Case() {
        source.payload = {0, 0, 4};
        source.scale_storage = ScaleStorage::F32;
        source.scales = {0, 4, 8};
    }
};

TEST(MaterialiseTest, StoredIntegersAreUsedWithoutACopy) {
    Int4Case c;
    const auto weight = materialise(c.source, c.payload, c.scales, {WeightKind::Int4, 0});
    ASSERT_TRUE(weight.ok()) << weight.error().text();
    EXPECT_EQ(weight->matrix.payload, c.payload.data());
    EXPECT_EQ(static_cast<const void*>(weight->matrix.scales),
              static_cast<const void*>(c.scales.data()));
    EXPECT_TRUE(weight->payload.empty());
}

TEST(MaterialiseTest, ScalesThatAreNotAlignedAreCopied) {
    Int4Case c;
    std::vector<std::byte> shifted(c.scales.size() + 1);
    std::copy(c.scales.begin(), c.scales.end(), shifted.begin() + 1);
    const auto weight =
        materialise(c.source, c.payload, std::span(shifted).subspan(1), {WeightKind::Int4, 0});
    ASSERT_TRUE(weight.ok());
    EXPECT_EQ(weight->matrix.scales, weight->scales.data());
    EXPECT_EQ(weight->scales, (std::vector<float>{0.5F, 2.0F}));
}

TEST(MaterialiseTest, AFloatSessionDequantises) {
    Int4Case c;
    const auto weight = materialise(c.source, c.payload, c.scales, {});
    ASSERT_TRUE(weight.ok());
    const auto* floats = reinterpret_cast<const float*>(weight->matrix.payload);
    EXPECT_EQ(std::vector<float>(floats, floats + 8),
              (std::vector<float>{0.0F, 0.5F, 1.0F, 1.5F, -16.0F, -16.0F, 14.0F, 14.0F}));
}

TEST(MaterialiseTest, IntegersDoNotBecomeOtherIntegers) {
    Int4Case c;
    const auto weight = materialise(c.source, c.payload, c.scales, {WeightKind::Int8, 0});
    ASSERT_FALSE(weight.ok());
    EXPECT_EQ(weight.error().code, ErrorCode::Unsupported);
}

TEST(MaterialiseTest, RefusesEveryScaleOutsideTheRangeAndNamesTheRow) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -0.01F,
          0x1p-41F, 0x1.8p40F, 1e-40F}) {
        Int4Case c;
        c.scales = bytes_of({0.5F, bad});
        const auto weight = materialise(c.source, c.payload, c.scales, {WeightKind::Int4, 0});
        ASSERT_FALSE(weight.ok()) << bad;
        EXPECT_NE(weight.error().text().find(c.source.name + ": row 1"), std::string::npos)
            << weight.error().text();
    }
    for (const float good : {0.0F, 0x1p-40F, 0x1p40F}) {
        Int4Case c;
        c.scales = bytes_of({good, 1.0F});
        EXPECT_TRUE(materialise(c.source, c.payload, c.scales, {WeightKind::Int4, 0}).ok());
    }
}

TEST(MaterialiseTest, FloatsAreQuantisedAndAFaultNamesRowAndColumn) {
    std::vector<float> w(2 * 64, 0.25F);
    w[3] = -7.0F;
    TensorSource source = source_of(Storage::F32, 2, 64);
    std::vector<std::byte> payload = bytes_of(w);
    source.payload = {0, 0, static_cast<std::int64_t>(payload.size())};
    const auto weight = materialise(source, payload, {}, {WeightKind::Int4, 64});
    ASSERT_TRUE(weight.ok());
    EXPECT_EQ(weight->scales, (std::vector<float>{1.0F, 0.25F / 7.0F}));
    EXPECT_EQ(weight->payload[1], std::byte{0x18});  // columns 2 and 3: 0.25 -> 0, -7 -> 1
    EXPECT_EQ(weight->payload[32], std::byte{0xFF});

    w[64 + 9] = std::numeric_limits<float>::infinity();
    payload = bytes_of(w);
    const auto refused = materialise(source, payload, {}, {WeightKind::Int4, 64});
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().text().find("row 1, column 9"), std::string::npos);
}

TEST(MaterialiseTest, ASliceOfMergedFp8UsesTheBlockRowsOfItsPlace) {
    // Rows 100 to 199 of a tensor with block scales [2, 1]: 28 rows of the first block row.
    TensorSource source = source_of(Storage::F8E4M3, 100, 3);
    source.first_row = 100;
    std::vector<std::byte> payload(300, std::byte{0x38});  // 1.0
    const std::vector<std::byte> scales = bytes_of({2.0F, 4.0F});
    source.payload = {0, 0, 300};
    source.scale_storage = ScaleStorage::F32;
    source.scales = {0, 300, 8};
    const auto weight = materialise(source, payload, scales, {});
    ASSERT_TRUE(weight.ok());
    const auto* floats = reinterpret_cast<const float*>(weight->matrix.payload);
    EXPECT_EQ(floats[27 * 3 + 2], 2.0F);
    EXPECT_EQ(floats[28 * 3], 4.0F);
}

TEST(TargetFormatTest, FollowsTheRuleForFoldersQuantisedWhileLoading) {
    const auto format = [](TensorRole role, bool mtp = false) {
        TensorSource source;
        source.role = role;
        source.in_mtp_layer = mtp;
        source.storage = Storage::BF16;
        return target_format(source, FolderKind::Float, SessionKind::Quantised);
    };
    const WeightFormat int8{WeightKind::Int8, 0};
    const WeightFormat int4{WeightKind::Int4, 64};
    EXPECT_EQ(format(TensorRole::Embedding), int8);
    EXPECT_EQ(format(TensorRole::Head), int8);
    EXPECT_EQ(format(TensorRole::Indexer), int8);
    EXPECT_EQ(format(TensorRole::Attention), int4);
    EXPECT_EQ(format(TensorRole::DenseMlp), int4);
    EXPECT_EQ(format(TensorRole::SharedExpert), int4);
    EXPECT_EQ(format(TensorRole::RoutedExpert), int4);
    EXPECT_EQ(format(TensorRole::Router), WeightFormat{});
    EXPECT_EQ(format(TensorRole::Vector), WeightFormat{});
    EXPECT_EQ(format(TensorRole::RoutedExpert, true), int8);
    EXPECT_EQ(format(TensorRole::MtpProjection, true), int8);
    EXPECT_EQ(format(TensorRole::Router, true), WeightFormat{});
}

TEST(TargetFormatTest, AContainerKeepsWhatItHolds) {
    TensorSource source;
    source.role = TensorRole::Attention;
    source.storage = Storage::BF16;
    EXPECT_EQ(target_format(source, FolderKind::Container, SessionKind::Quantised), WeightFormat{});
    source.storage = Storage::Int3;
    source.group = 64;
    EXPECT_EQ(target_format(source, FolderKind::Container, SessionKind::Quantised),
              (WeightFormat{WeightKind::Int3, 64}));
    EXPECT_EQ(target_format(source, FolderKind::Container, SessionKind::Float), WeightFormat{});
}

InferredFormat inferred(std::int64_t rows,
                        std::int64_t cols,
                        std::int64_t bytes,
                        std::int64_t n_scales) {
    const auto format = infer_format({rows, cols, bytes, n_scales, std::nullopt, ""});
    EXPECT_TRUE(format.ok()) << (format ? "" : format.error().text());
    return format ? *format : InferredFormat{};
}

std::string refused(const PayloadFacts& facts) {
    const auto format = infer_format(facts);
    EXPECT_FALSE(format.ok());
    return format ? "" : format.error().text();
}

TEST(InferFormatTest, TellsTheKindsApartByTheirCounts) {
    EXPECT_EQ(inferred(6, 128, 768, 6).storage, Storage::Int8);
    EXPECT_EQ(inferred(300, 256, 76800, 6).storage, Storage::F8E4M3);
    EXPECT_EQ(inferred(6, 128, 384, 6).group, 0);
    EXPECT_EQ(inferred(6, 512, 1536, 48).group, 64);
    EXPECT_EQ(inferred(6, 512, 1536, 96).group, 32);
    EXPECT_EQ(inferred(6, 512, 768, 6).storage, Storage::Int2);
    EXPECT_EQ(inferred(6, 512, 1152, 48).storage, Storage::Int3);
}

TEST(InferFormatTest, ResolvesTiesAsTheReferenceDoes) {
    // o_proj of the published model: as many fp8 blocks as rows.
    EXPECT_EQ(inferred(6144, 16384, 6144LL * 16384, 6144).storage, Storage::Int8);
    // 64 and 96 both give two scales a row of 128.
    EXPECT_EQ(inferred(4, 128, 256, 8).group, 64);
    // int3 and int4 have the same bytes and counts for these widths: int4, and what that means.
    EXPECT_EQ(inferred(2, 47, 48, 2).storage, Storage::Int4);
    EXPECT_EQ(inferred(2, 48, 48, 2).storage, Storage::Int4);
    for (const std::int64_t cols : {95, 96, 143, 144}) {
        const std::int64_t groups = (cols + 63) / 64;
        EXPECT_NE(refused({2, cols, 2 * groups * 24, 2 * groups, std::nullopt, ""}).find("48"),
                  std::string::npos)
            << cols;
    }
}

TEST(InferFormatTest, AStatedGroupDecidesAndMustFit) {
    // 48 is first in the list for 96 columns and is refused; a file that says 64 is read.
    EXPECT_NE(refused({4, 96, 192, 8, std::nullopt, ""}).find("48"), std::string::npos);
    const auto stated = infer_format({4, 96, 192, 8, 64, ""});
    ASSERT_TRUE(stated.ok());
    EXPECT_EQ(stated->group, 64);
    EXPECT_NE(refused({4, 128, 256, 8, 32, ""}).find("groups of 32"), std::string::npos);
    const auto per_row = infer_format({4, 64, 128, 4, 64, ""});
    ASSERT_TRUE(per_row.ok());
    EXPECT_EQ(per_row->group, 0);
}

TEST(InferFormatTest, ALabelMustAgreeWithTheBytes) {
    EXPECT_TRUE(infer_format({4, 128, 256, 8, std::nullopt, "int4-grouped"}).ok());
    EXPECT_NE(refused({4, 128, 256, 8, std::nullopt, "int8-row"}).find("label"), std::string::npos);
    const auto fp8 = infer_format({128, 16384, 128LL * 16384, 128, std::nullopt, "fp8-e4m3-b128"});
    ASSERT_TRUE(fp8.ok());
    EXPECT_EQ(fp8->storage, Storage::F8E4M3);
}

TEST(InferFormatTest, NamesTheSizesThatWouldFit) {
    const std::string text = refused({32, 128, 2047, 64, std::nullopt, ""});
    for (const char* part : {"4096", "2048", "1536", "1024", "2047"}) {
        EXPECT_NE(text.find(part), std::string::npos) << part;
    }
    EXPECT_NE(refused({8, 512, 8 * 2 * 98, 1, std::nullopt, ""}).find("E8"), std::string::npos);
}

}  // namespace
}  // namespace terrace
