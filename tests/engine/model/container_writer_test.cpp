#include "engine/model/container_writer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "engine/text/template/chat_template.h"
#include "engine/text/tokenizer.h"
#include "tests/engine/model/tensor_file.h"
#include "tests/engine/model/tiny_folder.h"

namespace terrace {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

ModelFolder opened(const fs::path& path) {
    Result<ModelFolder> folder = open_model_folder(path);
    EXPECT_TRUE(folder.ok()) << (folder ? "" : folder.error().text());
    return folder ? std::move(*folder) : ModelFolder();
}

/// A matrix of counted bytes in any format, with valid scales.
struct CountedMatrix {
    std::vector<std::byte> payload;
    std::vector<float> scales;
    RawMatrix matrix;

    explicit CountedMatrix(const ContainerTensor& tensor) {
        payload.resize(
            static_cast<std::size_t>(tensor.rows * raw_row_bytes(tensor.format.kind, tensor.cols)));
        for (std::size_t i = 0; i < payload.size(); ++i) {
            payload[i] = static_cast<std::byte>(i * 7 + tensor.name.size());
        }
        scales.assign(
            static_cast<std::size_t>(tensor.rows * scales_per_row(tensor.format, tensor.cols)),
            0.5F);
        matrix = {tensor.format, tensor.rows, tensor.cols, payload.data(), scales.data()};
    }
};

ContainerTensor tensor_of(const std::string& name, WeightFormat format, std::int64_t expert = -1) {
    ContainerTensor tensor;
    tensor.name = name;
    tensor.format = format;
    tensor.rows = 16;
    tensor.cols = 512;
    tensor.expert = expert;
    return tensor;
}

TEST(ContainerPlanTest, ExpertsFollowTheRestAndAreNeverSplit) {
    std::vector<ContainerTensor> tensors = {tensor_of("a", {WeightKind::Int8, 0})};
    for (int expert = 0; expert < 4; ++expert) {
        for (const char* projection : {"gate", "up", "down"}) {
            tensors.push_back(
                tensor_of(projection + std::to_string(expert), {WeightKind::Int4, 64}, expert));
        }
    }
    // One expert: 3 * (16 * 256 + 16 * 8 * 4) = 13,824 bytes; two fit a file.
    const auto plans = plan_container(tensors, {{"k", "v"}}, 30'000);
    ASSERT_EQ(plans.size(), 3U);
    EXPECT_EQ(plans[0].file_name, "out-00000.safetensors");
    EXPECT_EQ(plans[0].tensors.size(), 1U);
    EXPECT_EQ(plans[1].tensors.size(), 6U);
    EXPECT_EQ(plans[2].file_name, "out-00002.safetensors");
    EXPECT_EQ(plans[2].tensors[0].name, "gate2");
    EXPECT_EQ(plans[1].metadata.at("terrace.group_size"), "64");
    EXPECT_EQ(plans[0].metadata.count("terrace.group_size"), 0U);
    EXPECT_EQ(plans[0].metadata.at("k"), "v");
}

TEST(ContainerFileWriterTest, WritesEveryKindAndReadsItBack) {
    const TemporaryFolder folder;
    ContainerFilePlan plan;
    plan.file_name = "out-00000.safetensors";
    const std::vector<WeightFormat> formats = {{WeightKind::Float32, 0}, {WeightKind::Int8, 0},
                                               {WeightKind::Int4, 0},    {WeightKind::Int4, 16},
                                               {WeightKind::Int4, 256},  {WeightKind::Int3, 64},
                                               {WeightKind::Int2, 0}};
    for (std::size_t i = 0; i < formats.size(); ++i) {
        plan.tensors.push_back(tensor_of("t" + std::to_string(i), formats[i]));
    }
    auto writer = ContainerFileWriter::create(folder.path(), plan);
    ASSERT_TRUE(writer.ok()) << writer.error().text();
    for (const ContainerTensor& tensor : plan.tensors) {
        ASSERT_TRUE(writer->write(CountedMatrix(tensor).matrix).ok());
    }
    EXPECT_FALSE(fs::exists(folder.path() / plan.file_name));
    ASSERT_TRUE(writer->finish().ok());
    EXPECT_EQ(static_cast<std::int64_t>(fs::file_size(folder.path() / plan.file_name)),
              writer->file_bytes());
    const TensorFile file(folder.path() / plan.file_name);
    EXPECT_EQ(file.header().data_begin % 4096, 0);
    for (const ContainerTensor& tensor : plan.tensors) {
        const CountedMatrix expected(tensor);
        EXPECT_EQ(file.bytes(tensor.name), expected.payload) << tensor.name;
        if (tensor.format.quantised()) {
            EXPECT_EQ(file.floats(tensor.name + ".qs"), expected.scales) << tensor.name;
        }
    }
}

TEST(ContainerFileWriterTest, AnUnfinishedFileLeavesNothing) {
    const TemporaryFolder folder;
    ContainerFilePlan plan;
    plan.file_name = "out-00000.safetensors";
    plan.tensors = {tensor_of("a", {WeightKind::Int8, 0})};
    {
        auto writer = ContainerFileWriter::create(folder.path(), plan);
        ASSERT_TRUE(writer.ok());
        ASSERT_TRUE(writer->write(CountedMatrix(plan.tensors[0]).matrix).ok());
    }
    EXPECT_TRUE(fs::is_empty(folder.path()));
}

class ConvertTest : public ::testing::Test {
protected:
    void SetUp() override {
        TinyFolder::make(3).write(source_path());
        source_ = opened(source_path());
        ASSERT_NE(source_.checkpoint, nullptr);
    }

    [[nodiscard]] fs::path source_path() const { return temporary_.path() / "source"; }

    [[nodiscard]] fs::path out_path() const { return temporary_.path() / "out"; }

    TemporaryFolder temporary_;
    ModelFolder source_;
};

TEST_F(ConvertTest, AnExpertIsOneExtentOfPayloadsAndScales) {
    ASSERT_TRUE(write_container(source_, {}, out_path(), nullptr, {}).ok());
    const ModelFolder folder = opened(out_path());
    ASSERT_NE(folder.checkpoint, nullptr);
    EXPECT_EQ(folder.facts.kind, FolderKind::Container);
    const Checkpoint& c = *folder.checkpoint;
    std::int64_t end = -1;
    for (std::int64_t expert = 0; expert < 4; ++expert) {
        const TensorSource& gate = c.expert(1, expert, Projection::Gate);
        const TensorSource& up = c.expert(1, expert, Projection::Up);
        const TensorSource& down = c.expert(1, expert, Projection::Down);
        const auto next = [](const FileRange& range) { return range.offset + range.bytes; };
        EXPECT_EQ(up.payload.offset, next(gate.payload));
        EXPECT_EQ(down.payload.offset, next(up.payload));
        EXPECT_EQ(gate.scales.offset, next(down.payload));
        EXPECT_EQ(up.scales.offset, next(gate.scales));
        EXPECT_EQ(down.scales.offset, next(up.scales));
        EXPECT_EQ(gate.payload.offset, end < 0 ? 4096 : end);
        end = next(down.scales);
    }
}

TEST_F(ConvertTest, TheContainerHoldsTheBitsOfTheFolderQuantisedWhileLoading) {
    ASSERT_TRUE(write_container(source_, {}, out_path(), nullptr, {}).ok());
    const ModelFolder folder = opened(out_path());
    ASSERT_NE(folder.checkpoint, nullptr);
    const auto& from = source_.checkpoint->experts();
    const auto& to = folder.checkpoint->experts();
    ASSERT_EQ(from.size(), to.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
        const WeightFormat format =
            target_format(from[i], FolderKind::Float, SessionKind::Quantised);
        const auto a = source_.checkpoint->read_weight(from[i], format);
        const auto b = folder.checkpoint->read_weight(
            to[i], target_format(to[i], FolderKind::Container, SessionKind::Quantised));
        ASSERT_TRUE(a.ok() && b.ok());
        EXPECT_EQ(a->payload, b->payload) << from[i].name;
        EXPECT_EQ(a->scales, b->scales) << from[i].name;
    }
}

TEST_F(ConvertTest, RepackingAContainerKeepsEveryByteOfItsTensors) {
    ASSERT_TRUE(write_container(source_, {}, out_path(), nullptr, {}).ok());
    const ModelFolder once = opened(out_path());
    const ContainerOptions options = {ContainerOrder::Reference, std::int64_t{5} << 30,
                                      ContainerOptions::MtpIndexer::Keep};
    ASSERT_NE(once.checkpoint, nullptr);
    ASSERT_TRUE(write_container(once, options, temporary_.path() / "twice", nullptr, {}).ok());
    const ModelFolder twice = opened(temporary_.path() / "twice");
    ASSERT_NE(twice.checkpoint, nullptr);
    for (const TensorSource& source : once.checkpoint->dense()) {
        const auto other = twice.checkpoint->matrix(source.name);
        ASSERT_TRUE(other.ok()) << source.name;
        const WeightFormat format =
            target_format(source, FolderKind::Container, SessionKind::Quantised);
        const auto a = once.checkpoint->read_weight(source, format);
        const auto b = twice.checkpoint->read_weight(*other, format);
        ASSERT_TRUE(a.ok() && b.ok()) << source.name;
        EXPECT_EQ(a->payload, b->payload) << source.name;
        EXPECT_EQ(a->scales, b->scales) << source.name;
    }
}

TEST_F(ConvertTest, ReportsProgressToTheEnd) {
    std::int64_t last = 0;
    std::int64_t total = 0;
    const auto progress = [&](const ConvertProgress& p) {
        EXPECT_GE(p.bytes_done, last);
        last = p.bytes_done;
        total = p.bytes_total;
    };
    ASSERT_TRUE(write_container(source_, {}, out_path(), progress, {}).ok());
    EXPECT_GT(total, 0);
    EXPECT_EQ(last, total);
    EXPECT_EQ(read_file(out_path() / "config.json"), read_file(source_path() / "config.json"));
}

TEST_F(ConvertTest, AStopLeavesNoFolderThatOpens) {
    std::stop_source stop;
    int n = 0;
    const auto progress = [&](const ConvertProgress&) {
        if (++n == 10) {
            stop.request_stop();
        }
    };
    const Status stopped = write_container(source_, {}, out_path(), progress, stop.get_token());
    ASSERT_FALSE(stopped.ok());
    EXPECT_EQ(stopped.error().code, ErrorCode::Cancelled);
    EXPECT_FALSE(open_model_folder(out_path()).ok());
}

TEST_F(ConvertTest, WritesNothingIntoTheModelOrIntoAFolderThatHoldsFiles) {
    const Status inside = write_container(source_, {}, source_path() / "out", nullptr, {});
    ASSERT_FALSE(inside.ok());
    EXPECT_EQ(inside.error().code, ErrorCode::WrongUse);
    fs::create_directories(out_path());
    std::ofstream(out_path() / "mine.txt") << "x";
    const Status full = write_container(source_, {}, out_path(), nullptr, {});
    ASSERT_FALSE(full.ok());
    EXPECT_EQ(full.error().code, ErrorCode::WrongUse);
    EXPECT_EQ(read_file(out_path() / "mine.txt"), "x");
}

}  // namespace
}  // namespace terrace
