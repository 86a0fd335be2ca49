// Pieces of integer attention that the two families with 256-bit vectors share. Internal linkage
// throughout: see float_math.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "engine/cpu/attention/avx2_common.h"
#include "engine/cpu/attention/kernels.h"

namespace terrace::cpu::avx2 {

/// Values of 64 ranks: [latent groups][16 quads][8 vectors][8 columns][4 ranks]. The column of
/// vector 4e + m, lane L, number j is 32e + 16L + 4m + j; `merge` undoes that once.
[[maybe_unused]] static void build_values(const std::int8_t* const* rows,
                                          std::int64_t n_quads,
                                          std::int64_t latent_groups,
                                          std::int8_t* out) {
    for (std::int64_t quad = 0; quad < n_quads; ++quad) {
        for (std::int64_t half = 0; half < latent_groups * 2; ++half) {
            const auto part = [&](int i) { return load(rows[quad * 4 + i] + half * 32); };
            const __m256i a = part(0);
            const __m256i b = part(1);
            const __m256i c = part(2);
            const __m256i d = part(3);
            const __m256i ab_low = _mm256_unpacklo_epi8(a, b);
            const __m256i ab_high = _mm256_unpackhi_epi8(a, b);
            const __m256i cd_low = _mm256_unpacklo_epi8(c, d);
            const __m256i cd_high = _mm256_unpackhi_epi8(c, d);
            std::int8_t* o = out + half / 2 * 4096 + quad * 256 + half % 2 * 128;
            store(o, _mm256_unpacklo_epi16(ab_low, cd_low));
            store(o + 32, _mm256_unpackhi_epi16(ab_low, cd_low));
            store(o + 64, _mm256_unpacklo_epi16(ab_high, cd_high));
            store(o + 96, _mm256_unpackhi_epi16(ab_high, cd_high));
        }
    }
}

/// Quads of ranks in the 64 ranks from `first` on.
[[maybe_unused]] static inline std::int64_t quads_from(std::int64_t n, std::int64_t first) {
    const std::int64_t quads = (n - first + 3) / 4;
    return quads < 16 ? quads : 16;
}

/// acc += isum * (key scales * query scale), for 16 ranks of one pair.
[[maybe_unused]] static inline __attribute__((always_inline)) void add_group(
    float (*acc)[8], __m256i x, __m256i y, __m256 key_scale_x, __m256 key_scale_y, float scale) {
    const __m256 query_scale = _mm256_set1_ps(scale);
    _mm256_store_ps(acc[0],
                    _mm256_fmadd_ps(_mm256_cvtepi32_ps(x), _mm256_mul_ps(key_scale_x, query_scale),
                                    _mm256_load_ps(acc[0])));
    _mm256_store_ps(acc[1],
                    _mm256_fmadd_ps(_mm256_cvtepi32_ps(y), _mm256_mul_ps(key_scale_y, query_scale),
                                    _mm256_load_ps(acc[1])));
}

/// f += isum * scale, for 16 columns of one pair.
[[maybe_unused]] static inline __attribute__((always_inline)) void add_values(float (*f)[8],
                                                                              __m256i x,
                                                                              __m256i y,
                                                                              float scale) {
    const __m256 s = _mm256_set1_ps(scale);
    _mm256_store_ps(f[0], _mm256_fmadd_ps(_mm256_cvtepi32_ps(x), s, _mm256_load_ps(f[0])));
    _mm256_store_ps(f[1], _mm256_fmadd_ps(_mm256_cvtepi32_ps(y), s, _mm256_load_ps(f[1])));
}

/// Asks for the rows of the next block whose turn it is: the n-th of n_parts pieces.
[[maybe_unused]] static void prefetch_part(const NextRows& next,
                                           std::int64_t part,
                                           std::int64_t n_parts) {
    for (std::int64_t i = next.n * part / n_parts; i < next.n * (part + 1) / n_parts; ++i) {
        for (std::int64_t line = 0; line < next.row_bytes; line += 64) {
            _mm_prefetch(next.rows[i] + line, _MM_HINT_T1);
        }
        _mm_prefetch(reinterpret_cast<const char*>(next.scales[i]), _MM_HINT_T1);
    }
}

}  // namespace terrace::cpu::avx2
