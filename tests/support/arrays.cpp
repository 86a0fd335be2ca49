#include "tests/support/arrays.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace terrace::test {

std::map<std::string, Array> read_arrays(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    const std::vector<char> data{std::istreambuf_iterator<char>(in), {}};
    std::uint64_t header_size = 0;
    if (data.size() >= 8) {
        std::memcpy(&header_size, data.data(), 8);
    }
    if (data.size() < 8 + header_size) {
        ADD_FAILURE() << "no safetensors file: " << file;
        return {};
    }
    const auto* begin = data.data() + 8;
    const auto header = nlohmann::json::parse(begin, begin + header_size, nullptr, false);
    const auto* payload = reinterpret_cast<const std::byte*>(begin + header_size);
    std::map<std::string, Array> arrays;
    for (const auto& [name, entry] : header.items()) {
        if (name == "__metadata__") {
            continue;
        }
        Array array;
        array.type = entry["dtype"];
        array.shape = entry["shape"].get<std::vector<std::int64_t>>();
        array.bytes.assign(payload + entry["data_offsets"][0].get<std::int64_t>(),
                           payload + entry["data_offsets"][1].get<std::int64_t>());
        arrays[name] = std::move(array);
    }
    return arrays;
}

}  // namespace terrace::test
