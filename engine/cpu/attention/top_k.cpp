#include "engine/cpu/attention/top_k.h"

#include <immintrin.h>

#include <cstring>

#include "engine/device/check.h"

namespace terrace::cpu {

namespace {

// A key of 32 bits is found in steps of 10, 11 and 11.
constexpr int kHighShift = 22;
constexpr int kMiddleShift = 11;
constexpr std::uint32_t kHighBuckets = 1u << 10;
constexpr std::uint32_t kLowBuckets = 1u << 11;

/// Signed numbers in the order of the floats; -0 becomes +0 first.
inline __m256i ordered(__m256 x) {
    const __m256i bits = _mm256_castps_si256(_mm256_add_ps(x, _mm256_setzero_ps()));
    const __m256i sign = _mm256_srai_epi32(bits, 31);
    return _mm256_xor_si256(bits, _mm256_srli_epi32(sign, 1));
}

/// The same as unsigned numbers.
inline __m256i unsigned_keys(__m256i keys) {
    return _mm256_xor_si256(keys, _mm256_set1_epi32(INT32_MIN));
}

/// Eight keys at a time; past the end the smallest key of all, which no finite score has.
class Keys {
public:
    Keys(const float* scores, std::int64_t n) : scores_(scores), n_(n) {}

    [[nodiscard]] __m256i at(std::int64_t i) const {
        if (i + 8 <= n_) {
            return ordered(_mm256_loadu_ps(scores_ + i));
        }
        alignas(32) float rest[8];
        for (int j = 0; j < 8; ++j) {
            rest[j] = i + j < n_ ? scores_[i + j] : -__builtin_inff();
        }
        return ordered(_mm256_load_ps(rest));
    }

    [[nodiscard]] std::int64_t n() const { return n_; }

private:
    const float* scores_;
    std::int64_t n_;
};

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

/// Buckets of the highest bits. Four tables, because neighbours of one bucket would wait for each
/// other's store.
void count_high(const Keys& keys, std::uint32_t* counts) {
    std::uint32_t part[4][kHighBuckets];
    std::memset(part, 0, sizeof part);
    for (std::int64_t i = 0; i < keys.n(); i += 8) {
        alignas(32) std::uint32_t bucket[8];
        _mm256_store_si256(reinterpret_cast<__m256i*>(bucket),
                           _mm256_srli_epi32(unsigned_keys(keys.at(i)), kHighShift));
        for (int j = 0; j < 8; ++j) {
            ++part[j & 3][bucket[j]];
        }
    }
    for (std::uint32_t b = 0; b < kHighBuckets; ++b) {
        counts[b] = part[0][b] + part[1][b] + part[2][b] + part[3][b];
    }
}

/// Calls body(index, key) for the keys that `wanted` marks, in the order of their indices, until
/// it returns false.
template <typename Wanted, typename Body>
void for_keys(const Keys& keys, Wanted wanted, Body body) {
    for (std::int64_t i = 0; i < keys.n(); i += 8) {
        const __m256i key = keys.at(i);
        auto mask = static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(wanted(key))));
        if (mask == 0) {
            continue;
        }
        alignas(32) std::uint32_t each[8];
        _mm256_store_si256(reinterpret_cast<__m256i*>(each), unsigned_keys(key));
        for (; mask != 0; mask &= mask - 1) {
            const int lane = __builtin_ctz(mask);
            if (i + lane >= keys.n() || !body(i + lane, each[lane])) {
                return;
            }
        }
    }
}

/// Among the keys whose bits from `shift` up are `prefix`: the next 11 bits of the k-th largest,
/// behind the prefix.
std::uint32_t next_bits(const Keys& keys, std::uint32_t prefix, int shift, std::int64_t* k) {
    std::uint32_t counts[kLowBuckets];
    std::memset(counts, 0, sizeof counts);
    const __m256i same = _mm256_set1_epi32(static_cast<int>(prefix));
    for_keys(
        keys,
        [&](__m256i key) {
            return _mm256_cmpeq_epi32(_mm256_srli_epi32(unsigned_keys(key), shift), same);
        },
        [&](std::int64_t, std::uint32_t key) {
            ++counts[(key >> (shift - kMiddleShift)) & (kLowBuckets - 1)];
            return true;
        });
    return prefix << kMiddleShift | bucket_of(counts, kLowBuckets, k);
}

}  // namespace

void select_top_k(const float* scores, std::int64_t n, std::int64_t k, std::int32_t* out) {
    CHECK(k >= 0 && k <= n);
    if (k == 0) {
        return;
    }
    const Keys keys(scores, n);
    std::uint32_t counts[kHighBuckets];
    count_high(keys, counts);
    // The padding of the last eight has the smallest key: it stands behind every score.
    std::int64_t rank = k;  // of the key looked for, among those whose higher bits are known
    const std::uint32_t high = bucket_of(counts, kHighBuckets, &rank);
    const std::uint32_t middle = next_bits(keys, high, kHighShift, &rank);
    const std::uint32_t threshold = next_bits(keys, middle, kMiddleShift, &rank);
    // `rank` of the keys equal to the threshold belong to the first k: those of lowest index.
    const __m256i below = _mm256_set1_epi32(static_cast<int>((threshold ^ 0x80000000u) - 1));
    std::int64_t n_out = 0;
    for_keys(
        keys, [&](__m256i key) { return _mm256_cmpgt_epi32(key, below); },
        [&](std::int64_t index, std::uint32_t key) {
            if (key > threshold || rank-- > 0) {
                out[n_out++] = static_cast<std::int32_t>(index);
            }
            return n_out < k;
        });
    CHECK(n_out == k);
}

}  // namespace terrace::cpu
