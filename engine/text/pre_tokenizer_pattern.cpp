// See pre_tokenizer_pattern.h.
#include "engine/text/pre_tokenizer_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <unordered_map>

#include "engine/device/check.h"
#include "engine/text/utf8.h"

namespace terrace {
namespace {

constexpr std::size_t kMaxSets = 128;
constexpr std::size_t kPageSize = 256;
constexpr std::size_t kPages = (kLastCodePoint + 1) / kPageSize;
/// Steps of one search. Published patterns need a handful per character.
constexpr std::uint32_t kMatchLimit = 5'000'000;
constexpr std::uint32_t kHeapLimitKib = 64 * 1024;
constexpr std::size_t kJitStackStart = 32 * 1024;
constexpr std::size_t kJitStackMost = 8 * 1024 * 1024;

using Membership = std::bitset<kMaxSets>;

struct FreeCode {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};

struct FreeMatchData {
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

struct FreeMatchContext {
    void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

struct FreeJitStack {
    void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};

/// Which symbol a stretch of code points has.
struct SymbolRun {
    char32_t first;
    char32_t last;
    std::uint8_t symbol;
};

/// Code points that lie in the same sets share a symbol.
struct Alphabet {
    std::vector<SymbolRun> runs;
    std::vector<Membership> members;  ///< of each symbol
};

Result<Alphabet> make_alphabet(const std::vector<CodePointSet>& sets) {
    struct Border {
        char32_t at;
        std::size_t set;
    };

    std::vector<Border> borders;
    for (std::size_t i = 0; i < sets.size(); ++i) {
        for (const CodePointRange& range : sets[i].ranges()) {
            borders.push_back({range.first, i});
            borders.push_back({range.last + 1, i});
        }
    }
    std::sort(borders.begin(), borders.end(),
              [](const Border& a, const Border& b) { return a.at < b.at; });
    Alphabet out;
    std::unordered_map<Membership, std::uint8_t> known;
    Membership now;
    std::size_t next_border = 0;
    for (char32_t at = 0; at <= kLastCodePoint;) {
        while (next_border < borders.size() && borders[next_border].at == at) {
            now.flip(borders[next_border++].set);
        }
        const char32_t end =
            next_border < borders.size() ? borders[next_border].at : kLastCodePoint + 1;
        auto found = known.find(now);
        if (found == known.end()) {
            if (out.members.size() == 256) {
                return Error{ErrorCode::Unsupported,
                             "Regex of the pre-tokenizer: expected at most 256 kinds of "
                             "characters, found more",
                             "", "This tokenizer cannot be used with this version"};
            }
            found = known.emplace(now, static_cast<std::uint8_t>(out.members.size())).first;
            out.members.push_back(now);
        }
        out.runs.push_back({at, end - 1, found->second});
        at = end;
    }
    return out;
}

std::string hex_escape(std::size_t symbol) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    return {'\\', 'x', kDigits[symbol / 16], kDigits[symbol % 16]};
}

/// A bracket with the symbols of a set.
std::string bracket_of(std::size_t set, const Alphabet& alphabet) {
    std::string out = "[";
    const std::size_t n = alphabet.members.size();
    for (std::size_t symbol = 0; symbol < n; ++symbol) {
        if (!alphabet.members[symbol][set]) {
            continue;
        }
        std::size_t last = symbol;
        while (last + 1 < n && alphabet.members[last + 1][set]) {
            ++last;
        }
        out += hex_escape(symbol);
        if (last > symbol) {
            out += "-" + hex_escape(last);
        }
        symbol = last;
    }
    return out == "[" ? "[^\\x00-\\xff]" : out + "]";
}

}  // namespace

struct PatternSearch::Buffers {
    std::unique_ptr<pcre2_match_data, FreeMatchData> data;
    std::unique_ptr<pcre2_jit_stack, FreeJitStack> stack;  // outlives the context that names it
    std::unique_ptr<pcre2_match_context, FreeMatchContext> context;
};

PatternSearch::PatternSearch() : buffers_(std::make_unique<Buffers>()) {
    buffers_->data.reset(pcre2_match_data_create(1, nullptr));
    buffers_->stack.reset(pcre2_jit_stack_create(kJitStackStart, kJitStackMost, nullptr));
    buffers_->context.reset(pcre2_match_context_create(nullptr));
    if (buffers_->context != nullptr) {
        pcre2_set_match_limit(buffers_->context.get(), kMatchLimit);
        pcre2_set_heap_limit(buffers_->context.get(), kHeapLimitKib);
        pcre2_jit_stack_assign(buffers_->context.get(), nullptr, buffers_->stack.get());
    }
}

PatternSearch::~PatternSearch() = default;

struct SplitPattern::Compiled {
    std::unique_ptr<pcre2_code, FreeCode> code;
    std::vector<std::uint16_t> page_of;                      ///< code point / 256 -> page
    std::vector<std::array<std::uint8_t, kPageSize>> pages;  ///< equal pages are stored once

