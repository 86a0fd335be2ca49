#include "engine/cpu/attention/top_k.h"

#include <cstring>

#include "engine/device/check.h"

namespace terrace::cpu {

namespace {

constexpr std::uint32_t kBuckets = 1u << 11;  // 32 bits of key in steps of 11, 11 and 10

/// An unsigned number in the order of the float; -0 becomes +0 first.
inline std::uint32_t ordered_key(float x) {
    const auto bits = __builtin_bit_cast(std::int32_t, x + 0.0f);
    return static_cast<std::uint32_t>(bits ^ ((bits >> 31) | INT32_MIN));
}

/// Finds the bucket that holds the k-th largest; k becomes its rank inside that bucket.
std::uint32_t bucket_of(const std::uint32_t* counts, std::int64_t* k) {
    std::uint32_t bucket = kBuckets - 1;
    while (*k > counts[bucket]) {
        *k -= counts[bucket];
        CHECK(bucket != 0);
        --bucket;
    }
    return bucket;
}

/// Buckets of the 11 highest bits. Four tables, because neighbours of one bucket would wait for
/// each other's store.
void count_high(const float* scores, std::int64_t n, std::uint32_t* counts) {
    std::uint32_t part[4][kBuckets];
    std::memset(part, 0, sizeof part);
    std::int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        ++part[0][ordered_key(scores[i]) >> 21];
        ++part[1][ordered_key(scores[i + 1]) >> 21];
        ++part[2][ordered_key(scores[i + 2]) >> 21];
        ++part[3][ordered_key(scores[i + 3]) >> 21];
    }
    for (; i < n; ++i) {
        ++part[0][ordered_key(scores[i]) >> 21];
    }
    for (std::uint32_t b = 0; b < kBuckets; ++b) {
        counts[b] = part[0][b] + part[1][b] + part[2][b] + part[3][b];
    }
}

}  // namespace

void select_top_k(const float* scores, std::int64_t n, std::int64_t k, std::int32_t* out) {
    CHECK(k >= 0 && k <= n);
    if (k == 0) {
        return;
    }
    std::uint32_t counts[kBuckets];
    std::int64_t rank = k;  // of the key looked for, among those whose higher bits are known
    count_high(scores, n, counts);
    const std::uint32_t high = bucket_of(counts, &rank);
    std::memset(counts, 0, sizeof counts);
    for (std::int64_t i = 0; i < n; ++i) {
        const std::uint32_t key = ordered_key(scores[i]);
        if (key >> 21 == high) {
            ++counts[(key >> 10) & (kBuckets - 1)];
        }
    }
    const std::uint32_t middle = high << 11 | bucket_of(counts, &rank);
    std::memset(counts, 0, sizeof counts);
    for (std::int64_t i = 0; i < n; ++i) {
        const std::uint32_t key = ordered_key(scores[i]);
        if (key >> 10 == middle) {
            ++counts[key & 1023];
        }
    }
    const std::uint32_t threshold = middle << 10 | bucket_of(counts, &rank);
    // `rank` of the keys equal to the threshold belong to the first k: those of lowest index.
    std::int64_t n_out = 0;
    for (std::int64_t i = 0; n_out < k; ++i) {
        const std::uint32_t key = ordered_key(scores[i]);
        if (key > threshold || (key == threshold && rank-- > 0)) {
            out[n_out++] = static_cast<std::int32_t>(i);
        }
    }
}

}  // namespace terrace::cpu
