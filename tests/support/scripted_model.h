// A model whose next token is a function of the token before it, so that a test knows every answer:
// attention and experts add nothing, the head reads the successor off the embedding.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/engine/support/temp_folder.h"

namespace terrace::test {

/// What the draft layer of a scripted model says.
enum class Drafter : std::uint8_t { Right, Wrong, NotANumber };

/// What a scripted model is made of. Its vocabulary is `pieces`, by id.
struct Script {
    std::vector<std::string> pieces;    ///< bytes of every id; distinct
    std::vector<std::int32_t> special;  ///< ids that are special tokens (their piece is printable)
    std::map<std::int32_t, std::int32_t> next;  ///< absent: id + 1, the last id stays
    std::vector<std::int32_t> stop_ids{};
    Drafter drafter = Drafter::Right;
};

/// Writes the folder. Owner: the test; gone with it.
class ScriptedModel {
public:
    explicit ScriptedModel(const Script& script);

    [[nodiscard]] const std::filesystem::path& path() const { return folder_.path(); }

private:
    TempFolder folder_;
};

}  // namespace terrace::test
