// Upper and lower case in the patterns of tokenizer files, as their own regex engine folds them.
#pragma once

#include "engine/text/unicode_tables.h"

namespace terrace {

/// Adds what folds onto the ASCII letters of a set: the other case, the long s (U+017F) and the
/// Kelvin sign (U+212A). False if the set holds a letter whose folding is not known to be the same.
bool fold_ascii_case(CodePointSet& set);

/// Whether two letters in a row fold together into one character (as ss and the sharp s do).
bool folds_as_pair(char32_t first, char32_t second);

}  // namespace terrace
