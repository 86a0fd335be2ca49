#include "engine/support/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/support/faults.h"
#include "tests/engine/support/temp_folder.h"

namespace terrace {
namespace {

using test::TempFolder;
using ::testing::HasSubstr;

std::string random_text(std::size_t n, unsigned seed) {
    std::mt19937 random(seed);
    std::string text(n, '\0');
    for (char& c : text) {
        c = static_cast<char>(random() & 0xFF);
    }
    return text;
}

void write_file(const std::filesystem::path& path, const std::string& text) {
    Result<File> file = File::create(path);
    ASSERT_TRUE(file.ok()) << file.error().text();
    const Status written = file->write(text);
    ASSERT_TRUE(written.ok()) << written.error().text();
}

std::string as_text(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

struct FreeMemory {
    void operator()(std::byte* memory) const { std::free(memory); }
};

using AlignedBlock = std::unique_ptr<std::byte, FreeMemory>;

AlignedBlock aligned_block(std::size_t bytes) {
    return AlignedBlock(
        static_cast<std::byte*>(std::aligned_alloc(std::size_t{kDirectAlignment}, bytes)));
}

std::unique_ptr<FaultInjector> faults(const std::vector<std::string>& specs) {
    Result<std::unique_ptr<FaultInjector>> parsed = FaultInjector::parse(specs);
    EXPECT_TRUE(parsed.ok());
    return std::move(parsed).value();
}

TEST(File, ReadsWhatWasWrittenAtAnyOffset) {
    const TempFolder folder;
    const std::string text = random_text(10'000, 1);
    write_file(folder / "a b ü", text);
    const Result<File> file = File::open(folder / "a b ü");
    ASSERT_TRUE(file.ok()) << file.error().text();
    EXPECT_EQ(*file->size(), 10'000);
    for (const std::size_t offset : {0U, 1U, 4095U, 9'999U}) {
        std::vector<std::byte> out(text.size() - offset);
        ASSERT_TRUE(file->read_exact(static_cast<std::int64_t>(offset), out).ok());
        EXPECT_EQ(as_text(out), text.substr(offset));
    }
}

TEST(File, SaysWhichFileIsMissing) {
    const TempFolder folder;
    const Result<File> file = File::open(folder / "no such file");
    ASSERT_FALSE(file.ok());
    EXPECT_EQ(file.error().code, ErrorCode::NotFound);
    EXPECT_THAT(file.error().text(), HasSubstr("no such file"));
    EXPECT_THAT(file.error().text(), HasSubstr("errno 2"));
}

TEST(File, RefusesAFolder) {
    const TempFolder folder;
    const Result<File> file = File::open(folder.path());
    ASSERT_FALSE(file.ok());
    EXPECT_EQ(file.error().code, ErrorCode::Unreadable);
}

TEST(File, SaysWhereAFileEndsTooEarly) {
    const TempFolder folder;
    write_file(folder / "short", "0123456789");
    const Result<File> file = File::open(folder / "short");
    ASSERT_TRUE(file.ok());
    std::vector<std::byte> out(8);
    const Status status = file->read_exact(6, out);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::Incomplete);
    EXPECT_THAT(status.error().text(), HasSubstr("4 bytes at offset 10"));
}

TEST(File, ReadsDirectlyPastTheEndWhenEnoughArrives) {
    const TempFolder folder;
    const std::string text = random_text(4096 + 100, 2);
    write_file(folder / "direct", text);
    const Result<File> file = File::open(folder / "direct", {ReadMode::Auto, nullptr});
    ASSERT_TRUE(file.ok());
    if (!file->direct()) {
        EXPECT_THAT(file->direct_refusal(), HasSubstr("errno"));
        GTEST_SKIP() << "this file system refuses direct reads: " << file->direct_refusal();
    }
    const AlignedBlock block = aligned_block(8192);
    const std::span<std::byte> out(block.get(), 8192);
    ASSERT_TRUE(file->read_exact(0, out, 4196).ok());
    EXPECT_EQ(as_text(out.first(4196)), text);
    const Status status = file->read_exact(0, out, 4197);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::Incomplete);
}

TEST(File, ChecksTheAlignmentOfDirectReads) {
    const TempFolder folder;
    write_file(folder / "direct", random_text(8192, 3));
    const Result<File> file = File::open(folder / "direct", {ReadMode::Auto, nullptr});
    ASSERT_TRUE(file.ok());
    if (!file->direct()) {
        GTEST_SKIP() << "this file system refuses direct reads: " << file->direct_refusal();
    }
    const AlignedBlock block = aligned_block(8192);
    const std::span<std::byte> out(block.get(), 4096);
    EXPECT_DEATH(static_cast<void>(file->read_some(512, out)), "aligned");
    EXPECT_DEATH(static_cast<void>(file->read_some(0, out.first(100))), "aligned");
    EXPECT_DEATH(static_cast<void>(file->read_some(0, {block.get() + 64, 4096})), "aligned");
}

TEST(File, RepeatsAFailedReadOnceAndReportsTheSecondFailure) {
    const TempFolder folder;
    const std::string text = random_text(1000, 4);
    write_file(folder / "f", text);
    std::vector<std::byte> out(600);

    const auto once = faults({"disk.read:error@1"});
    const Result<File> file = File::open(folder / "f", {ReadMode::Buffered, once.get()});
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->read_exact(400, out).ok());
    EXPECT_EQ(as_text(out), text.substr(400));
    EXPECT_EQ(once->counts().injected, 1);
    EXPECT_EQ(once->counts().repaired, 1);

    const auto twice = faults({"disk.read:error@1,error@2"});
    const Result<File> broken = File::open(folder / "f", {ReadMode::Buffered, twice.get()});
    ASSERT_TRUE(broken.ok());
    const Status status = broken->read_exact(400, out);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::Io);
    EXPECT_THAT(status.error().text(), HasSubstr("600 bytes at offset 400"));
    EXPECT_THAT(status.error().text(), HasSubstr("errno 5"));
    EXPECT_THAT(status.error().text(), HasSubstr((folder / "f").string()));
    EXPECT_EQ(twice->counts().injected, 2);
    EXPECT_EQ(twice->counts().repaired, 0);
}

TEST(File, ContinuesAfterShortReads) {
    const TempFolder folder;
    const std::string text = random_text(1 << 16, 5);
    write_file(folder / "f", text);
    for (const ReadMode mode : {ReadMode::Buffered, ReadMode::Auto}) {
        const auto some = faults({"disk.read:short@1,short@2,short@3"});
        const Result<File> file = File::open(folder / "f", {mode, some.get()});
        ASSERT_TRUE(file.ok());
        const AlignedBlock block = aligned_block(1 << 16);
        const std::span<std::byte> out(block.get(), 1 << 16);
        ASSERT_TRUE(file->read_exact(0, out).ok());
        EXPECT_TRUE(as_text(out) == text);
        EXPECT_EQ(some->counts().injected, 3);
        EXPECT_EQ(some->counts().repaired, 3);
    }
}

TEST(File, NamesTheFullDriveOnAFailedWrite) {
    Result<File> full = File::create("/dev/full");
    ASSERT_TRUE(full.ok());
    const Status status = full->write("text");
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::Io);
    EXPECT_THAT(status.error().text(), HasSubstr("/dev/full"));
    EXPECT_THAT(status.error().text(), HasSubstr("offset 0"));
    EXPECT_THAT(status.error().next_step, HasSubstr("space"));
}

TEST(AtomicFile, AppearsWholeOrNotAtAll) {
    const TempFolder folder;
    write_file(folder / "target", "old");
    {
        Result<AtomicFile> file = AtomicFile::create(folder / "target");
        ASSERT_TRUE(file.ok()) << file.error().text();
        ASSERT_TRUE(file->write("new").ok());
        EXPECT_EQ(*read_text_file(folder / "target", 100), "old");
    }
    EXPECT_EQ(*read_text_file(folder / "target", 100), "old");
    {
        Result<AtomicFile> file = AtomicFile::create(folder / "target");
        ASSERT_TRUE(file.ok());
        AtomicFile moved = std::move(file).value();
        ASSERT_TRUE(moved.write("new").ok());
        ASSERT_TRUE(moved.commit().ok());
    }
    EXPECT_EQ(*read_text_file(folder / "target", 100), "new");
    int n_entries = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) {
        ++n_entries;
    }
    EXPECT_EQ(n_entries, 1) << "a temporary file was left behind";
}

TEST(AtomicFile, SaysWhenTheFolderIsMissing) {
    const TempFolder folder;
    const Result<AtomicFile> file = AtomicFile::create(folder / "no/such/folder/file");
    ASSERT_FALSE(file.ok());
    EXPECT_EQ(file.error().code, ErrorCode::NotFound);
}

TEST(ReadTextFile, RefusesWhatIsTooLong) {
    const TempFolder folder;
    write_file(folder / "f", "0123456789");
    EXPECT_EQ(*read_text_file(folder / "f", 10), "0123456789");
    const Result<std::string> text = read_text_file(folder / "f", 9);
    ASSERT_FALSE(text.ok());
    EXPECT_EQ(text.error().code, ErrorCode::TooLarge);
}

}  // namespace
}  // namespace terrace
