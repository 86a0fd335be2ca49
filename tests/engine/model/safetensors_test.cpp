#include "engine/model/safetensors.h"

#include <gtest/gtest.h>

#include "engine/model/printable.h"
#include "engine/model/shard_index.h"
#include "engine/model/shard_names.h"

namespace terrace {
namespace {

constexpr const char* kTwo = R"({"__metadata__":{"format":"pt"},)"
                             R"("b":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]},)"
                             R"("a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]}})";

std::int64_t file_bytes(std::string_view header, std::int64_t data) {
    return static_cast<std::int64_t>(header.size()) + 8 + data;
}

std::string refusal(std::string_view header, std::int64_t data) {
    const auto parsed = parse_safetensors_header(header, file_bytes(header, data));
    EXPECT_FALSE(parsed.ok()) << header;
    return parsed ? "" : parsed.error().text();
}

TEST(SafetensorsTest, ReadsAHeaderInTheOrderOfTheOffsets) {
    const auto header = parse_safetensors_header(kTwo, file_bytes(kTwo, 32));
    ASSERT_TRUE(header.ok()) << header.error().text();
    ASSERT_EQ(header->tensors.size(), 2U);
    EXPECT_EQ(header->tensors[0].name, "a");
    EXPECT_EQ(header->tensors[1].shape_text(), "[2, 3]");
    EXPECT_EQ(header->tensors[1].begin, header->data_begin + 8);
    EXPECT_EQ(header->tensors[1].n_elements(), 6);
    EXPECT_EQ(header->metadata.at("format"), "pt");
}

TEST(SafetensorsTest, AScalarHasOneElement) {
    const std::string text = R"({"x":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})";
    const auto header = parse_safetensors_header(text, file_bytes(text, 4));
    ASSERT_TRUE(header.ok());
    EXPECT_EQ(header->tensors[0].n_elements(), 1);
}

TEST(SafetensorsTest, SaysHowMuchOfACutFileIsMissing) {
    const auto header = parse_safetensors_header(kTwo, file_bytes(kTwo, 30));
    ASSERT_FALSE(header.ok());
    EXPECT_EQ(header.error().code, ErrorCode::Incomplete);
    EXPECT_NE(header.error().message.find("2 bytes are missing"), std::string::npos);
}

TEST(SafetensorsTest, RefusesWhatItWouldHaveToGuess) {
    EXPECT_NE(refusal(kTwo, 40).find("8 more"), std::string::npos);
    EXPECT_NE(refusal("[]", 0).find("\"{\""), std::string::npos);
    EXPECT_NE(refusal(R"({"x":{"dtype":"BF17","shape":[1],"data_offsets":[0,2]}})", 2).find("BF17"),
              std::string::npos);
    EXPECT_NE(refusal(R"({"x":{"dtype":"U8","shape":[3],"data_offsets":[0,4]}})", 4)
                  .find("needs 3 bytes"),
              std::string::npos);
    EXPECT_NE(refusal(R"({"x":{"dtype":"U8","shape":[4,4294967296,4294967296],)"
                      R"("data_offsets":[0,0]}})",
                      0)
                  .find("larger than any file"),
              std::string::npos);
    EXPECT_NE(refusal(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                      R"("x":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                      2)
                  .find("twice"),
              std::string::npos);
}

TEST(SafetensorsTest, RefusesOverlapsAndHoles) {
    EXPECT_NE(refusal(R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                      R"("y":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
                      8)
                  .find("inside x"),
              std::string::npos);
    EXPECT_NE(refusal(R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                      R"("y":{"dtype":"U8","shape":[4],"data_offsets":[6,10]}})",
                      10)
                  .find("2 bytes between it and x"),
              std::string::npos);
}

TEST(SafetensorsTest, EscapesControlCharactersOfNames) {
    const std::string text = R"({"\u001b[31mred":{"dtype":"U8","shape":[1],"data_offsets":[0,2]}})";
    const std::string message = refusal(text, 2);
    EXPECT_EQ(message.find('\x1b'), std::string::npos);
    EXPECT_NE(message.find("\\x1b[31mred"), std::string::npos);
}

TEST(PrintableTest, ReplacesWhatIsNoTextAndCutsWhatIsLong) {
    EXPECT_EQ(printable("caf\xe9"), "caf\xEF\xBF\xBD");
    EXPECT_EQ(printable("a\nb\x7f"), "a\\x0ab\\x7f");
    EXPECT_EQ(printable("\xC2\x9B"
                        "1m"),
              "\\xc2\\x9b1m");
    EXPECT_EQ(printable("\xE2\x80\xAEtxt"), "\\xe2\\x80\\xaetxt");
    EXPECT_EQ(printable("abcdef", 3), "abc...");
    EXPECT_EQ(printable("モデル"), "モデル");
}

TEST(ShardIndexTest, ReadsTheMapAndSkipsTheRest) {
    const auto index = parse_shard_index(
        R"({"metadata":{"total_size":12,"x":[1,{"y":null}]},"weight_map":{"a":"f1","b":"f2","c":"f1"}})");
    ASSERT_TRUE(index.ok()) << index.error().text();
    EXPECT_EQ(index->files, (std::vector<std::string>{"f1", "f2"}));
    EXPECT_EQ(index->tensors.at("c"), 0U);
    EXPECT_EQ(index->total_bytes, 12);
}

TEST(ShardIndexTest, RefusesEveryNameThatIsNoFileOfTheFolder) {
    for (const char* name :
         {"../x", "/etc/passwd", "a/b", "..", ".", "", "C:x", "a\\\\b", "a\\u0000b", "a\\u001bb"}) {
        const auto index =
            parse_shard_index(R"({"weight_map":{"a":")" + std::string(name) + "\"}}");
        ASSERT_FALSE(index.ok()) << name;
        EXPECT_EQ(index.error().context, "a") << name;
    }
    EXPECT_FALSE(parse_shard_index(R"({"weight_map":{"a":"x","a":"y"}})").ok());
    EXPECT_FALSE(parse_shard_index(R"({"weight_map":[]})").ok());
    EXPECT_FALSE(parse_shard_index("7").ok());
}

TEST(NamePrefixTest, FindsWhatStandsInPlaceOfModel) {
    const auto mapped = [](const std::string& embed, const std::string& name) {
        const std::string mtp = "model.layers.9.embed_tokens.weight";
        return NamePrefix::detect({mtp, embed}).canonical(name);
    };
    EXPECT_EQ(mapped("model.embed_tokens.weight", "model.norm.weight"), "model.norm.weight");
    EXPECT_EQ(mapped("x.y.model.embed_tokens.weight", "x.y.model.norm.weight"),
              "model.norm.weight");
    EXPECT_EQ(mapped("x.y.model.embed_tokens.weight", "x.y.lm_head.weight"), "lm_head.weight");
    EXPECT_EQ(mapped("model.language_model.embed_tokens.weight", "lm_head.weight"),
              "lm_head.weight");
    EXPECT_EQ(mapped("model.language_model.embed_tokens.weight", "model.visual.x"),
              "model.visual.x");
    EXPECT_EQ(mapped("embed_tokens.weight", "layers.0.mlp.gate.weight"),
              "model.layers.0.mlp.gate.weight");
}

}  // namespace
}  // namespace terrace
