// The row dot with AVX-512 VNNI: sixteen rows in the lanes of a vector, up to eight tokens at once.
// No standard library here: code of this file must not be linked into parts that run on older
// processors.
#include <immintrin.h>

#include "engine/cpu/matmul/segment.h"

namespace terrace::cpu {

namespace {

enum class Form : std::uint8_t { Nibbles, Bytes };

// How far ahead weights are fetched into L2 in decode; 0: not at all. The packed layout is read
// strictly forward, and with one or two tokens the processor's own fetcher is better than most
// hints (int4: 0.72 of the read loop with hints into L1, 0.86 into L2, 0.97 without). int8 with one
// token is the exception: it asks for more lines at a time than that fetcher runs ahead.
template <int kWidth, Form kForm>
constexpr std::int64_t kWeightsAhead = kWidth > 2                           ? 8192
                                       : kForm == Form::Bytes&& kWidth == 1 ? 4096
                                                                            : 0;

// GCC 12 copies and spills the accumulators of the intrinsic, and those of an instruction that it
// may move about; where it stands, it leaves them alone.
TERRACE_INLINE void dot(__m512i& sum, __m512i weights, __m512i inputs) {
    __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(weights), "v"(inputs));
}

// Four inputs of one token, the same for all sixteen rows.
TERRACE_INLINE void dot(__m512i& sum, __m512i weights, const std::int32_t* inputs) {
    __asm__ volatile("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(weights), "m"(*inputs));
}

// A float buffer that the compiler must keep in memory (L1) while integer sums fill the registers.
TERRACE_INLINE void keep_in_memory(float* p) {
    __asm__ volatile("" : "+r"(p) : : "memory");
}

// Two dwords (eight columns) of a block for sixteen rows, as bytes without sign.
template <Form kForm>
TERRACE_INLINE void load_pair(const std::uint8_t* payload, int pair, __m512i* w) {
    if constexpr (kForm == Form::Bytes) {
        w[0] = _mm512_load_si512(payload + 128 * pair);
        w[1] = _mm512_load_si512(payload + 128 * pair + 64);
    } else {
        const __m512i low = _mm512_set1_epi8(15);
        const __m512i both = _mm512_load_si512(payload + 64 * pair);
        w[0] = _mm512_and_si512(both, low);
        w[1] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
    }
}

// Bare instructions: the compiler would gather the hints of a block in one burst.
TERRACE_INLINE void fetch_line(const std::uint8_t* p) {
    __asm__ volatile("prefetcht0 %0" : : "m"(*p));
}

// One line of weights (or scales) that will be needed later.
template <int kWidth, Form kForm>
TERRACE_INLINE void fetch_weights(const std::uint8_t* line) {
    constexpr std::int64_t kAhead = kWeightsAhead<kWidth, kForm>;
    if constexpr (kAhead > 0) {
        __asm__ volatile("prefetcht1 %0" : : "m"(line[kAhead]));
    }
}

// Integer sums over dwords begin .. begin + kDwords of one block. One group of rows (decode): the
// inputs come straight from memory, and few tokens get a second chain of sums, because one would
// wait for itself.
template <int kWidth, int kDwords, Form kForm>
TERRACE_INLINE void add_one_group(const std::uint8_t* payload,
                                  const std::int32_t* q,
                                  int begin,
                                  __m512i* sum) {
    constexpr bool kTwoChains = kWidth <= 2;
    __m512i second[kWidth];
#pragma GCC unroll 8
    for (int t = 0; t < kWidth; ++t) {
        second[t] = _mm512_setzero_si512();
    }
#pragma GCC unroll 8
    for (int i = 0; i < kDwords / 2; ++i) {
        const int pair = begin / 2 + i;
        __m512i w[2];
        load_pair<kForm>(payload, pair, w);
        if constexpr (kForm == Form::Bytes) {
            fetch_weights<kWidth, kForm>(payload + 128 * pair);
            fetch_weights<kWidth, kForm>(payload + 128 * pair + 64);
        } else {
            fetch_weights<kWidth, kForm>(payload + 64 * pair);
        }
        const std::int32_t* inputs = q + 2 * pair * kWidth;
#pragma GCC unroll 8
        for (int t = 0; t < kWidth; ++t) {
            dot(sum[t], w[0], inputs + t);
        }
#pragma GCC unroll 8
        for (int t = 0; t < kWidth; ++t) {
            dot(kTwoChains ? second[t] : sum[t], w[1], inputs + kWidth + t);
        }
    }
    if constexpr (kTwoChains) {
#pragma GCC unroll 8
        for (int t = 0; t < kWidth; ++t) {
            sum[t] = _mm512_add_epi32(sum[t], second[t]);
        }
    }
}

template <int kWidth, int kScales, Form kForm>
void one_group_kernel(const Segment& s, const PanelPart& part, float* total, bool first) {
    constexpr int kDwords = 16 / kScales;
    __m512 acc[kWidth];
#pragma GCC unroll 8
    for (int t = 0; t < kWidth; ++t) {
        acc[t] = _mm512_setzero_ps();
    }
    const auto* q = reinterpret_cast<const std::int32_t*>(part.q);
    const float* token_scales = part.scales;
    const std::int32_t* corrections = part.corrections;
    for (std::int64_t k = 0; k < s.n_blocks; ++k, q += 16 * kWidth, token_scales += kWidth) {
        const std::uint8_t* payload = s.payload + s.payload_at[k];
        const std::uint8_t* scales = s.scales + s.scales_at[k];
        fetch_weights<kWidth, kForm>(scales);  // a line left out would break the even walk
#pragma GCC unroll 4
        for (int v = 0; v < kScales; ++v, corrections += kWidth) {
            __m512i sum[kWidth];
#pragma GCC unroll 8
            for (int t = 0; t < kWidth; ++t) {
                sum[t] = _mm512_set1_epi32(corrections[t]);
            }
            add_one_group<kWidth, kDwords, kForm>(payload, q, v * kDwords, sum);
            const __m512 scale = _mm512_load_ps(scales + 64 * v);
#pragma GCC unroll 8
            for (int t = 0; t < kWidth; ++t) {
                const __m512 c = _mm512_mul_ps(scale, _mm512_set1_ps(token_scales[t]));
                acc[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[t]), c, acc[t]);
            }
        }
    }
#pragma GCC unroll 8
    for (int t = 0; t < kWidth; ++t) {
        const __m512 before = first ? _mm512_setzero_ps() : _mm512_load_ps(total + t * 16);
        _mm512_store_ps(total + t * 16, _mm512_add_ps(before, acc[t]));
    }
}

// Two groups of rows (prefill): each broadcast of inputs serves both. The float sums live in a
// small buffer, because the integer ones fill the registers.
template <int kWidth, Form kForm>
void two_groups_kernel(const Segment& s, const PanelPart& part, float* total, bool first) {
    alignas(64) float acc[kWidth][2][16];
#pragma GCC unroll 8
    for (int t = 0; t < kWidth; ++t) {
        _mm512_store_ps(acc[t][0], _mm512_setzero_ps());
        _mm512_store_ps(acc[t][1], _mm512_setzero_ps());
    }
    keep_in_memory(acc[0][0]);
    const auto* q = reinterpret_cast<const std::int32_t*>(part.q);
    const float* token_scales = part.scales;
    const std::int32_t* corrections = part.corrections;
    const std::uint8_t* fetch0 = part.fetch[0];
    const std::uint8_t* fetch1 = part.fetch[1];
    for (std::int64_t k = 0; k < s.n_blocks;
         ++k, q += 16 * kWidth, token_scales += kWidth, corrections += kWidth) {
        const std::uint8_t* payload0 = s.payload + s.payload_at[k];
        const std::uint8_t* payload1 = payload0 + s.payload_step;
        __m512i sum[kWidth][2];
#pragma GCC unroll 8
        for (int t = 0; t < kWidth; ++t) {
            sum[t][0] = _mm512_set1_epi32(corrections[t]);
            sum[t][1] = sum[t][0];
        }
        // Not unrolled: GCC 12 then carries no copies of the sums from one round to the next.
        for (int pair = 0; pair < 8; ++pair) {
            __m512i w0[2];
            __m512i w1[2];
            load_pair<kForm>(payload0, pair, w0);
            load_pair<kForm>(payload1, pair, w1);
            fetch_line(fetch0);
            fetch_line(fetch1);
            fetch0 += part.fetch_step;
            fetch1 += part.fetch_step;
#pragma GCC unroll 2
            for (int half = 0; half < 2; ++half) {
                const std::int32_t* inputs = q + (2 * pair + half) * kWidth;
#pragma GCC unroll 8
                for (int t = 0; t < kWidth; ++t) {
                    const __m512i b = _mm512_set1_epi32(inputs[t]);
                    dot(sum[t][0], w0[half], b);
                    dot(sum[t][1], w1[half], b);
                }
            }
        }
        const std::uint8_t* scales = s.scales + s.scales_at[k];
#pragma GCC unroll 8
        for (int t = 0; t < kWidth; ++t) {
            const __m512 token_scale = _mm512_set1_ps(token_scales[t]);
#pragma GCC unroll 2
            for (int g = 0; g < 2; ++g) {
                const __m512 c =
                    _mm512_mul_ps(_mm512_load_ps(scales + g * s.scales_step), token_scale);
                _mm512_store_ps(acc[t][g], _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[t][g]), c,
                                                           _mm512_load_ps(acc[t][g])));
            }
        }
        keep_in_memory(acc[0][0]);
    }
