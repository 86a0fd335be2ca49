// Reading JSON that a person wrote: bounded in depth, so that no text can exhaust the stack.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "engine/device/result.h"

namespace terrace::app {

/// Parses a text whose brackets nest at most 200 deep. Key order is kept. Errors: WrongUse, naming
/// `what`.
[[nodiscard]] Result<nlohmann::ordered_json> parseJson(std::string_view text,
                                                       const std::string& what);

}  // namespace terrace::app
