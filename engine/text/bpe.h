// The vocabulary and the merges of a byte-level BPE model: from a piece of text to ids.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace terrace {

/// The byte alphabet of GPT-2: each byte is written as one character that can be printed.
/// Turns a token as the file spells it into the bytes it stands for; false (and `out` holds the
/// token's own UTF-8) if a character lies outside the alphabet, as in many added tokens.
bool bytes_of_token(std::string_view token, std::string& out);

/// Byte strings with ids, looked up by bytes or by id. Owned by a Tokenizer; filled once, then
/// immutable.
class PieceTable {
public:
    void reserve(std::size_t n_pieces, std::size_t n_bytes);
    /// Adds a piece under an id not used before. Searchable pieces are found by find(); of two with
    /// equal bytes the first is kept there.
    enum class Search { Found, Hidden };
    void add(std::int32_t id, std::string_view bytes, Search search);

    [[nodiscard]] std::optional<std::int32_t> find(std::string_view bytes) const;
    [[nodiscard]] bool is_defined(std::int32_t id) const;
    /// Empty for an undefined id.
    [[nodiscard]] std::string_view bytes(std::int32_t id) const;

    /// Largest id + 1.
    [[nodiscard]] std::size_t n_ids() const { return places_.size(); }

private:
    struct Place {
        std::uint32_t begin = 0;
        std::uint32_t n_bytes = 0;
        bool defined = false;
    };

    /// Part of the hash stands beside the id, so that a look-up rarely reads another piece.
    struct Slot {
        std::int32_t id = -1;  ///< -1 is free
        std::uint32_t tag = 0;
    };

    void grow_slots(std::size_t n_wanted);
    [[nodiscard]] std::size_t slot_of(std::string_view bytes, std::uint64_t hash) const;

    std::string arena_;
    std::vector<Place> places_;
    std::vector<Slot> slots_;  ///< open addressing
    std::size_t n_searchable_ = 0;
};

/// Which two ids merge, how early, and into what.
class MergeTable {
public:
    struct Merge {
        std::uint32_t rank = 0;
        std::int32_t into = -1;
    };

    void reserve(std::size_t n_merges);
    /// Of two merges of one pair the later counts, as in the published library.
    void set(std::int32_t left, std::int32_t right, Merge merge);
    /// Null if the two do not merge.
    [[nodiscard]] const Merge* find(std::int32_t left, std::int32_t right) const;

private:
    struct Slot {
        std::uint64_t pair = kFree;
        Merge merge;
    };

    static constexpr std::uint64_t kFree = ~std::uint64_t{0};

    [[nodiscard]] std::size_t slot_of(std::uint64_t pair) const;

    std::vector<Slot> slots_;
    std::size_t n_used_ = 0;
};

/// The settings of the model in the file.
struct BpeOptions {
    enum class WholeWords { Merge, TakeAsTheyAre };  ///< "ignore_merges"
    enum class Unknown { Each, Fused };              ///< "fuse_unk"
    WholeWords whole_words = WholeWords::Merge;
    Unknown unknown = Unknown::Each;
    std::int32_t unknown_id = -1;  ///< for a byte that has no token; -1 leaves it out
};

/// Buffers and remembered words of one encode call. One thread.
class BpeScratch {
private:
    friend class BpeModel;

    struct Symbol {
        std::int32_t id;
        std::int32_t previous;
        std::int32_t next;
        bool alive;
    };

    struct Candidate {
        std::uint32_t rank;
        std::int32_t position;
        std::int32_t into;
    };

    std::vector<Symbol> symbols_;
    std::vector<Candidate> heap_;
    std::unordered_map<std::string, std::vector<std::int32_t>> words_;
};

/// The merging itself. Owned by a Tokenizer and reads its PieceTable, which must outlive it;
/// immutable after construction, thread-safe; cannot fail.
class BpeModel {
public:
    /// `not_whole[id]` marks ids that must not be produced from text as whole words (added tokens).
    BpeModel(MergeTable merges, BpeOptions options, std::vector<bool> not_whole);

    /// Fills the byte ids from the table; call once, before encoding.
    void bind(const PieceTable& pieces);

    /// Appends the ids of one piece.
    void encode(std::string_view piece,
                const PieceTable& pieces,
                BpeScratch& scratch,
                std::vector<std::int32_t>& out) const;

private:
    void merge(std::string_view piece, BpeScratch& scratch, std::vector<std::int32_t>& out) const;
    void start_symbols(std::string_view piece, BpeScratch& scratch) const;
    void push_candidate(std::int32_t position, BpeScratch& scratch) const;

    MergeTable merges_;
    BpeOptions options_;
    std::vector<bool> not_whole_;
    std::array<std::int32_t, 256> byte_ids_{};
};

}  // namespace terrace