#pragma GCC unroll 8
    for (int t = 0; t < kWidth; ++t) {
#pragma GCC unroll 2
        for (int g = 0; g < 2; ++g) {
            float* to = total + (t * 2 + g) * 16;
            const __m512 before = first ? _mm512_setzero_ps() : _mm512_load_ps(to);
            _mm512_store_ps(to, _mm512_add_ps(before, _mm512_load_ps(acc[t][g])));
        }
    }
}

// Kernels by width 1 .. 8.
struct Widths {
    SegmentKernel width[8];
};

template <int kScales, Form kForm>
constexpr Widths one_group() {
    return {{one_group_kernel<1, kScales, kForm>, one_group_kernel<2, kScales, kForm>,
             one_group_kernel<3, kScales, kForm>, one_group_kernel<4, kScales, kForm>,
             one_group_kernel<5, kScales, kForm>, one_group_kernel<6, kScales, kForm>,
             one_group_kernel<7, kScales, kForm>, one_group_kernel<8, kScales, kForm>}};
}

template <Form kForm>
constexpr Widths two_groups() {
    return {{two_groups_kernel<1, kForm>, two_groups_kernel<2, kForm>, two_groups_kernel<3, kForm>,
             two_groups_kernel<4, kForm>, two_groups_kernel<5, kForm>, two_groups_kernel<6, kForm>,
             two_groups_kernel<7, kForm>, two_groups_kernel<8, kForm>}};
}

