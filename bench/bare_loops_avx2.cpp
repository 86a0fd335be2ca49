#include <immintrin.h>

#include "bench/bare_loops.h"

namespace terrace::bench {

namespace {

constexpr int kChains = 6;

}  // namespace

std::uint64_t read_avx2(const std::byte* data, std::int64_t bytes) {
    constexpr std::int64_t kAhead = 4096;
    __m256i sum[4] = {};
    for (std::int64_t i = 0; i < bytes; i += 128) {
        for (int j = 0; j < 4; ++j) {
            sum[j] = _mm256_add_epi64(
                sum[j], _mm256_load_si256(reinterpret_cast<const __m256i*>(data + i + 32 * j)));
        }
        _mm_prefetch(reinterpret_cast<const char*>(data + i + kAhead), _MM_HINT_T0);
        _mm_prefetch(reinterpret_cast<const char*>(data + i + kAhead + 64), _MM_HINT_T0);
    }
    const __m256i all =
        _mm256_add_epi64(_mm256_add_epi64(sum[0], sum[1]), _mm256_add_epi64(sum[2], sum[3]));
    return static_cast<std::uint64_t>(_mm256_extract_epi64(all, 0) + _mm256_extract_epi64(all, 3));
}

std::int64_t multiply_maddubs(std::int64_t rounds) {
    const __m256i a = _mm256_set1_epi8(1);
    __m256i sum[kChains] = {};
    __m256i product[kChains];
    for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 6
        for (int c = 0; c < kChains; ++c) {
            __asm__ volatile(
                "vpmaddubsw %3, %2, %1\n"
                "vpaddw %1, %0, %0"
                : "+x"(sum[c]), "=&x"(product[c])
                : "x"(a), "x"(a));
        }
    }
    return rounds * kChains * 32;
}

std::int64_t multiply_vpdpbusd_256(std::int64_t rounds) {
    const __m256i a = _mm256_set1_epi8(1);
    __m256i sum[2 * kChains] = {};
    for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
        for (int c = 0; c < 2 * kChains; ++c) {
            __asm__ volatile("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum[c]) : "x"(a), "x"(a));
        }
    }
    return rounds * 2 * kChains * 32;
}

}  // namespace terrace::bench
