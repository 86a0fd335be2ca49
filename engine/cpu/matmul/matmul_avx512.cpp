// The row dot with AVX-512 VNNI: sixteen rows in the lanes of a vector, up to eight tokens at once.
// No standard library here: code of this file must not be linked into parts that run on older
// processors.
#include <immintrin.h>

#include "engine/cpu/matmul/segment.h"

namespace terrace::cpu {

namespace {

enum class Form : std::uint8_t { Nibbles, Bytes };

// How far ahead weights are fetched in decode; the packed layout is read strictly forward.
constexpr std::int64_t kWeightsAhead = 4096;
// How far ahead activations are fetched in prefill, where the weights of a tile stay in L1.
constexpr std::int64_t kInputsAhead = 1024;

// GCC 12 copies and spills the accumulators of the intrinsic; a bare instruction it leaves alone.
TERRACE_INLINE void dot(__m512i& sum, __m512i weights, __m512i inputs) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(weights), "v"(inputs));
}

// Four inputs of one token, the same for all sixteen rows.
TERRACE_INLINE void dot(__m512i& sum, __m512i weights, const std::int32_t* inputs) {
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(weights), "m"(*inputs));
}

// A float buffer that the compiler must keep in memory (L1) while integer sums fill the registers.
TERRACE_INLINE void keep_in_memory(float* p) {
    __asm__ volatile("" : "+r"(p) : : "memory");
}

// Dword j (four columns) of a block for sixteen rows, as bytes without sign.
template <Form kForm>
TERRACE_INLINE __m512i weight_dword(const std::uint8_t* payload, int j) {
    if constexpr (kForm == Form::Bytes) {
        return _mm512_load_si512(payload + 64 * j);
    } else {
        const __m512i pair = _mm512_load_si512(payload + 64 * (j / 2));
        const __m512i low = _mm512_set1_epi8(15);
        return _mm512_and_si512(j % 2 == 0 ? pair : _mm512_srli_epi16(pair, 4), low);
    }
}

template <Form kForm>
TERRACE_INLINE void fetch_weights(const std::uint8_t* payload, int j) {
    if (kForm == Form::Bytes || j % 2 == 0) {
        const int line = kForm == Form::Bytes ? j : j / 2;
        _mm_prefetch(reinterpret_cast<const char*>(payload + 64 * line + kWeightsAhead),
                     _MM_HINT_T0);
    }
}

// Integer sums of `kDwords` dwords of one block from dword `begin` on.
template <int kGroups, int kWidth, int kDwords, Form kForm>
TERRACE_INLINE void add_dwords(const std::uint8_t* const* payload,
                               const std::int32_t* q,
                               int begin,
                               __m512i (*sum)[kGroups]) {
    constexpr bool kDecode = kGroups == 1;
#pragma GCC unroll 4
    for (int i = 0; i < kDwords; ++i) {
        const int j = begin + i;
        __m512i w[kGroups];
#pragma GCC unroll 2
        for (int g = 0; g < kGroups; ++g) {
            w[g] = weight_dword<kForm>(payload[g], j);
        }
        if constexpr (kDecode) {
            fetch_weights<kForm>(payload[0], j);
        } else {
            _mm_prefetch(reinterpret_cast<const char*>(q + j * kWidth) + kInputsAhead, _MM_HINT_T0);
        }
#pragma GCC unroll 8
        for (int t = 0; t < kWidth; ++t) {
            if constexpr (kGroups == 1) {
                dot(sum[t][0], w[0], q + j * kWidth + t);
            } else {
                const __m512i b = _mm512_set1_epi32(q[j * kWidth + t]);
#pragma GCC unroll 2
                for (int g = 0; g < kGroups; ++g) {
                    dot(sum[t][g], w[g], b);
                }
            }
        }
    }
}

template <int kGroups, int kWidth, int kScales, Form kForm>
void segment_kernel(const Segment& s, const PanelPart& part, float* total, bool first) {
    constexpr int kDwords = 16 / kScales;
    alignas(64) float acc[kWidth][kGroups][16];
#pragma GCC unroll 8
    for (int t = 0; t < kWidth; ++t) {
#pragma GCC unroll 2
        for (int g = 0; g < kGroups; ++g) {
            _mm512_store_ps(acc[t][g], _mm512_setzero_ps());
        }
    }
    if constexpr (kGroups > 1) {
        keep_in_memory(acc[0][0]);
    }
    const auto* q = reinterpret_cast<const std::int32_t*>(part.q);
    const float* token_scales = part.scales;
    const std::int32_t* corrections = part.corrections;
    for (std::int64_t k = 0; k < s.n_blocks; ++k, q += 16 * kWidth, token_scales += kWidth) {
        const std::uint8_t* payload[kGroups];
#pragma GCC unroll 2
        for (int g = 0; g < kGroups; ++g) {
            payload[g] = s.payload + g * s.payload_step + s.payload_at[k];
        }
        const std::uint8_t* scales = s.scales + s.scales_at[k];
        if constexpr (kGroups == 1) {
            _mm_prefetch(reinterpret_cast<const char*>(scales + kWeightsAhead), _MM_HINT_T0);
        }
#pragma GCC unroll 4
        for (int v = 0; v < kScales; ++v, corrections += kWidth) {
            __m512i sum[kWidth][kGroups];
#pragma GCC unroll 8
            for (int t = 0; t < kWidth; ++t) {
                const __m512i start = _mm512_set1_epi32(corrections[t]);
#pragma GCC unroll 2
                for (int g = 0; g < kGroups; ++g) {
                    sum[t][g] = start;
                }
            }
            add_dwords<kGroups, kWidth, kDwords, kForm>(payload, q, v * kDwords, sum);
#pragma GCC unroll 8
            for (int t = 0; t < kWidth; ++t) {
                const __m512 token_scale = _mm512_set1_ps(token_scales[t]);
#pragma GCC unroll 2
                for (int g = 0; g < kGroups; ++g) {
                    const __m512 scale = _mm512_load_ps(scales + g * s.scales_step + 64 * v);
                    const __m512 c = _mm512_mul_ps(scale, token_scale);
                    _mm512_store_ps(acc[t][g], _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[t][g]), c,
                                                               _mm512_load_ps(acc[t][g])));
                }
            }
            if constexpr (kGroups > 1) {
                keep_in_memory(acc[0][0]);
            }
        }
    }
