// The quantiser, the reader and the writer against the reference container, byte for byte.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "engine/device/float_formats.h"
#include "engine/model/container_writer.h"
#include "engine/model/quantise.h"
#include "engine/text/template/chat_template.h"
#include "engine/text/tokenizer.h"
#include "tests/engine/model/sha256.h"
#include "tests/engine/model/tensor_file.h"
#include "tests/engine/model/tiny_folder.h"

namespace terrace {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const fs::path kOracle = TERRACE_ORACLE_DIR;

json read_json(const fs::path& path) {
    std::ifstream in(path);
    return json::parse(in);
}

std::string read_file(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

WeightFormat format_of(const std::string& kind) {
    const std::size_t line = kind.find('_');
    const std::string bits = kind.substr(0, line);
    const std::string group = kind.substr(line + 1);
    const WeightKind weight = bits == "int8"   ? WeightKind::Int8
                              : bits == "int4" ? WeightKind::Int4
                              : bits == "int3" ? WeightKind::Int3
                                               : WeightKind::Int2;
    return {weight, group == "row" ? 0 : std::stoi(group.substr(1))};
}

struct Quantised {
    std::vector<std::byte> payload;
    std::vector<float> scales;
    std::optional<QuantiseFault> fault;
};

Quantised quantised(const std::vector<float>& w, std::size_t cols, WeightFormat format) {
    const auto row_bytes =
        static_cast<std::size_t>(raw_row_bytes(format.kind, static_cast<std::int64_t>(cols)));
    const auto row_scales =
        static_cast<std::size_t>(scales_per_row(format, static_cast<std::int64_t>(cols)));
    const std::size_t rows = w.size() / cols;
    Quantised out{std::vector<std::byte>(rows * row_bytes), std::vector<float>(rows * row_scales),
                  std::nullopt};
    for (std::size_t row = 0; row < rows && !out.fault; ++row) {
        out.fault = quantise_row(std::span(w).subspan(row * cols, cols), format,
                                 out.payload.data() + row * row_bytes,
                                 out.scales.data() + row * row_scales);
    }
    return out;
}

std::vector<float> dequantised(const std::vector<std::byte>& payload,
                               const std::vector<float>& scales,
                               std::size_t rows,
                               std::size_t cols,
                               WeightFormat format) {
    std::vector<float> out(rows * cols);
    const std::size_t row_bytes = payload.size() / rows;
    const std::size_t row_scales = scales.size() / rows;
    for (std::size_t row = 0; row < rows; ++row) {
        dequantise_row(payload.data() + row * row_bytes, scales.data() + row * row_scales, format,
                       std::span(out).subspan(row * cols, cols));
    }
    return out;
}

/// Equal bits, any NaN equal to any NaN.
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    if (a.size() != b.size()) {
        return false;
    }
    for (std::size_t i = 0; i < a.size(); ++i) {
        const bool nan = std::isnan(a[i]) && std::isnan(b[i]);
        if (!nan && std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i])) {
            return false;
        }
    }
    return true;
}

class ContainerOracle : public ::testing::Test {
protected:
    void SetUp() override {
        if (!fs::exists(kOracle / "container")) {
            GTEST_SKIP() << "reference container vectors skipped: no " << kOracle;
        }
    }
};

/// Checks one case that has a payload: dequantised, and quantised again where there is a source.
void check_case(const TensorFile& file, const json& entry, const std::string& source) {
    const std::string name = entry["case"];
    const WeightFormat format = format_of(entry["kind"]);
    const auto rows = entry["rows"].get<std::size_t>();
    const auto cols = entry["columns"].get<std::size_t>();
    const std::vector<std::byte> payload = file.bytes(name + ".payload");
    const std::vector<float> scales = file.floats(name + ".qs");
    EXPECT_TRUE(
        same_bits(dequantised(payload, scales, rows, cols, format), file.floats(name + ".deq")))
        << name;
    if (source.empty()) {
        return;
    }
    const Quantised got = quantised(file.floats(source), cols, format);
    if (entry.contains("loader")) {
        ASSERT_TRUE(got.fault.has_value()) << name;
        EXPECT_EQ(got.fault->kind, QuantiseFault::Kind::ScaleTooLarge) << name;
        EXPECT_EQ(got.fault->column, 5) << name;
        return;
    }
    EXPECT_FALSE(got.fault.has_value()) << name;
    EXPECT_EQ(got.payload, payload) << name;
    EXPECT_TRUE(same_bits(got.scales, scales)) << name;
}

