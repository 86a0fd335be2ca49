#include "engine/support/memory.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "engine/support/file.h"

namespace terrace {
namespace {

namespace fs = std::filesystem;

/// Files of /proc and /sys report size 0, so they are read until they end.
std::optional<std::string> read_virtual_file(const fs::path& path) {
    constexpr std::size_t kStep = 64 * 1024;
    constexpr std::size_t kMaxBytes = 16 * 1024 * 1024;
    const Result<File> file = File::open(path);
    if (!file) {
        return std::nullopt;
    }
    std::string text;
    while (text.size() < kMaxBytes) {
        const std::size_t before = text.size();
        text.resize(before + kStep);
        const auto room = std::as_writable_bytes(std::span(text)).subspan(before);
        const ReadOutcome outcome = file->read_some(static_cast<std::int64_t>(before), room);
        if (outcome.error != 0) {
            return std::nullopt;
        }
        text.resize(before + static_cast<std::size_t>(outcome.bytes));
        if (outcome.bytes == 0) {
            break;
        }
    }
    return text;
}

/// The number after `key` at the start of a line ("RssAnon:  123 kB", "inactive_file 4096").
std::optional<std::int64_t> number_of(std::string_view text, std::string_view key) {
    std::size_t begin = 0;
    while (begin < text.size()) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        std::string_view line = text.substr(begin, end - begin);
        begin = end + 1;
        if (!line.starts_with(key)) {
            continue;
        }
        line.remove_prefix(key.size());
        const std::size_t digits = line.find_first_not_of(" \t");
        if (digits == std::string_view::npos || digits == 0) {
            continue;
        }
        line.remove_prefix(digits);
        std::int64_t n = 0;
        const auto [stop, error] = std::from_chars(line.data(), line.data() + line.size(), n);
        if (error == std::errc()) {
            return n;
        }
    }
    return std::nullopt;
}

/// A file that holds one number; "max" and anything unreadable: none.
std::optional<std::int64_t> number_in(const fs::path& path) {
    const std::optional<std::string> text = read_virtual_file(path);
    std::int64_t n = 0;
    if (!text || std::from_chars(text->data(), text->data() + text->size(), n).ec != std::errc()) {
        return std::nullopt;
    }
    return n;
}

Error unexpected(const fs::path& path, const std::string& what) {
    return {ErrorCode::Unreadable, "expected " + what + ", found none", path.string(),
            "Check that /proc is mounted."};
}

/// Names of the files that one version of control groups uses.
struct GroupFiles {
    std::vector<const char*> limits;
    const char* usage;
    const char* inactive_file;
    const char* active_file;
};

const GroupFiles& group_files(int version) {
    static const GroupFiles v1 = {{"memory.limit_in_bytes"},
                                  "memory.usage_in_bytes",
                                  "total_inactive_file",
                                  "total_active_file"};
    static const GroupFiles v2 = {
        {"memory.max", "memory.high"}, "memory.current", "inactive_file", "active_file"};
    return version == 1 ? v1 : v2;
}

/// Room left in one group: limit - usage + file pages it could drop; none without a limit.
std::optional<std::int64_t> room_in(const fs::path& folder, int version) {
    // Version 1 says "no limit" with a number near 2^63.
    constexpr std::int64_t kNoLimit = std::int64_t{1} << 60;
    const GroupFiles& names = group_files(version);
    std::int64_t limit = kNoLimit;
    for (const char* name : names.limits) {
        limit = std::min(limit, number_in(folder / name).value_or(kNoLimit));
    }
    const std::optional<std::int64_t> usage = number_in(folder / names.usage);
    if (limit >= kNoLimit || !usage) {
        return std::nullopt;
    }
    const std::string stat = read_virtual_file(folder / "memory.stat").value_or("");
    const std::int64_t reclaimable = number_of(stat, names.inactive_file).value_or(0) +
                                     number_of(stat, names.active_file).value_or(0);
    return std::max<std::int64_t>(0, limit - *usage + std::min(reclaimable, *usage));
}

/// A mounted tree of control groups.
struct GroupMount {
    int version = 0;
    fs::path point;  ///< where it is mounted, without the root in front
    fs::path root;   ///< the group that the mount point shows
};

std::vector<std::string> words_of(const std::string& line) {
    std::istringstream in(line);
    std::vector<std::string> words;
    for (std::string word; in >> word;) {
        words.push_back(word);
    }
    return words;
}

/// Mounts that carry the memory controller: every cgroup2, and cgroup with the option "memory".
std::vector<GroupMount> group_mounts(const std::string& mountinfo) {
    std::vector<GroupMount> mounts;
    std::istringstream lines(mountinfo);
    for (std::string line; std::getline(lines, line);) {
        const std::vector<std::string> words = words_of(line);
        const auto dash = std::find(words.begin(), words.end(), "-");
        if (words.size() < 6 || words.end() - dash < 4) {
            continue;
        }
        const std::string& type = dash[1];
        const std::string options = "," + dash[3] + ",";
        if (type == "cgroup2") {
            mounts.push_back({2, words[4], words[3]});
        } else if (type == "cgroup" && options.find(",memory,") != std::string::npos) {
            mounts.push_back({1, words[4], words[3]});
        }
    }
    return mounts;
}

/// The group of this process in one hierarchy, from the lines "id:controllers:path".
std::optional<fs::path> own_group(const std::string& cgroup, int version) {
    std::istringstream lines(cgroup);
    for (std::string line; std::getline(lines, line);) {
        const std::size_t first = line.find(':');
        const std::size_t second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) {
            continue;
        }
        const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
        const bool matches =
            version == 2 ? controllers == ",," : controllers.find(",memory,") != std::string::npos;
        if (matches) {
            return fs::path(line.substr(second + 1));
        }
    }
    return std::nullopt;
}

