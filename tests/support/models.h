// Where the models of the tests are, and what is skipped when some are not there.
#pragma once

#include <filesystem>
#include <string>

namespace terrace::test {

/// The embedded demo model: a container, always there.
[[nodiscard]] std::filesystem::path demo_model();

/// A checkpoint written while building: "tiny81", "small", "small-mixed", "wide", "wide-mixed".
[[nodiscard]] std::filesystem::path generated_model(const std::string& name);

/// Reference data made by other programs; the path may not exist.
[[nodiscard]] std::filesystem::path oracle(const std::string& relative);

}  // namespace terrace::test

/// Skips a test whose model is not there, by name.
#define TERRACE_NEEDS(path)                                                             \
    do {                                                                                \
        if (!std::filesystem::exists(path)) {                                           \
            GTEST_SKIP() << "1 test skipped, not there: " << (path).lexically_normal(); \
        }                                                                               \
    } while (false)
