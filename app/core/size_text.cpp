#include "app/core/size_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace terrace::app {

namespace {

struct Unit {
    std::string_view name;
    double bytes;
};

constexpr std::array<Unit, 14> kUnits{{{"", 1.0},
                                       {"B", 1.0},
                                       {"K", 0x1p10},
                                       {"M", 0x1p20},
                                       {"G", 0x1p30},
                                       {"T", 0x1p40},
                                       {"KiB", 0x1p10},
                                       {"MiB", 0x1p20},
                                       {"GiB", 0x1p30},
                                       {"TiB", 0x1p40},
                                       {"KB", 1e3},
                                       {"MB", 1e6},
                                       {"GB", 1e9},
                                       {"TB", 1e12}}};

}  // namespace

std::optional<std::int64_t> parseSize(std::string_view text) {
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || !(number >= 0)) {
        return std::nullopt;
    }
    const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
    for (const Unit& known : kUnits) {
        if (unit == known.name) {
            const double bytes = std::floor(number * known.bytes);
            if (bytes > 0x1p62) {
                return std::nullopt;
            }
            return static_cast<std::int64_t>(bytes);
        }
    }
    return std::nullopt;
}

std::string formatSize(std::int64_t bytes) {
    constexpr std::array<const char*, 5> kNames{"B", "KiB", "MiB", "GiB", "TiB"};
    double value = static_cast<double>(bytes);
    std::size_t unit = 0;
    while (value >= 1024 && unit + 1 < kNames.size()) {
        value /= 1024;
        ++unit;
    }
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), unit == 0 || value >= 100 ? "%.0f %s" : "%.1f %s",
                  value, kNames[unit]);
    return text.data();
}

}  // namespace terrace::app
