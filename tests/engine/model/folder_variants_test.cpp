// Every broken, odd and good folder of the reference set: what opens, what is refused, and
// whether the message names what it has to name. The folders are written by a script of the
// reference data; without it the test is skipped.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "engine/model/model_folder.h"
#include "engine/text/template/chat_template.h"
#include "engine/text/tokenizer.h"
#include "tests/engine/model/sha256.h"

namespace terrace {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
}

/// The message without the path of the folder itself, which may hold what a variant asks for.
std::string without(std::string text, const std::string& part) {
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part)) {
        text.erase(at, part.size());
    }
    return text;
}

bool holds_number(const std::string& text, const std::string& number) {
    for (std::size_t at = text.find(number); at != std::string::npos;
         at = text.find(number, at + 1)) {
        const bool left = at > 0 && std::isdigit(static_cast<unsigned char>(text[at - 1])) != 0;
        const std::size_t end = at + number.size();
        const bool right =
            end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0;
        if (!left && !right) {
            return true;
        }
    }
    return false;
}

/// Name, size, kind and time of everything below a folder: opening must not change it.
std::string snapshot(const fs::path& root) {
    std::ostringstream out;
    std::map<std::string, std::string> entries;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root)) {
        std::error_code error;
        const auto status = entry.symlink_status();
        const auto size = fs::is_regular_file(status) ? fs::file_size(entry.path(), error) : 0;
        const auto time = fs::is_regular_file(status)
                              ? fs::last_write_time(entry.path(), error).time_since_epoch().count()
                              : 0;
        entries[entry.path().native()] = std::to_string(static_cast<int>(status.type())) + " " +
                                         std::to_string(size) + " " + std::to_string(time);
    }
    for (const auto& [name, facts] : entries) {
        out << name << ' ' << facts << '\n';
    }
    return out.str();
}

long resident_kib() {
    std::ifstream status("/proc/self/status");
    std::string line;
    while (std::getline(status, line)) {
        if (line.rfind("VmHWM:", 0) == 0) {
            return std::stol(line.substr(6));
        }
    }
    return 0;
}

void reset_peak() {
    std::ofstream("/proc/self/clear_refs") << "5";
}

/// Reads every weight in the format of a quantised session; the first error, if any.
std::optional<Error> read_all_weights(const ModelFolder& folder) {
    const Checkpoint& checkpoint = *folder.checkpoint;
    for (const auto* list : {&checkpoint.dense(), &checkpoint.experts()}) {
        for (const TensorSource& source : *list) {
            const WeightFormat target =
                target_format(source, checkpoint.kind(), SessionKind::Quantised);
            const Result<RawWeight> weight = checkpoint.read_weight(source, target);
            if (!weight) {
                return weight.error();
            }
        }
    }
    return std::nullopt;
}

/// SHA-256 of the bytes that the checkpoint uses for a tensor.
std::string used_bytes(const ModelFolder& folder, const std::string& tensor) {
    for (const TensorSource& source : folder.checkpoint->experts()) {
        if (source.name == tensor) {
            std::vector<std::byte> bytes(static_cast<std::size_t>(source.payload.bytes));
            const CheckpointFile& file =
                folder.checkpoint->files()[static_cast<std::size_t>(source.payload.file)];
            EXPECT_TRUE(file.file.read_exact(source.payload.offset, bytes).ok());
            return sha256_hex(bytes);
        }
    }
    return "no such tensor";
}

std::string from_hex(const std::string& hex) {
    std::string out;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
        out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    }
    return out;
}

class FolderVariants : public ::testing::Test {
protected:
    static void SetUpTestSuite() {
        const fs::path oracle = TERRACE_ORACLE_DIR;
        const fs::path script = oracle / "make" / "broken_folders.py";
        if (!fs::exists(script)) {
            return;
        }
        root_ = fs::temp_directory_path() / ("terrace-folders-" + std::to_string(::getpid()));
        const std::string command =
            "/usr/bin/python3 -B '" + script.string() + "' '" + root_.string() + "'";
        ASSERT_EQ(std::system(command.c_str()), 0) << command;
        std::ifstream expected(oracle / "folders" / "expected.json");
        expected_ = json::parse(expected);
    }

    static void TearDownTestSuite() {
        std::error_code error;
        if (!root_.empty()) {
            fs::permissions(root_ / "read_only_folder" / "model", fs::perms::owner_all, error);
            fs::remove_all(root_, error);
        }
    }