SegmentKernel choose(const PackedLayout& layout, std::int64_t n_groups, std::int64_t width) {
    static constexpr Widths kNibbles1 = one_group<1, Form::Nibbles>();
    static constexpr Widths kNibbles2 = two_groups<Form::Nibbles>();
    static constexpr Widths kBytes1 = one_group<1, Form::Bytes>();
    static constexpr Widths kBytes2 = two_groups<Form::Bytes>();
    static constexpr Widths kHalves = one_group<2, Form::Bytes>();
    static constexpr Widths kQuarters = one_group<4, Form::Bytes>();
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
        SegmentWalk walk;
        while (walk.first_block < layout.n_blocks) {
            const std::int64_t block = walk.first_block;
            Segment segment = next_segment(layout, group, &walk);
            if (!direct) {
                unpack_segment(layout.kind, n_groups, to_base, unpacked, &segment);
            }
            for (std::int64_t p = 0; p < work.n_panels; ++p) {
                PanelPart part = panel_part(work, block, segment.n_blocks, p);
                plan_fetch(segment, layout, group, walk.at, p, work.panels.width, &part);
                kernel(segment, part, total + p * work.panels.width * n_groups * 16, block == 0);
            }
        }
        store(work, row, n_groups, total);
        row += n_groups * kGroupRows;
    }
}

}  // namespace terrace::cpu
