// See bpe.h. The merge loop takes candidates from a heap, lowest rank first and leftmost of equal
// ranks, so a word of n bytes costs n log n.
#include "engine/text/bpe.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/device/check.h"
#include "engine/text/utf8.h"

namespace terrace {
namespace {

constexpr std::uint64_t kMixer = 0x9E37'79B9'7F4A'7C15;
/// Words that are remembered during one call: short ones, and not without end.
constexpr std::size_t kRememberedBytes = 64;
constexpr std::size_t kRememberedWords = 16'384;

std::uint64_t hash_bytes(std::string_view bytes) {
    std::uint64_t hash = bytes.size() * kMixer;
    for (std::size_t at = 0; at < bytes.size(); at += 8) {
        std::uint64_t chunk = 0;
        std::memcpy(&chunk, bytes.data() + at, std::min<std::size_t>(8, bytes.size() - at));
        hash = (hash ^ chunk) * kMixer;
        hash ^= hash >> 29;
    }
    return hash;
}

std::uint64_t hash_pair(std::uint64_t pair) {
    pair *= kMixer;
    return pair ^ pair >> 31;
}

std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
           static_cast<std::uint32_t>(right);
}

/// The printable bytes stand for themselves, the others for U+0100 onwards, in order.
constexpr bool stands_for_itself(int byte) {
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

constexpr int kAlphabetEnd = 0x144;

/// Character of the alphabet -> byte, or -1.
constexpr std::array<std::int16_t, kAlphabetEnd> make_alphabet() {
    std::array<std::int16_t, kAlphabetEnd> out{};
    int next = 0x100;
    for (auto& entry : out) {
        entry = -1;
    }
    for (int byte = 0; byte < 256; ++byte) {
        const int character = stands_for_itself(byte) ? byte : next++;
        out[static_cast<std::size_t>(character)] = static_cast<std::int16_t>(byte);
    }
    return out;
}

constexpr std::array<std::int16_t, kAlphabetEnd> kAlphabet = make_alphabet();

std::size_t power_of_two_above(std::size_t n) {
    std::size_t size = 16;
    while (size < n) {
        size *= 2;
    }
    return size;
}

}  // namespace

bool bytes_of_token(std::string_view token, std::string& out) {
    out.clear();
    for (std::size_t at = 0; at < token.size();) {
        const char32_t c = next_code_point(token, at);
        const int byte = c < kAlphabetEnd ? kAlphabet[c] : -1;
        if (byte < 0) {
            out = token;
            return false;
        }
        out.push_back(static_cast<char>(byte));
    }
    return true;
}

void PieceTable::reserve(std::size_t n_pieces, std::size_t n_bytes) {
    arena_.reserve(n_bytes);
    places_.reserve(n_pieces);
    grow_slots(n_pieces * 2);
}

void PieceTable::grow_slots(std::size_t n_wanted) {
    slots_.assign(power_of_two_above(n_wanted), {});
}

std::size_t PieceTable::slot_of(std::string_view bytes, std::uint64_t hash) const {
    const std::size_t mask = slots_.size() - 1;
    const auto tag = static_cast<std::uint32_t>(hash >> 32);
    std::size_t slot = hash & mask;
    while (slots_[slot].id >= 0 &&
           (slots_[slot].tag != tag || this->bytes(slots_[slot].id) != bytes)) {
        slot = (slot + 1) & mask;
    }
    return slot;
}

void PieceTable::add(std::int32_t id, std::string_view bytes, Search search) {
    const auto index = static_cast<std::size_t>(id);
    if (index >= places_.size()) {
        places_.resize(index + 1);
    }
    CHECK(!places_[index].defined);
    places_[index] = {static_cast<std::uint32_t>(arena_.size()),
                      static_cast<std::uint32_t>(bytes.size()), true};
    arena_.append(bytes);
    if (search == Search::Hidden) {
        return;
    }
    if ((n_searchable_ + 1) * 2 > slots_.size()) {
        std::vector<Slot> old;
        old.swap(slots_);
        grow_slots(std::max<std::size_t>(old.size() * 2, 16));
        for (const Slot& entry : old) {
            if (entry.id >= 0) {
                const std::string_view known = this->bytes(entry.id);
                slots_[slot_of(known, hash_bytes(known))] = entry;
            }
        }
    }
    const std::uint64_t hash = hash_bytes(bytes);
    Slot& slot = slots_[slot_of(bytes, hash)];
    if (slot.id < 0) {
        slot = {id, static_cast<std::uint32_t>(hash >> 32)};
        ++n_searchable_;
    }
}

std::optional<std::int32_t> PieceTable::find(std::string_view bytes) const {
    if (slots_.empty()) {
        return std::nullopt;
    }
    const std::int32_t id = slots_[slot_of(bytes, hash_bytes(bytes))].id;
    return id < 0 ? std::nullopt : std::optional(id);
}

bool PieceTable::is_defined(std::int32_t id) const {
    return id >= 0 && static_cast<std::size_t>(id) < places_.size() &&
           places_[static_cast<std::size_t>(id)].defined;
}

std::string_view PieceTable::bytes(std::int32_t id) const {
    if (!is_defined(id)) {
        return {};
    }
    const Place& place = places_[static_cast<std::size_t>(id)];
    return std::string_view(arena_).substr(place.begin, place.n_bytes);
}

void MergeTable::reserve(std::size_t n_merges) {
    CHECK(n_used_ == 0);
    slots_.assign(power_of_two_above(n_merges * 2), {});
}

std::size_t MergeTable::slot_of(std::uint64_t pair) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t slot = hash_pair(pair) & mask;
    while (slots_[slot].pair != kFree && slots_[slot].pair != pair) {
        slot = (slot + 1) & mask;
    }
    return slot;
}

