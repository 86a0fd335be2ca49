#include "engine/cpu/attention/top_k.h"

#include <cstring>

#include "engine/device/check.h"

namespace terrace::cpu {

namespace {

constexpr int kBits = 11;  // of the key that one pass looks at: 11 + 11 + 10 = 32
constexpr std::uint32_t kBuckets = 1u << kBits;

/// An unsigned number in the order of the float; -0 becomes +0 first.
inline std::uint32_t ordered_key(float x) {
    const auto bits = __builtin_bit_cast(std::uint32_t, x + 0.0f);
    return bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u);
}

/// Finds the bucket that holds the k-th largest; k becomes its rank inside that bucket.
std::uint32_t bucket_of(const std::uint32_t* counts, std::uint32_t n_buckets, std::int64_t* k) {
    std::uint32_t bucket = n_buckets - 1;
    while (*k > counts[bucket]) {
        *k -= counts[bucket];
        CHECK(bucket != 0);
        --bucket;
    }
    return bucket;
}

}  // namespace

void select_top_k(const float* scores, std::int64_t n, std::int64_t k, std::int32_t* out) {
    CHECK(k >= 0 && k <= n);
    if (k == 0) {
        return;
    }
    // The key of the k-th largest, its highest bits first.
    std::uint32_t threshold = 0;
    std::int64_t rank = k;
    for (int pass = 0; pass < 3; ++pass) {
        const int shift = pass == 0 ? 21 : pass == 1 ? 10 : 0;
        const int width = pass == 2 ? 10 : kBits;
        const std::uint32_t mask = (1u << width) - 1;
        // Two tables, because equal neighbours would wait for each other's store.
        std::uint32_t counts[2][kBuckets];
        std::memset(counts, 0, sizeof counts);
        if (pass == 0) {
            for (std::int64_t i = 0; i < n; ++i) {
                ++counts[i & 1][ordered_key(scores[i]) >> shift];
            }
        } else {
            for (std::int64_t i = 0; i < n; ++i) {
                const std::uint32_t key = ordered_key(scores[i]);
                if (key >> (shift + width) == threshold >> (shift + width)) {
                    ++counts[i & 1][(key >> shift) & mask];
                }
            }
        }
        for (std::uint32_t b = 0; b <= mask; ++b) {
            counts[0][b] += counts[1][b];
        }
        threshold |= bucket_of(counts[0], mask + 1, &rank) << shift;
    }
    // `rank` of the keys equal to the threshold belong to the first k: those of lowest index.
    std::int64_t n_out = 0;
    for (std::int64_t i = 0; n_out < k; ++i) {
        const std::uint32_t key = ordered_key(scores[i]);
        const bool tie = key == threshold && rank > 0;
        rank -= tie ? 1 : 0;
        out[n_out] = static_cast<std::int32_t>(i);
        n_out += key > threshold || tie ? 1 : 0;
    }
}

}  // namespace terrace::cpu