TEST_F(ContainerOracle, QuantisesAndReadsEveryCaseInEveryByte) {
    const TensorFile file(kOracle / "container" / "vectors.safetensors");
    const json index = read_json(kOracle / "container" / "vectors.json");
    for (const char* list : {"quantise", "read"}) {
        for (const json& entry : index[list]) {
            check_case(file, entry, entry.value("w", ""));
        }
    }
    EXPECT_EQ(index["quantise"].size() + index["read"].size(), 38U);
}

TEST_F(ContainerOracle, QuantisesAndReadsInt3AndInt2InEveryByte) {
    const TensorFile file(kOracle / "container" / "lowbit.safetensors");
    const json index = read_json(kOracle / "container" / "lowbit.json");
    for (const json& entry : index) {
        check_case(file, entry,
                   entry["quantise"].get<bool>() ? entry["case"].get<std::string>() + ".w" : "");
    }
    EXPECT_EQ(index.size(), 12U);
}

TEST_F(ContainerOracle, RefusesWeightsThatAreNotFinite) {
    const TensorFile file(kOracle / "container" / "vectors.safetensors");
    const json index = read_json(kOracle / "container" / "vectors.json");
    for (const json& entry : index["refuse"]) {
        const Quantised got =
            quantised(file.floats(entry["w"]), 64, WeightFormat{WeightKind::Int4, 64});
        ASSERT_TRUE(got.fault.has_value());
        EXPECT_EQ(got.fault->kind, QuantiseFault::Kind::NotFinite);
        EXPECT_EQ(got.fault->column, entry["column"].get<std::int64_t>());
        const std::string text = quantise_error("model.x.weight", 0, *got.fault).text();
        EXPECT_NE(text.find("model.x.weight"), std::string::npos);
        EXPECT_NE(text.find("row 0, column 7"), std::string::npos) << text;
    }
    EXPECT_EQ(index["refuse"].size(), 3U);
}

/// A float source as a folder would hold it.
TensorSource float_source(const StoredTensor& tensor, Storage storage) {
    TensorSource source;
    source.name = tensor.name;
    source.role = TensorRole::Attention;
    source.storage = storage;
    source.rows = tensor.rank == 2 ? tensor.shape[0] : 1;
    source.cols = tensor.rank == 2 ? tensor.shape[1] : tensor.shape[0];
    source.payload = {0, 0, tensor.bytes()};
    return source;
}

std::vector<float> widened(const TensorSource& source,
                           const std::vector<std::byte>& payload,
                           const std::vector<std::byte>& scales) {
    const Result<RawWeight> weight = materialise(source, payload, scales, {});
    EXPECT_TRUE(weight.ok()) << (weight ? "" : weight.error().text());
    std::vector<float> out(static_cast<std::size_t>(source.rows * source.cols));
    if (weight) {
        std::memcpy(out.data(), weight->matrix.payload, out.size() * sizeof(float));
    }
    return out;
}

TEST_F(ContainerOracle, WidensHalvesAndFp8BlocksExactly) {
    const TensorFile file(kOracle / "container" / "vectors.safetensors");
    for (const auto& [name, storage] :
         {std::pair("bf16", Storage::BF16), std::pair("f16", Storage::F16)}) {
        const std::string codes = std::string(name) + ".codes";
        const TensorSource source = float_source(*file.find(codes), storage);
        EXPECT_TRUE(same_bits(widened(source, file.bytes(codes), {}),
                              file.floats(std::string(name) + ".f32")))
            << name;
    }
    for (const char* name : {"fp8_block.130x260", "fp8_block.64x130", "fp8_block_ue8m0.64x130",
                             "fp8_block.1x1", "fp8_block.129x128"}) {
        const std::string base = name;
        const bool ue8m0 = file.find(base + ".scale") != nullptr;
        const std::string scales = base + (ue8m0 ? ".scale" : ".weight_scale_inv");
        TensorSource source = float_source(*file.find(base + ".weight"), Storage::F8E4M3);
        source.scale_storage = ue8m0 ? ScaleStorage::UE8M0 : ScaleStorage::F32;
        source.scales = {0, 0, file.find(scales)->bytes()};
        EXPECT_TRUE(same_bits(widened(source, file.bytes(base + ".weight"), file.bytes(scales)),
                              file.floats(base + ".f32")))
            << name;
    }
}