    static inline fs::path root_;
    static inline json expected_;
};

/// What went wrong with one variant; empty when nothing did.
std::string judge(const json& variant, const fs::path& root) {
    const std::string name = variant["name"];
    const std::string given = variant.contains("given_hex")
                                  ? from_hex(variant["given_hex"].get<std::string>())
                                  : variant["given"].get<std::string>();
    const std::string before = snapshot(root / name);
    reset_peak();
    const long memory = resident_kib();
    const auto start = std::chrono::steady_clock::now();
    const std::clock_t cpu_start = std::clock();
    // String concatenation: "model/." must arrive as written.
    const Result<ModelFolder> folder =
        open_model_folder(fs::path((root / name).string() + "/" + given));
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    const double cpu_s = static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC;
    const long used_kib = resident_kib() - memory;
    std::string text;
    bool opened = folder.ok();
    if (!folder) {
        text = folder.error().text();
    } else {
        for (const std::string& warning : folder->facts.warnings) {
            text += warning + "\n";
        }
        if (const std::optional<Error> error = read_all_weights(*folder)) {
            opened = false;
            text = error->text();
        }
    }
    std::string problem;
    // The promise is 2 s; a busy machine may need more for the same work, waiting shows anyway.
    if (cpu_s > 2.0 || time.count() > 10.0) {
        problem += " took " + std::to_string(cpu_s) + " s of work in " +
                   std::to_string(time.count()) + " s;";
    }
    if (used_kib > 200 * 1024) {
        problem += " took " + std::to_string(used_kib) + " KiB;";
    }
    if (snapshot(root / name) != before) {
        problem += " changed the folder;";
    }
    for (const char c : folder ? std::string() : text) {
        if (static_cast<unsigned char>(c) < 0x20) {
            problem += " a control character in the message;";
            break;
        }
    }
    const json open = variant["open"];
    if (!open.is_null() && open.get<bool>() != opened) {
        problem += opened ? " opened;" : " was refused;";
    }
    if (!folder &&
        text.find(fs::path(given).filename().string().substr(0, 5)) == std::string::npos &&
        name.rfind("path_", 0) != 0) {
        problem += " does not name what was given;";
    }
    const bool must_hold = !open.is_null() || !opened;
    const std::string judged = lower(without(text, (root / name).string()));
    for (const json& part : variant.value("contains", json::array())) {
        if (must_hold && judged.find(lower(part.get<std::string>())) == std::string::npos) {
            problem += " does not name " + part.get<std::string>() + ";";
        }
    }
    for (const json& number : variant.value("numbers", json::array())) {
        if (must_hold && !holds_number(judged, number.dump())) {
            problem += " does not give " + number.dump() + ";";
        }
    }
    if (variant.value("say", "") == "download incomplete" &&
        judged.find("incomplete") == std::string::npos) {
        problem += " does not say that the download is incomplete;";
    }
    if (folder) {
        const json winners = variant.value("winner", json::object());
        for (const auto& [tensor, sha] : winners.items()) {
            if (used_bytes(*folder, tensor) != sha.get<std::string>()) {
                problem += " uses the wrong bytes for " + tensor + ";";
            }
        }
    }
    return problem.empty() ? problem : name + ":" + problem + " [" + text + "]";
}

TEST_F(FolderVariants, EveryFolderOpensOrIsRefusedAsExpected) {
    if (root_.empty()) {
        GTEST_SKIP() << "258 folder variants skipped: no " << TERRACE_ORACLE_DIR
                     << "/make/broken_folders.py";
    }
    const bool root_user = ::geteuid() == 0;
    int n_right = 0;
    int n_skipped = 0;
    const json& variants = expected_["variants"];
    for (const json& variant : variants) {
        if (root_user && variant["name"] == "shard_no_permission") {
            std::cout << "skipped as root: " << variant["name"] << "\n";
            ++n_skipped;
            continue;
        }
        const std::string problem = judge(variant, root_);
        EXPECT_EQ(problem, "");
        n_right += problem.empty() ? 1 : 0;
    }
    std::cout << n_right << " of " << variants.size() << " folders as expected, " << n_skipped
              << " skipped\n";
    EXPECT_EQ(variants.size(), 258U);
}

}  // namespace
}  // namespace terrace
