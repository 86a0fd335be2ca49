// See pre_tokenizer.h. The five behaviours of a Split do what the published library does, also with
// empty matches and inverted patterns.
#include "engine/text/pre_tokenizer.h"

#include <algorithm>
#include <utility>

namespace terrace {
namespace {

using Behaviour = PreTokenizerStep::Behaviour;

/// A stretch of a text: matched by the pattern or lying between two matches.
struct Stretch {
    PieceSpan span;
    bool matches;
};

std::vector<Stretch> stretches_of(std::string_view text, const std::vector<PieceSpan>& matches) {
    std::vector<Stretch> out;
    std::size_t end = 0;
    for (const PieceSpan& match : matches) {
        if (end != match.begin) {
            out.push_back({{end, match.begin}, false});
        }
        out.push_back({match, true});
        end = match.end;
    }
    if (end != text.size()) {
        out.push_back({{end, text.size()}, false});
    }
    return out;
}

/// Joins a stretch to the one before it where `joins(previous matches, this matches)` says so. The
/// spans may run backwards (see MergedWithNext); `join` widens the last one.
template <typename Joins, typename Join>
std::vector<Stretch> merged(const std::vector<Stretch>& stretches, Joins joins, Join join) {
    std::vector<Stretch> out;
    bool previous_matches = false;
    for (const Stretch& stretch : stretches) {
        if (joins(previous_matches, stretch.matches) && !out.empty()) {
            join(out.back().span, stretch.span);
        } else {
            out.push_back({stretch.span, false});
        }
        previous_matches = stretch.matches;
    }
    return out;
}

std::vector<Stretch> apply_behaviour(std::vector<Stretch> stretches, Behaviour behaviour) {
    const auto grow_end = [](PieceSpan& last, const PieceSpan& next) { last.end = next.end; };
    const auto grow_begin = [](PieceSpan& last, const PieceSpan& next) { last.begin = next.begin; };
    const auto first_match = [](bool previous, bool now) { return now && !previous; };
    switch (behaviour) {
        case Behaviour::Removed:
            std::erase_if(stretches, [](const Stretch& stretch) { return stretch.matches; });
            return stretches;
        case Behaviour::Isolated:
            return stretches;
        case Behaviour::Contiguous:
            return merged(
                stretches, [](bool previous, bool now) { return previous == now; }, grow_end);
        case Behaviour::MergedWithPrevious:
            return merged(stretches, first_match, grow_end);
        case Behaviour::MergedWithNext: {
            std::reverse(stretches.begin(), stretches.end());
            std::vector<Stretch> out = merged(stretches, first_match, grow_begin);
            std::reverse(out.begin(), out.end());
            return out;
        }
    }
    return stretches;
}

Result<SplitPattern> compile_pattern(const PreTokenizerStep& step) {
    const bool is_literal = step.pattern_kind == PreTokenizerStep::PatternKind::Literal;
    Result<ParsedRegex> parsed =
        is_literal ? literal_regex(step.pattern) : parse_regex(step.pattern);
    if (!parsed.ok()) {
        return std::move(parsed).error();
    }
    return SplitPattern::compile(*parsed);
}

}  // namespace

std::string_view byte_level_pattern() {
    return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
}

Result<PreTokenizer> PreTokenizer::compile(const std::vector<PreTokenizerStep>& steps) {
    PreTokenizer out;
    for (const PreTokenizerStep& step : steps) {
        CompiledStep compiled{step.kind, step.behaviour, step.invert, {}};
        if (step.kind == PreTokenizerStep::Kind::ByteLevel) {
            if (step.prefix_space == PreTokenizerStep::PrefixSpace::Yes) {
                out.steps_.push_back(std::move(compiled));
            }
            continue;
        }
        Result<SplitPattern> pattern = compile_pattern(step);
        if (!pattern.ok()) {
            return std::move(pattern).error();
        }
        compiled.pattern.push_back(std::move(*pattern));
        out.steps_.push_back(std::move(compiled));
    }
    return out;
}

void PreTokenizer::split(std::string_view text, PatternSearch& search, PreTokens& out) const {
    std::vector<std::string_view> pieces{text};
    std::vector<std::string_view> next;
    for (const CompiledStep& step : steps_) {
        next.clear();
        for (const std::string_view piece : pieces) {
            if (step.kind == PreTokenizerStep::Kind::ByteLevel) {
                const bool has_space = !piece.empty() && piece.front() == ' ';
                next.push_back(has_space ? piece
                                         : out.owned.emplace_back(" " + std::string(piece)));
                continue;
            }
            std::vector<Stretch> stretches =
                stretches_of(piece, step.pattern.front().find_all(piece, search));
            if (step.invert == PreTokenizerStep::Invert::Yes) {
                for (Stretch& stretch : stretches) {
                    stretch.matches = !stretch.matches;
                }
            }
            for (const Stretch& stretch : apply_behaviour(std::move(stretches), step.behaviour)) {
                if (stretch.span.begin != stretch.span.end) {
                    next.push_back(
                        piece.substr(stretch.span.begin, stretch.span.end - stretch.span.begin));
                }
            }
        }
        pieces.swap(next);
    }
    for (const std::string_view piece : pieces) {
        if (!piece.empty()) {
            out.pieces.push_back(piece);
        }
    }
}

}  // namespace terrace
