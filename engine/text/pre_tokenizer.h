// Cuts normalised text into the pieces that are merged separately: the "pre_tokenizer" of a
// tokenizer file. Stands between the added tokens and the merges.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "engine/device/result.h"
#include "engine/text/pre_tokenizer_pattern.h"

namespace terrace {

/// One step as the file states it.
struct PreTokenizerStep {
    enum class Kind { Split, Digits, ByteLevel };
    enum class PatternKind { Regex, Literal };
    /// What becomes of the text that matches.
    enum class Behaviour { Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous };
    enum class Invert { No, Yes };
    enum class PrefixSpace { No, Yes };

    Kind kind = Kind::Split;
    PatternKind pattern_kind = PatternKind::Regex;
    std::string pattern;
    Behaviour behaviour = Behaviour::Isolated;
    Invert invert = Invert::No;
    PrefixSpace prefix_space = PrefixSpace::No;  ///< ByteLevel: every piece starts with a space
};

/// The pattern that ByteLevel applies by itself when "use_regex" is set.
std::string_view byte_level_pattern();

/// The pieces of one text. They are views into the text, or into `owned` where a space was added.
struct PreTokens {
    std::vector<std::string_view> pieces;
    std::deque<std::string> owned;  // a deque, because the views must survive its growth
};

/// The steps of one tokenizer. Owned by its Tokenizer, immutable after construction, thread-safe.
/// Failure: compile() reports a pattern that does not compile or is not supported.
class PreTokenizer {
public:
    static Result<PreTokenizer> compile(const std::vector<PreTokenizerStep>& steps);

    /// Appends the pieces of `text` (well-formed UTF-8), none of them empty.
    void split(std::string_view text, PatternSearch& search, PreTokens& out) const;

private:
    struct CompiledStep {
        PreTokenizerStep::Kind kind;
        PreTokenizerStep::Behaviour behaviour;
        PreTokenizerStep::Invert invert;
        std::vector<SplitPattern> pattern;  ///< one for Split and Digits, none for ByteLevel
    };

    std::vector<CompiledStep> steps_;
};

}  // namespace terrace