TEST_F(ContainerOracle, DecodesTheFourBitFloatsAndTheirScales) {
    const TensorFile file(kOracle / "container" / "vectors.safetensors");
    const auto code = [](const std::vector<std::byte>& bytes, std::size_t i) {
        return std::to_integer<std::uint8_t>(bytes[i]);
    };
    const auto nibble = [&](const std::vector<std::byte>& bytes, std::size_t i) {
        return from_e2m1(static_cast<std::uint8_t>(code(bytes, i / 2) >> (4 * (i % 2)) & 15));
    };
    for (const std::string name : {"mxfp4.scales", "mxfp4.experts"}) {
        const auto blocks = file.bytes(name + ".blocks");
        const auto scales = file.bytes(name + ".scales");
        std::vector<float> got;
        for (std::size_t i = 0; i < blocks.size() * 2; ++i) {
            const std::uint8_t scale = code(scales, i / 32);
            got.push_back(
                scale == 255 ? NAN
                             : static_cast<float>(std::ldexp(static_cast<double>(nibble(blocks, i)),
                                                             static_cast<int>(scale) - 127)));
        }
        EXPECT_TRUE(same_bits(got, file.floats(name + ".f32"))) << name;
    }
    for (const std::string name : {"nvfp4.small", "nvfp4.big"}) {
        const auto weight = file.bytes(name + ".weight");
        const auto scale = file.bytes(name + ".weight_scale");
        const float scale2 = file.floats(name + ".weight_scale_2")[0];
        std::vector<float> got;
        for (std::size_t i = 0; i < weight.size() * 2; ++i) {
            got.push_back(nibble(weight, i) * from_e4m3fn(code(scale, i / 16)) * scale2);
        }
        EXPECT_TRUE(same_bits(got, file.floats(name + ".f32"))) << name;
    }
    std::vector<float> e4m3;
    std::vector<float> ue8m0;
    for (int i = 0; i < 256; ++i) {
        e4m3.push_back(from_e4m3fn(static_cast<std::uint8_t>(i)));
        ue8m0.push_back(from_ue8m0(static_cast<std::uint8_t>(i)));
    }
    EXPECT_TRUE(same_bits(e4m3, file.floats("e4m3fn.f32")));
    EXPECT_TRUE(same_bits(ue8m0, file.floats("ue8m0.f32")));
}

TEST_F(ContainerOracle, EncodesHalvesWithOneRounding) {
    const TensorFile file(kOracle / "container" / "vectors.safetensors");
    const std::vector<float> x = file.floats("f16_encode.f32");
    const std::vector<std::byte> codes = file.bytes("f16_encode.codes");
    ASSERT_EQ(codes.size(), 2 * x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
        std::uint16_t code = 0;
        std::memcpy(&code, codes.data() + 2 * i, 2);
        EXPECT_EQ(to_f16(x[i]), code) << x[i];
    }
}

ModelFolder opened(const fs::path& path) {
    Result<ModelFolder> folder = open_model_folder(path);
    EXPECT_TRUE(folder.ok()) << (folder ? "" : folder.error().text());
    return folder ? std::move(*folder) : ModelFolder();
}

constexpr ContainerOptions kAsTheReference = {ContainerOrder::Reference, std::int64_t{5} << 30,
                                              ContainerOptions::MtpIndexer::Drop};

