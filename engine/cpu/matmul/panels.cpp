#include "engine/cpu/matmul/panels.h"

#include <immintrin.h>

namespace terrace::cpu {

namespace {

std::int64_t input_row(const PanelSpec& spec, std::int64_t token) {
    return spec.rows == nullptr ? token : spec.rows[token];
}

// Sums of the q of a block: dword lane d holds the int16 sums of columns 0, 1 (low) and 2, 3 (high)
// of the dwords d and d + 8.
__m256i pair_sums(const std::int8_t* q) {
    const __m256i one = _mm256_set1_epi8(1);
    const auto* v = reinterpret_cast<const __m256i*>(q);
    return _mm256_add_epi16(_mm256_maddubs_epi16(one, _mm256_loadu_si256(v)),
                            _mm256_maddubs_epi16(one, _mm256_loadu_si256(v + 1)));
}

// -offset * sums, where the int16 sums of a kernel start.
std::int32_t int16_correction(const std::int8_t* q, std::int32_t offset) {
    const __m256i pairs = pair_sums(q);
    __m128i s = _mm_add_epi16(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    s = _mm_add_epi16(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi16(s, _mm_shuffle_epi32(s, 0xb1));
    return _mm_cvtsi128_si32(
        _mm_mullo_epi16(s, _mm_set1_epi16(static_cast<std::int16_t>(-offset))));
}

std::int32_t sum_of(const std::int8_t* q, std::int64_t n) {
    std::int32_t sum = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        sum += q[i];
    }
    return sum;
}

std::int32_t correction_of(const PanelSpec& spec,
                           std::int64_t row,
                           std::int64_t block,
                           std::int64_t part) {
    const std::int8_t* q = spec.input.q + row * spec.input.q_stride() + block * kBlockColumns;
    if (spec.correction == Correction::None) {
        return 0;
    }
    if (spec.correction == Correction::Int16x2) {
        return int16_correction(q, spec.offset);
    }
    if (spec.scales_per_block == 1) {
        return -spec.offset * spec.input.sums[row * spec.input.n_groups() + block];
    }
    const std::int64_t columns = kBlockColumns / spec.scales_per_block;
    return -spec.offset * sum_of(q + part * columns, columns);
}

struct PanelPlace {
    std::int64_t first_block = 0;  ///< of the segment
    std::int64_t n_blocks = 0;
    std::int64_t blocks_before = 0;  ///< blocks * width in front of the panel's part
};

PanelPlace place_of(const PanelSpec& spec,
                    const Panels& panels,
                    std::int64_t panel,
                    std::int64_t first_block) {
    const std::int64_t left = spec.input.n_groups() - first_block;
    const std::int64_t n = left < kSegmentBlocks ? left : kSegmentBlocks;
    return {first_block, n, (first_block * panels.n_panels + panel * n) * panels.width};
}

void fill_corrections(const PanelSpec& spec,
                      const PanelPlace& place,
                      std::int64_t row,
                      std::int32_t* out) {
    for (std::int64_t k = 0; k < place.n_blocks; ++k) {
        for (std::int64_t v = 0; v < spec.scales_per_block; ++v) {
            *out = row < 0 ? 0 : correction_of(spec, row, place.first_block + k, v);
            out += spec.width;
        }
    }
}

// One token of one segment; row < 0: a token that only fills the panel.
void fill_token(const PanelSpec& spec,
                const PanelPlace& place,
                std::int64_t row,
                std::int32_t* q,
                float* scales) {
    const std::int64_t n_dwords = place.n_blocks * kBlockColumns / 4;
    if (row < 0) {
        for (std::int64_t j = 0; j < n_dwords; ++j) {
            q[j * spec.width] = 0;
        }
        for (std::int64_t k = 0; k < place.n_blocks; ++k) {
            scales[k * spec.width] = 0.0f;
        }
        return;
    }
    const std::int8_t* from =
        spec.input.q + row * spec.input.q_stride() + place.first_block * kBlockColumns;
    for (std::int64_t j = 0; j < n_dwords; ++j) {
        __builtin_memcpy(q + j * spec.width, from + 4 * j, 4);
    }
    const float* from_scales = spec.input.scales + row * spec.input.n_groups() + place.first_block;
    for (std::int64_t k = 0; k < place.n_blocks; ++k) {
        scales[k * spec.width] = from_scales[k];
    }
}

// Bytes of the three arrays.
struct Sizes {
    std::int64_t q = 0;
    std::int64_t scales = 0;
    std::int64_t corrections = 0;
};

Sizes sizes_of(const PanelSpec& spec) {
    const std::int64_t n = spec.n_panels() * spec.width * spec.input.n_groups();
    Sizes sizes;
    if (spec.n_tokens > 1) {
        sizes.q = n * kBlockColumns;
        sizes.scales = round_up(n * 4, kVectorBytes);
    }
    sizes.corrections = round_up(n * spec.scales_per_block * 4, kVectorBytes);
    return sizes;
}

}  // namespace

bool PanelSpec::same_as(const PanelSpec& other) const {
    return input.q == other.input.q && input.width == other.input.width && rows == other.rows &&
           n_tokens == other.n_tokens && width == other.width &&
           scales_per_block == other.scales_per_block && correction == other.correction &&
           offset == other.offset;
}

std::int64_t panel_bytes(const PanelSpec& spec) {
    const Sizes sizes = sizes_of(spec);
    return sizes.q + sizes.scales + sizes.corrections;
}

Panels place_panels(const PanelSpec& spec, std::byte* memory) {
    const Sizes sizes = sizes_of(spec);
    Panels panels;
    panels.width = spec.width;
    panels.n_panels = spec.n_panels();
    panels.corrections = reinterpret_cast<std::int32_t*>(memory + sizes.q + sizes.scales);
    if (spec.n_tokens > 1) {
        panels.q = reinterpret_cast<std::int8_t*>(memory);
        panels.scales = reinterpret_cast<float*>(memory + sizes.q);
    } else {
        const std::int64_t row = input_row(spec, 0);
        panels.q = spec.input.q + row * spec.input.q_stride();
        panels.scales = spec.input.scales + row * spec.input.n_groups();
    }
    return panels;
}

void fill_panel(const PanelSpec& spec, const Panels& panels, std::int64_t panel) {
    const bool in_place = spec.n_tokens == 1;
    for (std::int64_t block = 0; block < spec.input.n_groups(); block += kSegmentBlocks) {
        const PanelPlace place = place_of(spec, panels, panel, block);
        // The arrays are ours (place_panels); only a single token's numbers belong to the caller,
        // and those are not written.
        auto* corrections = const_cast<std::int32_t*>(panels.corrections) +
                            place.blocks_before * spec.scales_per_block;
        for (std::int64_t t = 0; t < spec.width; ++t) {
            const std::int64_t token = panel * spec.width + t;
            const std::int64_t row = token < spec.n_tokens ? input_row(spec, token) : -1;
            fill_corrections(spec, place, row, corrections + t);
            if (!in_place) {
                auto* q = reinterpret_cast<std::int32_t*>(const_cast<std::int8_t*>(panels.q));
                fill_token(spec, place, row, q + place.blocks_before * kBlockColumns / 4 + t,
                           const_cast<float*>(panels.scales) + place.blocks_before + t);
            }
        }
    }
}

}  // namespace terrace::cpu
