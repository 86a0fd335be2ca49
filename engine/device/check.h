// CHECK: a promise between our own parts. On in release builds, never reachable by input.
#pragma once

namespace terrace {

/// Prints the broken promise with its place and ends the program. A broken promise inside the
/// token path could publish a wrong token, which is worse than no token.
[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace terrace

// A macro, because only a macro can quote the condition it was given. No std::source_location: not
// every compiler that builds us has it.
#define CHECK(condition)                               \
    (__builtin_expect(static_cast<bool>(condition), 1) \
         ? static_cast<void>(0)                        \
         : ::terrace::check_failed(#condition, __FILE__, __LINE__))
