// Typed look-ups in a parsed config.json that keep the first complaint, so that reading thirty
// keys is thirty lines. Internal to engine/model.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/device/result.h"

namespace terrace {

/// Limits of a number, both allowed.
struct NumberRange {
    double min = 0.0;
    double max = 0.0;
};

/// Reads keys of one JSON object, falling back to an outer one. Null counts as absent.
/// The objects must outlive it. One thread. After the first failure the values are meaningless
/// and `status()` says what was wrong.
class ConfigReader {
public:
    explicit ConfigReader(const nlohmann::json& object, const nlohmann::json* outer = nullptr)
        : object_(object), outer_(outer) {}

    /// Null when absent.
    [[nodiscard]] const nlohmann::json* find(const char* key) const;

    /// A whole number between min and max; 128.0 counts as whole.
    std::int64_t whole(const char* key, std::int64_t min, std::int64_t max);
    std::int64_t whole_or(const char* key,
                          std::int64_t fallback,
                          std::int64_t min,
                          std::int64_t max);
    double number(const char* key, NumberRange range);
    double number_or(const char* key, double fallback, NumberRange range);
    bool flag_or(const char* key, bool fallback);
    std::string text(const char* key);
    std::string text_or(const char* key, const std::string& fallback);

    /// Keeps the complaint if it is the first: "KEY: EXPECTED was expected, found VALUE".
    void expected(const std::string& key, const std::string& what);
    /// Keeps a complaint about how keys fit together.
    void refuse(ErrorCode code, const std::string& message, const std::string& next_step);

    [[nodiscard]] bool ok() const { return !error_.has_value(); }

    [[nodiscard]] Status status() const { return error_ ? Status(*error_) : Status(); }

private:
    const nlohmann::json& object_;
    const nlohmann::json* outer_;
    std::optional<Error> error_;
};

/// The token ids of `eos_token_id`: one number or a list. What is no id is named in `warnings`.
[[nodiscard]] std::vector<std::int64_t> read_token_ids(const nlohmann::json* value,
                                                       const std::string& where,
                                                       std::vector<std::string>& warnings);

}  // namespace terrace
