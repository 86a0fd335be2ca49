#include "engine/model/model_identity.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "engine/model/fnv.h"
#include "engine/model/printable.h"

namespace terrace {
namespace {

constexpr std::string_view kRules = "terrace identity 1, quantise rule 1";
constexpr std::int64_t kSamples = 16;
constexpr std::int64_t kSampleBytes = 4096;

std::uint64_t add_number(std::uint64_t hash, std::uint64_t number) {
    std::array<char, 8> bytes{};
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = static_cast<char>(number >> (8 * i) & 0xFFU);
    }
    return fnv1a({bytes.data(), bytes.size()}, hash);
}

/// Adds the block that begins at `at` of the data of all files together; it ends with its file.
Result<std::uint64_t> add_sample(std::uint64_t hash,
                                 const std::vector<CheckpointFile>& files,
                                 std::int64_t at) {
    for (const CheckpointFile& file : files) {
        const std::int64_t data = file.bytes - file.data_begin;
        if (at >= data) {
            at -= data;
            continue;
        }
        std::array<char, kSampleBytes> block{};
        const auto n = static_cast<std::size_t>(std::min(kSampleBytes, data - at));
        const auto bytes = std::as_writable_bytes(std::span(block)).first(n);
        if (Status read = file.file.read_exact(file.data_begin + at, bytes); !read) {
            return std::move(read).error().in(printable(file.name));
        }
        return fnv1a({block.data(), n}, hash);
    }
    return hash;
}

}  // namespace

Result<std::string> model_identity(std::string_view config_text,
                                   const std::vector<CheckpointFile>& files) {
    std::uint64_t hash = fnv1a(config_text, fnv1a(kRules));
    std::int64_t data = 0;
    for (const CheckpointFile& file : files) {
        hash = fnv1a(file.name, hash);
        hash = add_number(hash, static_cast<std::uint64_t>(file.bytes));
        hash = add_number(hash, file.header_hash);
        data += file.bytes - file.data_begin;
    }
    for (std::int64_t i = 0; i < kSamples; ++i) {
        const Result<std::uint64_t> next = add_sample(hash, files, data / kSamples * i);
        if (!next) {
            return next.error();
        }
        hash = *next;
    }
    char text[17];
    std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash));
    return std::string(text);
}

}  // namespace terrace