    void set_symbols(const std::vector<SymbolRun>& runs);
};

void SplitPattern::Compiled::set_symbols(const std::vector<SymbolRun>& runs) {
    std::unordered_map<std::string, std::uint16_t> known;
    std::string page(kPageSize, '\0');
    std::size_t run = 0;
    for (std::size_t p = 0; p < kPages; ++p) {
        const auto first = static_cast<char32_t>(p * kPageSize);
        const auto last = static_cast<char32_t>(first + kPageSize - 1);
        if (p > 0 && runs[run].first + kPageSize <= first && runs[run].last >= last) {
            page_of.push_back(page_of.back());  // the run fills this page as the one before
            continue;
        }
        for (char32_t c = first; c <= last; ++c) {
            while (runs[run].last < c) {
                ++run;
            }
            page[c - first] = static_cast<char>(runs[run].symbol);
        }
        const auto [at, is_new] = known.emplace(page, static_cast<std::uint16_t>(pages.size()));
        if (is_new) {
            pages.emplace_back();
            std::copy(page.begin(), page.end(), pages.back().begin());
        }
        page_of.push_back(at->second);
    }
}

SplitPattern::SplitPattern() : compiled_(std::make_unique<Compiled>()) {}

SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;
SplitPattern& SplitPattern::operator=(SplitPattern&&) noexcept = default;
SplitPattern::~SplitPattern() = default;

Result<SplitPattern> SplitPattern::compile(const ParsedRegex& regex) {
    CHECK(regex.sets.size() <= kMaxSets);
    Result<Alphabet> alphabet = make_alphabet(regex.sets);
    if (!alphabet.ok()) {
        return std::move(alphabet).error();
    }
    std::string translated;
    for (const RegexPart& part : regex.parts) {
        translated += part.set == RegexPart::kNoSet ? part.syntax : bracket_of(part.set, *alphabet);
    }
    int error_number = 0;
    PCRE2_SIZE error_at = 0;
    SplitPattern out;
    out.compiled_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()),
                                            translated.size(), PCRE2_NEVER_UTF | PCRE2_NEVER_UCP,
                                            &error_number, &error_at, nullptr));
    if (out.compiled_->code == nullptr) {
        std::array<PCRE2_UCHAR, 200> text{};
        pcre2_get_error_message(error_number, text.data(), text.size());
        return Error{ErrorCode::Unsupported,
                     std::string("Regex of the pre-tokenizer: expected a pattern that PCRE2 can "
                                 "compile, found: ") +
                         reinterpret_cast<const char*>(text.data()),
                     "", "This tokenizer cannot be used with this version"};
    }
    // Without a JIT (some hardened systems forbid it) the interpreter gives the same matches.
    pcre2_jit_compile(out.compiled_->code.get(), PCRE2_JIT_COMPLETE);
    out.compiled_->set_symbols(alphabet->runs);
    return out;
}

std::string SplitPattern::symbols_of(std::string_view valid) const {
    std::string out;
    out.reserve(valid.size());
    for (std::size_t at = 0; at < valid.size();) {
        const char32_t c = next_code_point(valid, at);
        const std::uint16_t page = compiled_->page_of[c / kPageSize];
        out.push_back(static_cast<char>(compiled_->pages[page][c % kPageSize]));
    }
    return out;
}

std::vector<PieceSpan> SplitPattern::find_all(std::string_view valid, PatternSearch& search) const {
    const std::string symbols = symbols_of(valid);
    const PatternSearch::Buffers& buffers = *search.buffers_;
    std::vector<PieceSpan> out;
    if (buffers.data == nullptr || buffers.context == nullptr) {
        return out;
    }
    // Matches come in order, so one walk along the text turns symbol numbers into byte offsets.
    std::size_t symbol_at = 0;
    std::size_t byte_at = 0;
    const auto byte_offset = [&](std::size_t symbol) {
        for (; symbol_at < symbol; ++symbol_at) {
            next_code_point(valid, byte_at);
        }
        return byte_at;
    };
    std::size_t from = 0;
    std::size_t last_end = static_cast<std::size_t>(-1);
    while (from <= symbols.size()) {
        const int rc =
            pcre2_match(compiled_->code.get(), reinterpret_cast<PCRE2_SPTR>(symbols.data()),
                        symbols.size(), from, 0, buffers.data.get(), buffers.context.get());
        if (rc < 0) {
            break;
        }
        const PCRE2_SIZE* span = pcre2_get_ovector_pointer(buffers.data.get());
        const std::size_t begin = span[0];
        const std::size_t end = span[1];
        if (begin == end && begin == last_end) {
            ++from;
            continue;
        }
        const std::size_t begin_byte = byte_offset(begin);
        out.push_back({begin_byte, byte_offset(end)});
        from = end;
        last_end = end;
    }
    return out;
}

}  // namespace terrace
