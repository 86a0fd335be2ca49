// The method tables of the larger types.
#pragma once

#include <span>

#include "engine/text/template/operations.h"

namespace terrace::jinja {

/// Methods of str. A method without a function exists in Python and not here: calling it fails.
std::span<const Method> text_methods();

}  // namespace terrace::jinja