void MergeTable::set(std::int32_t left, std::int32_t right, Merge merge) {
    const std::uint64_t pair = pair_of(left, right);
    const std::size_t slot = slot_of(pair);
    if (slots_[slot].pair == kFree) {
        ++n_used_;
        CHECK(n_used_ < slots_.size());
    }
    slots_[slot] = {pair, merge};
}

const MergeTable::Merge* MergeTable::find(std::int32_t left, std::int32_t right) const {
    if (slots_.empty()) {
        return nullptr;
    }
    const std::uint64_t pair = pair_of(left, right);
    const Slot& slot = slots_[slot_of(pair)];
    return slot.pair == pair ? &slot.merge : nullptr;
}

BpeModel::BpeModel(MergeTable merges, BpeOptions options, std::vector<bool> not_whole)
    : merges_(std::move(merges)), options_(options), not_whole_(std::move(not_whole)) {}

void BpeModel::bind(const PieceTable& pieces) {
    for (std::size_t byte = 0; byte < byte_ids_.size(); ++byte) {
        const char c = static_cast<char>(byte);
        byte_ids_[byte] = pieces.find({&c, 1}).value_or(-1);
    }
}

void BpeModel::encode(std::string_view piece,
                      const PieceTable& pieces,
                      BpeScratch& scratch,
                      std::vector<std::int32_t>& out) const {
    if (options_.whole_words == BpeOptions::WholeWords::TakeAsTheyAre) {
        const std::optional<std::int32_t> whole = pieces.find(piece);
        if (whole && !not_whole_[static_cast<std::size_t>(*whole)]) {
            out.push_back(*whole);
            return;
        }
    }
    if (piece.size() > kRememberedBytes) {
        merge(piece, scratch, out);
        return;
    }
    const std::string key(piece);
    if (const auto known = scratch.words_.find(key); known != scratch.words_.end()) {
        out.insert(out.end(), known->second.begin(), known->second.end());
        return;
    }
    const std::size_t n_before = out.size();
    merge(piece, scratch, out);
    if (scratch.words_.size() < kRememberedWords) {
        scratch.words_.emplace(
            key, std::vector<std::int32_t>(out.begin() + static_cast<std::ptrdiff_t>(n_before),
                                           out.end()));
    }
}

void BpeModel::start_symbols(std::string_view piece, BpeScratch& scratch) const {
    auto& symbols = scratch.symbols_;
    symbols.clear();
    bool after_unknown = false;
    for (const char c : piece) {
        std::int32_t id = byte_ids_[static_cast<unsigned char>(c)];
        const bool is_unknown = id < 0;
        if (is_unknown) {
            id = options_.unknown_id;
            const bool fused = after_unknown && options_.unknown == BpeOptions::Unknown::Fused;
            if (id < 0 || fused) {
                continue;
            }
        }
        after_unknown = is_unknown;
        const auto index = static_cast<std::int32_t>(symbols.size());
        symbols.push_back({id, index - 1, index + 1, true});
    }
    if (!symbols.empty()) {
        symbols.back().next = -1;
    }
}

void BpeModel::push_candidate(std::int32_t position, BpeScratch& scratch) const {
    const auto& symbols = scratch.symbols_;
    const auto& left = symbols[static_cast<std::size_t>(position)];
    if (left.next < 0) {
        return;
    }
    const auto& right = symbols[static_cast<std::size_t>(left.next)];
    if (const MergeTable::Merge* found = merges_.find(left.id, right.id)) {
        scratch.heap_.push_back({found->rank, position, found->into});
    }
}

void BpeModel::merge(std::string_view piece,
                     BpeScratch& scratch,
                     std::vector<std::int32_t>& out) const {
    start_symbols(piece, scratch);
    auto& symbols = scratch.symbols_;
    auto& heap = scratch.heap_;
    const auto later = [](const BpeScratch::Candidate& a, const BpeScratch::Candidate& b) {
        return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
    };
    heap.clear();
    for (std::size_t i = 0; i < symbols.size(); ++i) {
        push_candidate(static_cast<std::int32_t>(i), scratch);
    }
    std::make_heap(heap.begin(), heap.end(), later);
    const auto offer = [&](std::int32_t position) {
        const std::size_t n_before = heap.size();
        push_candidate(position, scratch);
        if (heap.size() > n_before) {
            std::push_heap(heap.begin(), heap.end(), later);
        }
    };
    while (!heap.empty()) {
        std::pop_heap(heap.begin(), heap.end(), later);
        const BpeScratch::Candidate top = heap.back();
        heap.pop_back();
        auto& left = symbols[static_cast<std::size_t>(top.position)];
        if (!left.alive || left.next < 0) {
            continue;
        }
        auto& right = symbols[static_cast<std::size_t>(left.next)];
        const MergeTable::Merge* now = merges_.find(left.id, right.id);
        if (now == nullptr || now->into != top.into) {
            continue;  // a neighbour has merged away since this was offered
        }
        left.id = top.into;
        right.alive = false;
        left.next = right.next;
        if (left.next >= 0) {
            symbols[static_cast<std::size_t>(left.next)].previous = top.position;
        }
        if (left.previous >= 0) {
            offer(left.previous);
        }
        offer(top.position);
    }
    for (const auto& symbol : symbols) {
        if (symbol.alive) {
            out.push_back(symbol.id);
        }
    }
}

}  // namespace terrace
