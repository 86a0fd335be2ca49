// See nfc.h. Text is cut in front of every character that can neither move nor join backwards; most
// blocks are one inert character and are copied as they are.
#include "engine/text/nfc.h"

#include <algorithm>
#include <cstdint>

#include "engine/text/unicode_tables.h"
#include "engine/text/utf8.h"

namespace terrace {
namespace {

constexpr char32_t kHangulBase = 0xAC00;
constexpr char32_t kLeadBase = 0x1100;
constexpr char32_t kVowelBase = 0x1161;
constexpr char32_t kTailBase = 0x11A7;
constexpr char32_t kLeads = 19;
constexpr char32_t kVowels = 21;
constexpr char32_t kTails = 28;
constexpr char32_t kSyllables = kLeads * kVowels * kTails;

struct Mark {
    char32_t code_point;
    std::uint8_t combining;
};

/// Characters in these stretches have combining class 0, do not decompose (syllables recompose into
/// themselves) and never join what stands before them.
bool is_plainly_inert(char32_t c) {
    return c < 0x300 || (c >= 0x3400 && c < 0xA66F) ||
           (c >= kHangulBase && c < kHangulBase + kSyllables);
}

bool is_vowel_or_tail(char32_t c) {
    return (c >= kVowelBase && c < kVowelBase + kVowels) ||
           (c > kTailBase && c < kTailBase + kTails);
}

/// Whether a block may start here: nothing in front of it can change because of it, nor move past.
bool starts_block(char32_t c) {
    if (is_plainly_inert(c)) {
        return true;
    }
    const Decomposition* parts = find_decomposition(c);
    const char32_t first = parts == nullptr ? c : parts->first;
    return combining_class(first) == 0 && combining_class(c) == 0 && !composes_backwards(first) &&
           !composes_backwards(c) && !is_vowel_or_tail(c);
}

/// Whether a block that consists of this one character is its own normal form.
bool is_stable_alone(char32_t c) {
    return is_plainly_inert(c) || find_decomposition(c) == nullptr;
}

void decompose(char32_t c, std::vector<Mark>& out) {
    if (c >= kHangulBase && c < kHangulBase + kSyllables) {
        const char32_t index = c - kHangulBase;
        out.push_back({kLeadBase + index / (kVowels * kTails), 0});
        out.push_back({kVowelBase + index / kTails % kVowels, 0});
        if (index % kTails != 0) {
            out.push_back({kTailBase + index % kTails, 0});
        }
        return;
    }
    const Decomposition* parts = c < 0xC0 ? nullptr : find_decomposition(c);
    if (parts == nullptr) {
        out.push_back({c, combining_class(c)});
        return;
    }
    decompose(parts->first, out);  // canonical decompositions nest at most three deep
    if (parts->second != 0) {
        decompose(parts->second, out);
    }
}

char32_t compose(char32_t a, char32_t b) {
    if (a >= kLeadBase && a < kLeadBase + kLeads && b >= kVowelBase && b < kVowelBase + kVowels) {
        return kHangulBase + ((a - kLeadBase) * kVowels + (b - kVowelBase)) * kTails;
    }
    if (a >= kHangulBase && a < kHangulBase + kSyllables && (a - kHangulBase) % kTails == 0 &&
        b > kTailBase && b < kTailBase + kTails) {
        return a + (b - kTailBase);
    }
    return compose_pair(a, b);
}

/// Sorts each run of marks by combining class; stable, so that equal classes keep their order.
void reorder(std::vector<Mark>& marks) {
    for (auto at = marks.begin(); at != marks.end();) {
        if (at->combining == 0) {
            ++at;
            continue;
        }
        const auto end =
            std::find_if(at, marks.end(), [](const Mark& mark) { return mark.combining == 0; });
        std::stable_sort(at, end,
                         [](const Mark& a, const Mark& b) { return a.combining < b.combining; });
        at = end;
    }
}

/// The composition algorithm of the standard (D117), in place.
void recompose(std::vector<Mark>& marks) {
    constexpr std::size_t kNone = static_cast<std::size_t>(-1);
    std::size_t starter = kNone;
    std::size_t n_out = 0;
    for (std::size_t i = 0; i < marks.size(); ++i) {
        const Mark mark = marks[i];  // n_out never passes i
        if (starter != kNone) {
            const std::uint8_t before =
                starter + 1 == n_out ? std::uint8_t{0} : marks[n_out - 1].combining;
            const bool blocked = starter + 1 != n_out && before >= mark.combining;
            const char32_t whole =
                blocked ? 0 : compose(marks[starter].code_point, mark.code_point);
            if (whole != 0) {
                marks[starter].code_point = whole;
                continue;
            }
        }
        if (mark.combining == 0) {
            starter = n_out;
        }
        marks[n_out++] = mark;
    }
    marks.resize(n_out);
}

/// One block, with buffers that are kept between blocks.
class BlockNormaliser {
public:
    void run(std::string_view block, std::string& out) {
        marks_.clear();
        for (std::size_t at = 0; at < block.size();) {
            decompose(next_code_point(block, at), marks_);
        }
        reorder(marks_);
        recompose(marks_);
        for (const Mark& mark : marks_) {
            append_utf8(mark.code_point, out);
        }
    }

private:
    std::vector<Mark> marks_;
};

}  // namespace

std::string to_nfc(std::string_view valid, std::vector<NfcBlock>* blocks) {
    std::string out;
    out.reserve(valid.size());
    BlockNormaliser normaliser;
    const auto note = [&](std::size_t begin, std::size_t end, bool changed) {
        if (blocks == nullptr || begin == end) {
            return;
        }
        if (!changed && !blocks->empty() && !blocks->back().changed) {
            blocks->back().in_end = end;
            return;
        }
        blocks->push_back({begin, end, out.size(), changed});
    };
    for (std::size_t at = 0; at < valid.size();) {
        const std::size_t begin = at;
        const char32_t first = next_code_point(valid, at);
        bool alone = true;
        while (at < valid.size()) {
            std::size_t after = at;
            if (starts_block(next_code_point(valid, after))) {
                break;
            }
            alone = false;
            at = after;
        }
        const std::string_view block = valid.substr(begin, at - begin);
        const bool kept = alone && is_stable_alone(first);
        note(begin, at, !kept);
        if (kept) {
            out.append(block);
        } else {
            normaliser.run(block, out);
        }
    }
    return out;
}

}  // namespace terrace