/// `group` as seen below the mount; the mount point itself when it is not below it, as in a
/// container that sees its host's paths.
fs::path below_mount(const fs::path& group, const fs::path& mount_root) {
    const fs::path relative = group.lexically_relative(mount_root);
    if (relative.empty() || *relative.begin() == ".." || relative == ".") {
        return {};
    }
    return relative;
}

/// Calls look(folder) for the group's folder and each one around it, the mount point last.
template <typename Look>
void for_each_enclosing(const fs::path& mount_point, fs::path relative, Look look) {
    while (!relative.empty()) {
        look(mount_point / relative);
        relative = relative.parent_path();
    }
    look(mount_point);
}

}  // namespace

Result<ProcessMemory> process_memory(const fs::path& root) {
    constexpr std::int64_t kKib = 1024;
    const fs::path path = root / "proc/self/status";
    const std::optional<std::string> text = read_virtual_file(path);
    if (!text) {
        return unexpected(path, "a readable file");
    }
    const std::optional<std::int64_t> anon = number_of(*text, "RssAnon:");
    if (!anon) {
        return unexpected(path, "the field RssAnon");
    }
    ProcessMemory memory;
    memory.rss_anon_bytes = *anon * kKib;
    memory.rss_shmem_bytes = number_of(*text, "RssShmem:").value_or(0) * kKib;
    memory.swap_bytes = number_of(*text, "VmSwap:").value_or(0) * kKib;
    memory.hugetlb_bytes = number_of(*text, "HugetlbPages:").value_or(0) * kKib;
    return memory;
}

Result<AvailableMemory> available_memory(const fs::path& root) {
    constexpr std::int64_t kKib = 1024;
    const fs::path path = root / "proc/meminfo";
    const std::optional<std::string> text = read_virtual_file(path);
    const std::optional<std::int64_t> available =
        text ? number_of(*text, "MemAvailable:") : std::nullopt;
    if (!available) {
        return unexpected(path, "the field MemAvailable");
    }
    AvailableMemory memory;
    memory.machine_bytes = *available * kKib;
    memory.bytes = memory.machine_bytes;
    const std::string mountinfo = read_virtual_file(root / "proc/self/mountinfo").value_or("");
    const std::string cgroup = read_virtual_file(root / "proc/self/cgroup").value_or("");
    for (const GroupMount& mount : group_mounts(mountinfo)) {
        const fs::path group = own_group(cgroup, mount.version).value_or(mount.root);
        const fs::path point = root / mount.point.relative_path();
        for_each_enclosing(point, below_mount(group, mount.root), [&](const fs::path& folder) {
            const std::optional<std::int64_t> room = room_in(folder, mount.version);
            if (room && (memory.cgroup_bytes < 0 || *room < memory.cgroup_bytes)) {
                memory.cgroup_bytes = *room;
                memory.limited_by = *room < memory.bytes ? folder : memory.limited_by;
                memory.bytes = std::min(memory.bytes, *room);
            }
        });
    }
    return memory;
}

}  // namespace terrace
