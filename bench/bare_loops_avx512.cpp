#include <immintrin.h>

#include "bench/bare_loops.h"

namespace terrace::bench {

std::uint64_t read_avx512(const std::byte* data, std::int64_t bytes) {
    constexpr std::int64_t kAhead = 4096;
    __m512i sum[4] = {};
    for (std::int64_t i = 0; i < bytes; i += 256) {
        for (int j = 0; j < 4; ++j) {
            sum[j] = _mm512_add_epi64(sum[j], _mm512_load_si512(data + i + 64 * j));
            _mm_prefetch(reinterpret_cast<const char*>(data + i + 64 * j + kAhead), _MM_HINT_T0);
        }
    }
    return static_cast<std::uint64_t>(_mm512_reduce_add_epi64(
        _mm512_add_epi64(_mm512_add_epi64(sum[0], sum[1]), _mm512_add_epi64(sum[2], sum[3]))));
}

std::int64_t multiply_vpdpbusd_512(std::int64_t rounds) {
    constexpr int kChains = 12;
    const __m512i a = _mm512_set1_epi8(1);
    __m512i sum[kChains] = {};
    for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
        for (int c = 0; c < kChains; ++c) {
            __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(sum[c]) : "v"(a), "v"(a));
        }
    }
    return rounds * kChains * 64;
}

}  // namespace terrace::bench
