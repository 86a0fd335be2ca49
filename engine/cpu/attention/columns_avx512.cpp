// Column sums of packed weights (the absorbed query) and index scores with AVX-512-VNNI. Internal
// linkage: see attention_avx512.cpp.
#include <immintrin.h>

#include "engine/cpu/attention/avx512_common.h"
#include "engine/cpu/attention/kernels_avx512.h"
#include "engine/cpu/float_math_avx512.h"

namespace terrace::cpu {

namespace {

using avx512::dot_u8_s8;

/// Four vectors of products q * s of 64 rows; rows from `left` on count as +0.
inline __attribute__((always_inline)) void products64(const float* q,
                                                      std::int64_t left,
                                                      const float* s,
                                                      __m512* out) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        out[i] =
            _mm512_mul_ps(avx512::load_part(q + i * 16, left - i * 16), _mm512_load_ps(s + i * 16));
    }
}

inline __attribute__((always_inline)) __m512i largest_of(const __m512* v) {
    return _mm512_max_epi32(
        _mm512_max_epi32(avx512::magnitude_bits(v[0]), avx512::magnitude_bits(v[1])),
        _mm512_max_epi32(avx512::magnitude_bits(v[2]), avx512::magnitude_bits(v[3])));
}

/// Where the quantised factors of one row go.
struct Factors {
    std::int8_t* q;      ///< [column groups][rows64 / 64][64], dwords in pack order
    float* scales;       ///< [column groups][rows64 / 64]
    std::int32_t* sums;  ///< as scales
};

/// quantise8 of q_t * s(t, G) for every column group; the largest bits & 0x7fffffff met.
std::uint32_t quantise_factors(const float* q,
                               std::int64_t n_rows,
                               std::int64_t n_groups,
                               const float* scales,
                               std::int64_t rows64,
                               const Factors& out) {
    const std::int64_t n_items = n_groups * rows64 / 64;
    __m512i worst = _mm512_setzero_si512();
    std::int64_t first_row = 0;  // of item `first`: items run through the rows of each group
    for (std::int64_t first = 0; first < n_items; first += 16) {
        const std::int64_t count = n_items - first < 16 ? n_items - first : 16;
        __m512i largest[16];
        __m512 v[4];
#pragma GCC unroll 16
        for (auto& x : largest) {
            x = _mm512_castps_si512(avx512::opaque_zero());
        }
        std::int64_t t = first_row;
        const auto next_row = [rows64](std::int64_t row) {
            return row + 64 == rows64 ? 0 : row + 64;
        };
        for (std::int64_t i = 0; i < count; ++i, t = next_row(t)) {
            products64(q + t, n_rows - t, scales + (first + i) * 64, v);
            largest[i] = largest_of(v);
            worst = _mm512_max_epi32(worst, largest[i]);
        }
        const bool faulty = _mm512_reduce_max_epi32(worst) >= avx512::kNotFinite;
        t = first_row;
        for (std::int64_t i = 0; faulty && i < count; ++i, t = next_row(t)) {
            products64(q + t, n_rows - t, scales + (first + i) * 64, v);
            for (auto& x : v) {
                x = avx512::without_faults(x);
            }
            largest[i] = largest_of(v);
        }
        alignas(64) float r[16];
        alignas(64) float s[16];
        avx512::group_scales(avx512::horizontal_max16(largest), r, s);
        t = first_row;
        for (std::int64_t i = 0; i < count; ++i, t = next_row(t)) {
            const int lane = avx512::tree_lane(static_cast<int>(i));
            const __m512 factor = _mm512_set1_ps(r[lane]);
            products64(q + t, n_rows - t, scales + (first + i) * 64, v);
            if (faulty) {
                for (auto& x : v) {
                    x = avx512::without_faults(x);
                }
            }
            __m512i n[4];
#pragma GCC unroll 4
            for (int j = 0; j < 4; ++j) {
                n[j] = _mm512_cvtps_epi32(_mm512_mul_ps(v[j], factor));
            }
            const __m512i packed =
                _mm512_packs_epi16(_mm512_packs_epi32(n[0], n[1]), _mm512_packs_epi32(n[2], n[3]));
            _mm512_store_si512(out.q + (first + i) * 64, packed);
            out.scales[first + i] = s[lane];
            __m512i sum = _mm512_setzero_si512();
            dot_u8_s8(sum, _mm512_set1_epi8(1), packed);
            out.sums[first + i] = _mm512_reduce_add_epi32(sum);
        }
        first_row = t;
    }
    return static_cast<std::uint32_t>(_mm512_reduce_max_epi32(worst));
}

