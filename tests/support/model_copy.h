// A model folder that a test may change: links to the files of another one, with its own config,
// a tokenizer when the source has none, and edited tensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/engine/support/temp_folder.h"

namespace terrace::test {

/// A byte-level tokenizer.json without merges: id 0 is the space, then the bytes up to 255, then
/// the control bytes, then words nobody writes; `vocab` ids in all.
[[nodiscard]] std::string byte_tokenizer_json(std::int64_t vocab);

/// Bytes as a byte-level vocabulary spells them.
[[nodiscard]] std::string byte_letters(const std::string& bytes);

/// Owner: the test; the folder is gone with it. The source is never written to.
class ModelCopy {
public:
    /// `config_edits` is merged into config.json; null removes a key.
    explicit ModelCopy(const std::filesystem::path& source,
                       const nlohmann::json& config_edits = nlohmann::json::object());

    [[nodiscard]] const std::filesystem::path& path() const { return folder_.path(); }

    /// Changes the numbers of a float tensor (F32, BF16 or F16 as stored: BF16 is cut, F16 is
    /// refused). Fails the test when no file has it.
    void edit_tensor(const std::string& name,
                     const std::function<void(std::vector<float>&)>& change);

    /// Replaces a file of the folder.
    void write(const std::string& name, const std::string& text);

private:
    TempFolder folder_;
};

}  // namespace terrace::test
