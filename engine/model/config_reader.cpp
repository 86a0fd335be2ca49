#include "engine/model/config_reader.h"

#include <cmath>
#include <sstream>

#include "engine/model/json_text.h"

namespace terrace {
namespace {

/// The value as a whole number, also when it is written 128.0.
std::optional<std::int64_t> as_whole(const nlohmann::json& value) {
    if (value.is_number_unsigned()) {
        const auto number = value.get<std::uint64_t>();
        if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
            return std::nullopt;
        }
        return static_cast<std::int64_t>(number);
    }
    if (value.is_number_integer()) {
        return value.get<std::int64_t>();
    }
    if (value.is_number_float()) {
        const auto number = value.get<double>();
        if (std::abs(number) < 0x1p53 && std::nearbyint(number) == number) {
            return static_cast<std::int64_t>(number);
        }
    }
    return std::nullopt;
}

std::string plain(double number) {
    std::ostringstream out;
    out << number;
    return out.str();
}

}  // namespace

const nlohmann::json* ConfigReader::find(const char* key) const {
    for (const nlohmann::json* object : {&object_, outer_}) {
        if (object == nullptr) {
            continue;
        }
        const auto it = object->find(key);
        if (it != object->end() && !it->is_null()) {
            return &*it;
        }
    }
    return nullptr;
}

void ConfigReader::refuse(ErrorCode code,
                          const std::string& message,
                          const std::string& next_step) {
    if (!error_) {
        error_ = Error{code, message, "config.json", next_step};
    }
}

void ConfigReader::expected(const std::string& key, const std::string& what) {
    const nlohmann::json* value = find(key.c_str());
    refuse(ErrorCode::Corrupt,
           key + ": " + what + " was expected, " +
               (value == nullptr ? std::string("there is none") : quoted(*value) + " was found"),
           "Download config.json again from the model's publisher.");
}

std::int64_t ConfigReader::whole(const char* key, std::int64_t min, std::int64_t max) {
    const nlohmann::json* value = find(key);
    const std::optional<std::int64_t> number = value == nullptr ? std::nullopt : as_whole(*value);
    if (!number || *number < min || *number > max) {
        expected(key, "a whole number from " + std::to_string(min) + " to " + std::to_string(max));
        return min;
    }
    return *number;
}

std::int64_t ConfigReader::whole_or(const char* key,
                                    std::int64_t fallback,
                                    std::int64_t min,
                                    std::int64_t max) {
    return find(key) == nullptr ? fallback : whole(key, min, max);
}

double ConfigReader::number(const char* key, NumberRange range) {
    const nlohmann::json* value = find(key);
    const double found =
        value != nullptr && value->is_number() ? value->get<double>() : std::nan("");
    if (!(found >= range.min && found <= range.max)) {
        expected(key, "a number from " + plain(range.min) + " to " + plain(range.max));
        return range.min;
    }
    return found;
}

double ConfigReader::number_or(const char* key, double fallback, NumberRange range) {
    return find(key) == nullptr ? fallback : number(key, range);
}

bool ConfigReader::flag_or(const char* key, bool fallback) {
    const nlohmann::json* value = find(key);
    if (value == nullptr) {
        return fallback;
    }
    if (!value->is_boolean()) {
        expected(key, "true or false");
        return fallback;
    }
    return value->get<bool>();
}

std::string ConfigReader::text(const char* key) {
    const nlohmann::json* value = find(key);
    if (value == nullptr || !value->is_string()) {
        expected(key, "a text");
        return {};
    }
    return value->get<std::string>();
}

std::string ConfigReader::text_or(const char* key, const std::string& fallback) {
    return find(key) == nullptr ? fallback : text(key);
}

std::vector<std::int64_t> read_token_ids(const nlohmann::json* value,
                                         const std::string& where,
                                         std::vector<std::string>& warnings) {
    std::vector<std::int64_t> ids;
    if (value == nullptr) {
        return ids;
    }
    constexpr std::size_t kMaxStopIds = 256;
    const auto take = [&](const nlohmann::json& entry) {
        const std::optional<std::int64_t> id = as_whole(entry);
        if (!id || *id < 0) {
            warnings.push_back(where + ": eos_token_id: a token id was expected, " + quoted(entry) +
                               " was found and is ignored");
        } else if (ids.size() < kMaxStopIds) {
            ids.push_back(*id);
        }
    };
    if (!value->is_array()) {
        take(*value);
        return ids;
    }
    for (const nlohmann::json& entry : *value) {
        take(entry);
        if (warnings.size() > kMaxStopIds) {
            break;
        }
    }
    return ids;
}

}  // namespace terrace
