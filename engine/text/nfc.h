// Canonical composition (NFC) with the data of Unicode 9, which is what the published tokenizers
// were made with: a newer library reorders and composes characters that they leave alone.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace terrace {

/// A block of text that was normalised by itself: the input bytes it came from and where its output
/// starts. Unchanged stretches are one block with equal lengths.
struct NfcBlock {
    std::size_t in_begin = 0;
    std::size_t in_end = 0;
    std::size_t out_begin = 0;
    bool changed = false;
};

/// NFC of well-formed UTF-8. If `blocks` is given, it receives the alignment, in order and gapless.
std::string to_nfc(std::string_view valid, std::vector<NfcBlock>* blocks = nullptr);

}  // namespace terrace