TEST_F(ContainerOracle, WritesTheTinyContainerByteForByte) {
    const fs::path reference = kOracle / "container" / "tiny-int4g64";
    const TemporaryFolder temporary;
    const ModelFolder source = opened(kOracle / "container" / "tiny-hf");
    ASSERT_NE(source.checkpoint, nullptr);
    const Status written =
        write_container(source, kAsTheReference, temporary.path() / "out", nullptr, {});
    ASSERT_TRUE(written.ok()) << written.error().text();
    std::size_t n_files = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator(reference)) {
        const fs::path ours = temporary.path() / "out" / entry.path().filename();
        EXPECT_TRUE(read_file(ours) == read_file(entry.path())) << entry.path().filename();
        ++n_files;
    }
    EXPECT_EQ(n_files, 11U);
    const fs::directory_iterator all(temporary.path() / "out");
    EXPECT_EQ(static_cast<std::size_t>(std::distance(fs::begin(all), fs::end(all))), n_files);
}

TEST_F(ContainerOracle, WritesTheDemoModelAsTheReferenceDoes) {
    const fs::path demo = kOracle.parent_path() / "demo-model";
    if (!fs::exists(demo / "config.json")) {
        GTEST_SKIP() << "demo manifest skipped: no " << demo;
    }
    const json manifest = read_json(kOracle / "container" / "demo-int4g64.manifest.json");
    const TemporaryFolder temporary;
    const ModelFolder source = opened(demo);
    ASSERT_NE(source.checkpoint, nullptr);
    const Status written =
        write_container(source, kAsTheReference, temporary.path() / "out", nullptr, {});
    ASSERT_TRUE(written.ok()) << written.error().text();
    const json files = manifest["files_as_the_reference_writes_them"];
    for (const auto& [name, facts] : files.items()) {
        const std::string bytes = read_file(temporary.path() / "out" / name);
        EXPECT_EQ(sha256_hex(std::as_bytes(std::span(bytes))), facts["sha256"]) << name;
    }
    EXPECT_EQ(files.size(), 7U);
}

/// SHA-256 of a range of a checkpoint file.
std::string sha_of(const Checkpoint& checkpoint, const FileRange& range) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(range.bytes));
    EXPECT_TRUE(checkpoint.files()[static_cast<std::size_t>(range.file)]
                    .file.read_exact(range.offset, bytes)
                    .ok());
    return sha256_hex(bytes);
}

TEST_F(ContainerOracle, EveryTensorOfTheDemoModelHasTheRecordedBytesInOurOrderToo) {
    const fs::path demo = kOracle.parent_path() / "demo-model";
    if (!fs::exists(demo / "config.json")) {
        GTEST_SKIP() << "demo manifest skipped: no " << demo;
    }
    const json manifest = read_json(kOracle / "container" / "demo-int4g64.manifest.json");
    const TemporaryFolder temporary;
    ASSERT_TRUE(write_container(opened(demo), {}, temporary.path() / "out", nullptr, {}).ok());
    const ModelFolder folder = opened(temporary.path() / "out");
    ASSERT_NE(folder.checkpoint, nullptr);
    EXPECT_TRUE(folder.facts.has_mtp);
    EXPECT_TRUE(folder.checkpoint->mtp_has_indexer());
    std::map<std::string, const TensorSource*> sources;
    for (const auto* list : {&folder.checkpoint->dense(), &folder.checkpoint->experts()}) {
        for (const TensorSource& source : *list) {
            sources[source.name] = &source;
        }
    }
    std::size_t n_tensors = 0;
    for (const char* list : {"tensors", "optional"}) {
        for (const json& entry : manifest[list]) {
            const std::string name = entry["name"];
            ASSERT_EQ(sources.count(name), 1U) << name;
            const TensorSource& source = *sources[name];
            EXPECT_EQ(sha_of(*folder.checkpoint, source.payload), entry["sha256"]) << name;
            if (entry.contains("qs_sha256")) {
                EXPECT_EQ(sha_of(*folder.checkpoint, source.scales), entry["qs_sha256"]) << name;
            }
            ++n_tensors;
        }
    }
    EXPECT_EQ(n_tensors, sources.size());
}

}  // namespace
}  // namespace terrace
