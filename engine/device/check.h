// CHECK: a promise between our own parts. On in release builds, never reachable by input.
#pragma once

#include <source_location>

namespace terrace {

/// Prints the broken promise with its place and ends the program. A broken promise inside the
/// token path could publish a wrong token, which is worse than no token.
[[noreturn]] void check_failed(const char* condition, std::source_location where);

}  // namespace terrace

// A macro, because only a macro can quote the condition it was given.
#define CHECK(condition)                               \
    (__builtin_expect(static_cast<bool>(condition), 1) \
         ? static_cast<void>(0)                        \
         : ::terrace::check_failed(#condition, std::source_location::current()))
