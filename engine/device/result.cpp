#include "engine/device/result.h"

namespace terrace {

const char* to_string(ErrorCode code) {
    switch (code) {
        case ErrorCode::WrongUse:
            return "wrong_use";
        case ErrorCode::NotFound:
            return "not_found";
        case ErrorCode::Unreadable:
            return "unreadable";
        case ErrorCode::Corrupt:
            return "corrupt";
        case ErrorCode::Incomplete:
            return "incomplete";
        case ErrorCode::Unsupported:
            return "unsupported";
        case ErrorCode::TooLarge:
            return "too_large";
        case ErrorCode::OutOfMemory:
            return "out_of_memory";
        case ErrorCode::Io:
            return "io";
        case ErrorCode::Device:
            return "device";
        case ErrorCode::NumericFault:
            return "numeric_fault";
        case ErrorCode::Cancelled:
            return "cancelled";
        case ErrorCode::Internal:
            return "internal";
    }
    return "internal";
}

Error Error::in(const std::string& where) && {
    context = context.empty() ? where : where + ": " + context;
    return std::move(*this);
}

std::string Error::text() const {
    std::string out = context.empty() ? message : context + ": " + message;
    if (!next_step.empty()) {
        out += (out.empty() || out.back() == '.' ? " " : ". ") + next_step;
    }
    return out;
}

}  // namespace terrace
