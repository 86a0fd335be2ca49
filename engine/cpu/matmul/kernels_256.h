// The row dot with 256-bit vectors: sixteen rows in two vectors, up to four tokens at once. The
// including file brings `Dot`, how four unsigned bytes times four signed ones are summed; it is
// compiled with its own flags, so everything here has internal linkage.
#pragma once

#include <immintrin.h>

#include "engine/cpu/matmul/segment.h"

namespace terrace::cpu {

namespace {

/// How the weights of a segment stand: packed nibbles; nibbles unpacked to bytes (value + 8);
/// bytes (value + 128).
enum class Form : std::uint8_t { Nibbles, WideNibbles, Bytes };

constexpr std::int64_t kWeightsAhead = 4096;
constexpr int kHalves = 2;  ///< of eight rows
constexpr int kMaxWidth = 4;

TERRACE_INLINE void keep_in_memory(float* p) {
    __asm__ volatile("" : "+r"(p) : : "memory");
}

// Dword 2 * pair + `second` (four columns) of a block for eight rows, as bytes without sign. One at
// a time, just before it is used: sixteen registers hold no more.
template <Form kForm>
TERRACE_INLINE __m256i load_dword(const std::uint8_t* payload, int pair, int second, int half) {
    if constexpr (kForm == Form::Nibbles) {
        const __m256i low = _mm256_set1_epi8(15);
        const __m256i both =
            _mm256_load_si256(reinterpret_cast<const __m256i*>(payload + 64 * pair + 32 * half));
        return _mm256_and_si256(second == 0 ? both : _mm256_srli_epi16(both, 4), low);
    } else {
        return _mm256_load_si256(
            reinterpret_cast<const __m256i*>(payload + 128 * pair + 64 * second + 32 * half));
    }
}

TERRACE_INLINE void fetch_line(const std::uint8_t* p) {
    __asm__ volatile("prefetcht0 %0" : : "m"(*p));
}

// Sums over dwords begin .. begin + kDwords of one block.
template <typename Dot, int kWidth, int kDwords, Form kForm>
TERRACE_INLINE void add_dwords(const std::uint8_t* payload,
                               const std::int32_t* q,
                               int begin,
                               const std::uint8_t** fetch,
                               std::int64_t fetch_step,
                               __m256i (*sum)[kHalves]) {
#pragma GCC unroll 4
    for (int i = 0; i < kDwords / 2; ++i) {
        const int pair = begin / 2 + i;
        // One or two tokens are decode, read strictly forward: hints only disturb the processor's
        // own fetcher there (0.87 of the read loop with them, 0.95 without).
        if constexpr (kWidth > 2) {
            fetch_line(*fetch);
            *fetch += fetch_step;
        }
#pragma GCC unroll 2
        for (int d = 0; d < 2; ++d) {
            typename Dot::template Weights<kForm> w[kHalves];
            w[0].set(load_dword<kForm>(payload, pair, d, 0));
            w[1].set(load_dword<kForm>(payload, pair, d, 1));
            const std::int32_t* inputs = q + (2 * pair + d) * kWidth;
#pragma GCC unroll 4
            for (int t = 0; t < kWidth; ++t) {
                const __m256i b = _mm256_set1_epi32(inputs[t]);
                w[0].add_to(sum[t][0], b);
                w[1].add_to(sum[t][1], b);
            }
        }
    }
}

template <typename Dot, int kWidth, int kScales, Form kForm>
void segment_kernel(const Segment& s, const PanelPart& part, float* total, bool first) {
    constexpr int kDwords = 16 / kScales;
    using Weights = typename Dot::template Weights<kForm>;
    alignas(32) float acc[kWidth][kHalves][8];
#pragma GCC unroll 4
    for (int t = 0; t < kWidth; ++t) {
#pragma GCC unroll 2
        for (int h = 0; h < kHalves; ++h) {
            _mm256_store_ps(acc[t][h], _mm256_setzero_ps());
        }
    }
    if constexpr (kWidth > 1) {
        keep_in_memory(acc[0][0]);
    }
    const auto* q = reinterpret_cast<const std::int32_t*>(part.q);
    const float* token_scales = part.scales;
    const std::int32_t* corrections = part.corrections;
    const std::uint8_t* fetch = part.fetch[0];
    for (std::int64_t k = 0; k < s.n_blocks; ++k, q += 16 * kWidth, token_scales += kWidth) {
        const std::uint8_t* payload = s.payload + s.payload_at[k];
        const auto* scales = reinterpret_cast<const float*>(s.scales + s.scales_at[k]);
#pragma GCC unroll 4
        for (int v = 0; v < kScales; ++v, corrections += kWidth) {
            __m256i sum[kWidth][kHalves];
#pragma GCC unroll 4
            for (int t = 0; t < kWidth; ++t) {
                sum[t][0] = _mm256_set1_epi32(corrections[t]);
                sum[t][1] = sum[t][0];
            }
            add_dwords<Dot, kWidth, kDwords, kForm>(payload, q, v * kDwords, &fetch,
                                                    part.fetch_step, sum);
#pragma GCC unroll 4
            for (int t = 0; t < kWidth; ++t) {
                const __m256 token_scale = _mm256_set1_ps(token_scales[t]);
#pragma GCC unroll 2
                for (int h = 0; h < kHalves; ++h) {
                    const __m256 scale = _mm256_load_ps(scales + 16 * v + 8 * h);
                    const __m256 c = _mm256_mul_ps(scale, token_scale);
                    const __m256 dot = _mm256_cvtepi32_ps(Weights::int32_sums(sum[t][h]));
                    _mm256_store_ps(acc[t][h], _mm256_fmadd_ps(dot, c, _mm256_load_ps(acc[t][h])));
                }
            }
            if constexpr (kWidth > 1) {
                keep_in_memory(acc[0][0]);
            }
        }
    }
#pragma GCC unroll 4
    for (int t = 0; t < kWidth; ++t) {
#pragma GCC unroll 2
        for (int h = 0; h < kHalves; ++h) {
            float* to = total + t * 16 + h * 8;
            const __m256 before = first ? _mm256_setzero_ps() : _mm256_load_ps(to);
            _mm256_store_ps(to, _mm256_add_ps(before, _mm256_load_ps(acc[t][h])));
        }
    }
}

struct Widths {
    SegmentKernel width[kMaxWidth];
};

template <typename Dot, int kScales, Form kForm>
constexpr Widths all_widths() {
    return {{segment_kernel<Dot, 1, kScales, kForm>, segment_kernel<Dot, 2, kScales, kForm>,
             segment_kernel<Dot, 3, kScales, kForm>, segment_kernel<Dot, 4, kScales, kForm>}};
}

template <typename Dot>
SegmentKernel choose(const PackedLayout& layout, Form form, std::int64_t width) {
    static constexpr Widths kNibbles = all_widths<Dot, 1, Form::Nibbles>();
    static constexpr Widths kWideNibbles = all_widths<Dot, 1, Form::WideNibbles>();
    static constexpr Widths kBytes = all_widths<Dot, 1, Form::Bytes>();
    static constexpr Widths kBytesHalves = all_widths<Dot, 2, Form::Bytes>();
    static constexpr Widths kBytesQuarters = all_widths<Dot, 4, Form::Bytes>();
    if (layout.scales_per_block == 4) {
        return kBytesQuarters.width[width - 1];
    }
    if (layout.scales_per_block == 2) {
        return kBytesHalves.width[width - 1];
    }
    if (form == Form::Nibbles) {
        return kNibbles.width[width - 1];
    }
    return (form == Form::WideNibbles ? kWideNibbles : kBytes).width[width - 1];
}

// Writes the sums of one group: total [token][16] to rows of the output.
TERRACE_INLINE void store(const TileWork& work, std::int64_t row, const float* total) {
    const std::int64_t left = work.n_rows - row;
    for (std::int64_t t = 0; t < work.n_tokens; ++t) {
        float* to = work.out + t * work.out_stride + row;
        if (left >= kGroupRows) {
            _mm256_storeu_ps(to, _mm256_load_ps(total + t * 16));
            _mm256_storeu_ps(to + 8, _mm256_load_ps(total + t * 16 + 8));
        } else {
            for (std::int64_t r = 0; r < left; ++r) {
                to[r] = total[t * 16 + r];
            }
        }
    }
}

template <typename Dot>
TERRACE_INLINE void matmul_tile(const TileWork& work) {
    alignas(64) float total[(kMaxTileTokens + kMaxWidth) * 16];
    alignas(64) std::uint8_t unpacked[kUnpackedBytes];
    const PackedLayout& layout = *work.layout;
    const bool nibbles = layout.kind == WeightKind::Int4 && layout.scales_per_block == 1;
    // One panel: decode, weights unpacked in registers. More: unpacked once for all of them.
    const Form form = !nibbles             ? Form::Bytes
                      : work.n_panels == 1 ? Form::Nibbles
                                           : Form::WideNibbles;
    const bool direct = form == Form::Nibbles || layout.kind == WeightKind::Int8;
    const int stored = layout.kind == WeightKind::Int4   ? 8
                       : layout.kind == WeightKind::Int3 ? 4
                                                         : 2;
    const std::uint32_t to_base =
        form == Form::WideNibbles ? 0 : 0x01010101u * static_cast<std::uint32_t>(128 - stored);
    const SegmentKernel kernel = choose<Dot>(layout, form, work.panels.width);
    const auto* group = reinterpret_cast<const std::uint8_t*>(work.weights);
    for (std::int64_t row = 0; row < work.n_rows; row += kGroupRows, group += layout.group_bytes) {
        SegmentWalk walk;
        while (walk.first_block < layout.n_blocks) {
            const std::int64_t block = walk.first_block;
            const std::int64_t at = walk.at;
            Segment segment = next_segment(layout, group, &walk);
            if (!direct) {
                unpack_segment(layout.kind, 1, to_base, unpacked, &segment);
            }
            for (std::int64_t p = 0; p < work.n_panels; ++p) {
                PanelPart part = panel_part(work, block, segment.n_blocks, p);
                plan_fetch(segment, layout, group, at + kWeightsAhead, p, work.panels.width, &part);
                kernel(segment, part, total + p * work.panels.width * 16, block == 0);
            }
        }
        store(work, row, total);
    }
}

}  // namespace

}  // namespace terrace::cpu