#pragma GCC unroll 8
    for (int t = 0; t < kWidth; ++t) {
#pragma GCC unroll 2
        for (int g = 0; g < kGroups; ++g) {
            float* to = total + (t * kGroups + g) * 16;
            const __m512 before = first ? _mm512_setzero_ps() : _mm512_load_ps(to);
            _mm512_store_ps(to, _mm512_add_ps(before, _mm512_load_ps(acc[t][g])));
        }
    }
}

// Kernels by width 1 .. 8.
struct Widths {
    SegmentKernel width[8];
};

template <int kGroups, int kScales, Form kForm>
constexpr Widths all_widths() {
    return {{segment_kernel<kGroups, 1, kScales, kForm>, segment_kernel<kGroups, 2, kScales, kForm>,
             segment_kernel<kGroups, 3, kScales, kForm>, segment_kernel<kGroups, 4, kScales, kForm>,
             segment_kernel<kGroups, 5, kScales, kForm>, segment_kernel<kGroups, 6, kScales, kForm>,
             segment_kernel<kGroups, 7, kScales, kForm>,
             segment_kernel<kGroups, 8, kScales, kForm>}};
}

SegmentKernel choose(const PackedLayout& layout, std::int64_t n_groups, std::int64_t width) {
    static constexpr Widths kNibbles1 = all_widths<1, 1, Form::Nibbles>();
    static constexpr Widths kNibbles2 = all_widths<2, 1, Form::Nibbles>();
    static constexpr Widths kBytes1 = all_widths<1, 1, Form::Bytes>();
    static constexpr Widths kBytes2 = all_widths<2, 1, Form::Bytes>();
    static constexpr Widths kHalves = all_widths<1, 2, Form::Bytes>();
    static constexpr Widths kQuarters = all_widths<1, 4, Form::Bytes>();
    if (layout.scales_per_block == 4) {
        return kQuarters.width[width - 1];
    }
    if (layout.scales_per_block == 2) {
        return kHalves.width[width - 1];
    }
    if (layout.kind == WeightKind::Int4) {
        return (n_groups == 1 ? kNibbles1 : kNibbles2).width[width - 1];
    }
    return (n_groups == 1 ? kBytes1 : kBytes2).width[width - 1];
}

// Writes the sums of n_groups groups: total [token][n_groups][16] to rows of the output.
void store(const TileWork& work,
           std::int64_t first_row,
           std::int64_t n_groups,
           const float* total) {
    for (std::int64_t t = 0; t < work.n_tokens; ++t) {
        for (std::int64_t g = 0; g < n_groups; ++g) {
            const std::int64_t row = first_row + g * kGroupRows;
            const std::int64_t left = work.n_rows - row;
            const __mmask16 mask = left >= 16 ? static_cast<__mmask16>(0xffff)
                                              : static_cast<__mmask16>((1 << left) - 1);
            _mm512_mask_storeu_ps(work.out + t * work.out_stride + row, mask,
                                  _mm512_load_ps(total + (t * n_groups + g) * 16));
        }
    }
}

}  // namespace

void matmul_tile_avx512(const TileWork& work) {
    constexpr int kMaxGroups = 2;
    alignas(64) float total[(kMaxTileTokens + 8) * kMaxGroups * 16];
    alignas(64) std::uint8_t unpacked[kMaxGroups * kUnpackedBytes];
    const PackedLayout& layout = *work.layout;
    const bool coarse = layout.scales_per_block == 1;
    const bool direct =
        layout.kind == WeightKind::Int8 || (layout.kind == WeightKind::Int4 && coarse);
    const std::uint32_t to_base =
        0x01010101u * static_cast<std::uint32_t>(128 - (layout.kind == WeightKind::Int4   ? 8
                                                        : layout.kind == WeightKind::Int3 ? 4
                                                                                          : 2));
    const auto* weights = reinterpret_cast<const std::uint8_t*>(work.weights);
    for (std::int64_t row = 0; row < work.n_rows;) {
        // One panel: decode, bound by memory, which likes one stream. More: two groups a step.
        const std::int64_t n_groups =
            coarse && work.n_panels > 1 && work.n_rows - row > kGroupRows ? 2 : 1;
        const std::uint8_t* group = weights + row / kGroupRows * layout.group_bytes;
        const SegmentKernel kernel = choose(layout, n_groups, work.panels.width);
        for (std::int64_t block = 0; block < layout.n_blocks; block += kSegmentBlocks) {
            Segment segment = segment_of(layout, group, block);
            if (!direct) {
                unpack_segment(layout.kind, n_groups, to_base, unpacked, &segment);
            }
            for (std::int64_t p = 0; p < work.n_panels; ++p) {
                kernel(segment, panel_part(work, block, segment.n_blocks, p),
                       total + p * work.panels.width * n_groups * 16, block == 0);
            }
        }
        store(work, row, n_groups, total);
        row += n_groups * kGroupRows;
    }
}

}  // namespace terrace::cpu