/// Whether the 64 columns of a chunk share one column group.
enum class Grouping { Shared, Split };

/// 64 rows x 64 columns of nibbles for kRows activation rows; f += isum * scale.
template <int kRows, Grouping kGrouping, WeightKind kKind>
inline __attribute__((always_inline)) void chunk64(const std::uint8_t* weights,
                                                   const Factors* factors,
                                                   const std::int64_t* item,
                                                   float (*f)[4][16]) {
    constexpr int kParts = kGrouping == Grouping::Shared ? 1 : 4;
    constexpr bool kNibbles = kKind != WeightKind::Int8;
    constexpr int kOffset = kNibbles ? -8 : -128;
    __m512i acc[kRows][4];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int m = 0; m < 4; ++m) {
            acc[r][m] = _mm512_set1_epi32(kOffset * factors[r].sums[item[m % kParts]]);
        }
    }
    const __m512i low_half = _mm512_set1_epi8(15);
    constexpr int kSteps = kNibbles ? 8 : 16;
#pragma GCC unroll 16
    for (int step = 0; step < kSteps; ++step) {
#pragma GCC unroll 4
        for (int m = 0; m < 4; ++m) {
            const __m512i w = _mm512_load_si512(weights + step * 256 + m * 64);
            const __m512i low = kNibbles ? _mm512_and_si512(w, low_half) : w;
            const __m512i high = kNibbles ? _mm512_and_si512(_mm512_srli_epi16(w, 4), low_half) : w;
#pragma GCC unroll 4
            for (int r = 0; r < kRows; ++r) {
                const std::int8_t* q = factors[r].q + item[m % kParts] * 64;
                if (kNibbles) {
                    dot_u8_s8(acc[r][m], low,
                              avx512::broadcast4(q + avx512::quad_offset(2 * step)));
                    dot_u8_s8(acc[r][m], high,
                              avx512::broadcast4(q + avx512::quad_offset(2 * step + 1)));
                } else {
                    dot_u8_s8(acc[r][m], low, avx512::broadcast4(q + avx512::quad_offset(step)));
                }
            }
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int m = 0; m < 4; ++m) {
            const __m512 s = _mm512_set1_ps(factors[r].scales[item[m % kParts]]);
            _mm512_store_ps(f[r][m], _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[r][m]), s,
                                                     _mm512_load_ps(f[r][m])));
        }
    }
}

