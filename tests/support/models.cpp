#include "tests/support/models.h"

namespace terrace::test {

std::filesystem::path demo_model() {
    return std::filesystem::path(TERRACE_SOURCE_DIR) / "resources/demo-model";
}

std::filesystem::path generated_model(const std::string& name) {
    return std::filesystem::path(TERRACE_TEST_MODELS_DIR) / name;
}

std::filesystem::path oracle(const std::string& relative) {
    return std::filesystem::path(TERRACE_ORACLE_DIR) / relative;
}

}  // namespace terrace::test