/// All columns of kRows activation rows whose factors are quantised.
template <int kRows, Grouping kGrouping, WeightKind kKind>
void sum_columns(const ColumnJob& job, const Factors* factors) {
    const ColumnLayout& layout = *job.layout;
    const std::int64_t n64 = layout.rows64 / 64;
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(job.data);
    for (std::int64_t chunk = 0; chunk < layout.n_chunks; ++chunk) {
        const std::uint8_t* weights = bytes + chunk * layout.chunk_bytes;
        std::int64_t group[4];
        for (int m = 0; m < 4; ++m) {
            const std::int64_t g = (chunk * kColumnChunk + m * 16) / layout.group_columns;
            group[m] = g < layout.n_groups ? g : layout.n_groups - 1;
        }
        alignas(64) float acc[kRows][4][16];
        alignas(64) float tot[kRows][4][16];
        const __m512 zero = avx512::opaque_zero();
#pragma GCC unroll 16
        for (int i = 0; i < kRows * 4; ++i) {
            _mm512_store_ps(acc[i / 4][i % 4], zero);
            _mm512_store_ps(tot[i / 4][i % 4], zero);
        }
        for (std::int64_t t = 0; t < n64; ++t) {
            const std::int64_t item[4] = {group[0] * n64 + t, group[1] * n64 + t,
                                          group[2] * n64 + t, group[3] * n64 + t};
            chunk64<kRows, kGrouping, kKind>(weights + t * (layout.chunk_bytes / n64), factors,
                                             item, acc);
            if (t % 8 == 7 || t + 1 == n64) {  // a segment of 512 rows ends
#pragma GCC unroll 16
                for (int i = 0; i < kRows * 4; ++i) {
                    float* a = acc[i / 4][i % 4];
                    float* b = tot[i / 4][i % 4];
                    _mm512_store_ps(b, _mm512_add_ps(_mm512_load_ps(b), _mm512_load_ps(a)));
                    _mm512_store_ps(a, zero);
                }
            }
        }
#pragma GCC unroll 16
        for (int i = 0; i < kRows * 4; ++i) {
            const std::int64_t column = chunk * kColumnChunk + i % 4 * 16;
            avx512::store_part(job.out + i / 4 * job.out_stride + column, layout.cols - column,
                               _mm512_load_ps(tot[i / 4][i % 4]));
        }
    }
}

template <Grouping kGrouping, WeightKind kKind>
void sum_columns(const ColumnJob& job, const Factors* factors) {
    switch (job.n_rows) {
        case 1:
            return sum_columns<1, kGrouping, kKind>(job, factors);
        case 2:
            return sum_columns<2, kGrouping, kKind>(job, factors);
        case 3:
            return sum_columns<3, kGrouping, kKind>(job, factors);
        default:
            return sum_columns<4, kGrouping, kKind>(job, factors);
    }
}

/// x * key_scale, relu, weighted, for 16 keys of one head.
inline __attribute__((always_inline)) __m512 add_head(__m512 sum,
                                                      __m512 dot,
                                                      float weight,
                                                      __m512 key_scale) {
    const __m512 x = _mm512_mul_ps(dot, key_scale);
    // max gives its second operand for NaN and for -0: exactly relu.
    return _mm512_fmadd_ps(_mm512_set1_ps(weight), _mm512_max_ps(x, _mm512_setzero_ps()), sum);
}

/// Row dots of 4 heads with 16 * kTiles keys; dots in acc.
template <int kTiles>
inline __attribute__((always_inline)) void index_dots(const IndexJob& job,
                                                      std::int64_t head,
                                                      const std::int8_t* keys,
                                                      const float* scales,
                                                      float (*tot)[16]) {
    const std::int64_t groups = job.groups;
    const __m512i flip = _mm512_set1_epi8(-128);
    alignas(64) float acc[8][16];
    const __m512 zero = avx512::opaque_zero();
#pragma GCC unroll 8
    for (int i = 0; i < 4 * kTiles; ++i) {
        _mm512_store_ps(tot[i], zero);
    }
    for (std::int64_t k = 0; k < groups; ++k) {
        asm volatile("" ::: "memory");
        if (k % 8 == 0) {
#pragma GCC unroll 8
            for (int i = 0; i < 4 * kTiles; ++i) {
                _mm512_store_ps(acc[i], zero);
            }
        }
        const std::int64_t item = head * groups + k;
        __m512i a[4][kTiles];
#pragma GCC unroll 4
        for (int h = 0; h < 4; ++h) {
#pragma GCC unroll 2
            for (int i = 0; i < kTiles; ++i) {
                a[h][i] = _mm512_set1_epi32(job.queries.offsets[item + h * groups]);
            }
        }
        const std::int8_t* q = job.queries.q + item * 64;
#pragma GCC unroll 16
        for (int j = 0; j < 16; ++j) {
            __m512i x[kTiles];
#pragma GCC unroll 2
            for (int i = 0; i < kTiles; ++i) {
                x[i] = _mm512_xor_si512(
                    _mm512_load_si512(keys + i * groups * 1024 + k * 1024 + j * 64), flip);
            }
#pragma GCC unroll 4
            for (int h = 0; h < 4; ++h) {
                const __m512i quad = avx512::broadcast4(q + h * groups * 64 + j * 4);
#pragma GCC unroll 2
                for (int i = 0; i < kTiles; ++i) {
                    dot_u8_s8(a[h][i], x[i], quad);
                }
            }
        }
        const bool segment_ends = k % 8 == 7 || k + 1 == groups;
#pragma GCC unroll 4
        for (int h = 0; h < 4; ++h) {
            const __m512 query_scale = _mm512_set1_ps(job.queries.scales[item + h * groups]);
#pragma GCC unroll 2
            for (int i = 0; i < kTiles; ++i) {
                const __m512 c =
                    _mm512_mul_ps(_mm512_load_ps(scales + (i * groups + k) * 16), query_scale);
                float* at = acc[h * kTiles + i];
                const __m512 sum =
                    _mm512_fmadd_ps(_mm512_cvtepi32_ps(a[h][i]), c, _mm512_load_ps(at));
                _mm512_store_ps(at, sum);
                if (segment_ends) {
                    float* total = tot[h * kTiles + i];
                    _mm512_store_ps(total, _mm512_add_ps(_mm512_load_ps(total), sum));
                }
            }
        }
    }
}

template <int kTiles>
void index_tiles(const IndexJob& job, std::int64_t tile) {
    const __m512 key_scale = _mm512_set1_ps(job.key_scale);
    const std::int8_t* keys = job.keys + tile * job.groups * 1024;
    const float* scales = job.scales + tile * job.groups * 16;
    __m512 sum[kTiles];
    for (auto& s : sum) {
        s = _mm512_setzero_ps();
    }
    for (std::int64_t head = 0; head < job.n_heads; head += kPairBatch) {
        alignas(64) float dots[8][16];
        index_dots<kTiles>(job, head, keys, scales, dots);
#pragma GCC unroll 4
        for (int h = 0; h < 4; ++h) {
#pragma GCC unroll 2
            for (int i = 0; i < kTiles; ++i) {
                sum[i] = add_head(sum[i], _mm512_load_ps(dots[h * kTiles + i]),
                                  job.weights[head + h], key_scale);
            }
        }
    }
    for (int i = 0; i < kTiles; ++i) {
        _mm512_store_ps(job.out + (tile + i) * 16, sum[i]);
    }
}

}  // namespace

void column_sum_avx512(const ColumnJob& job, std::uint32_t* worst) {
    const ColumnLayout& layout = *job.layout;
    const auto* scales = reinterpret_cast<const float*>(job.data + layout.scales_offset);
    const std::int64_t items = layout.n_groups * layout.rows64 / 64;
    Factors factors[kColumnRows];
    for (std::int64_t r = 0; r < job.n_rows; ++r) {
        factors[r] = {job.factors + r * items * 64, job.factor_scales + r * items,
                      job.factor_sums + r * items};
        worst[r] = quantise_factors(job.q + r * job.q_stride, layout.rows, layout.n_groups, scales,
                                    layout.rows64, factors[r]);
    }
    const bool shared = layout.group_columns >= kColumnChunk;
    if (job.kind == WeightKind::Int8) {
        shared ? sum_columns<Grouping::Shared, WeightKind::Int8>(job, factors)
               : sum_columns<Grouping::Split, WeightKind::Int8>(job, factors);
    } else {
        shared ? sum_columns<Grouping::Shared, WeightKind::Int4>(job, factors)
               : sum_columns<Grouping::Split, WeightKind::Int4>(job, factors);
    }
}

void index_scores_avx512(const IndexJob& job) {
    std::int64_t tile = 0;
    for (; tile + 2 <= job.n_tiles; tile += 2) {
        index_tiles<2>(job, tile);
    }
    if (tile < job.n_tiles) {
        index_tiles<1>(job, tile);
    }
}

}  // namespace terrace::cpu
