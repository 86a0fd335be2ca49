// A made-up set of experts on disk, and the smallest device and ops that an expert store needs: a
// pack that copies, so that a test knows every byte a slot must hold.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/device/check.h"
#include "engine/device/device.h"
#include "engine/device/ops.h"
#include "engine/experts/expert_catalog.h"
#include "engine/model/weights.h"
#include "engine/support/file.h"
#include "tests/engine/support/temp_folder.h"

namespace terrace::test {

/// Memory of the heap, counted.
class HeapDevice final : public Device {
public:
    [[nodiscard]] std::string name() const override { return "heap"; }

    [[nodiscard]] Result<Buffer> allocate(std::int64_t bytes) override {
        const auto size = static_cast<std::size_t>(round_up(bytes, 4096));
        auto* memory = static_cast<std::byte*>(std::aligned_alloc(4096, size));
        if (memory == nullptr) {
            return Error{ErrorCode::OutOfMemory, "no memory", "heap", ""};
        }
        std::memset(memory, 0, size);
        allocated_ += bytes;
        return Buffer(this, memory, bytes);
    }

    [[nodiscard]] std::int64_t allocated_bytes() const override { return allocated_; }

private:
    void release(std::byte* data, std::int64_t bytes) override {
        allocated_ -= bytes;
        std::free(data);
    }

    std::atomic<std::int64_t> allocated_{0};
};

/// Cheap pseudo-random bytes, eight at a time: sanitizers make byte loops slow.
inline void fill_random(std::span<std::byte> out, std::uint64_t seed) {
    std::uint64_t state = seed * 2 + 1;
    for (std::size_t i = 0; i < out.size(); i += sizeof state) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        const std::uint64_t word = state ^ (state >> 29);
        std::memcpy(out.data() + i, &word, std::min(sizeof word, out.size() - i));
    }
}

/// Packs by copying: payload, then scales, padded to 64.
class CopyOps final : public Ops {
public:
    [[nodiscard]] const char* name() const override { return "copy"; }

    [[nodiscard]] std::int64_t packed_bytes(WeightFormat format,
                                            WeightUse,
                                            std::int64_t rows,
                                            std::int64_t cols) const override {
        const std::int64_t row_bytes =
            raw_row_bytes(format.kind, cols) + scales_per_row(format, cols) * 4;
        return round_up(rows * row_bytes, 64);
    }

    void pack(const RawMatrix& raw, WeightUse, std::byte* out) const override {
        const std::int64_t payload = raw.rows * raw_row_bytes(raw.format.kind, raw.cols);
        const std::int64_t scales = raw.rows * scales_per_row(raw.format, raw.cols) * 4;
        std::memcpy(out, raw.payload, static_cast<std::size_t>(payload));
        if (scales > 0) {
            std::memcpy(out + payload, raw.scales, static_cast<std::size_t>(scales));
        }
    }

    void embed(const RawMatrix&, std::span<const std::int32_t>, FloatRows) override { no(); }

    void rms_norm(FloatRows, const float*, float, const ActivationRows&, RowScope) override {
        no();
    }

    void layer_norm(FloatRows, const float*, const float*, float) override { no(); }

    void quantise(const ActivationRows&, RowScope) override { no(); }

    void matmul(std::span<const MatmulJob>) override { no(); }

    void swiglu(FloatRows, FloatRows, Activation, const ActivationRows&, RowScope) override {
        no();
    }

    void rope(const RopeJob&) override { no(); }

    void write_mla_cache(const MlaCache&, FloatRows, FloatRows, RowScope) override { no(); }

    void write_index_cache(const IndexCache&, FloatRows, RowScope) override { no(); }

    void absorb_query(const HeadMatrices&, FloatRows, std::int64_t, float*, RowScope) override {
        no();
    }

    void mla_attention(const MlaAttention&, RowScope) override { no(); }

    void project_values(const HeadMatrices&,
                        const float*,
                        const ActivationRows&,
                        RowScope) override {
        no();
    }

    void index_select(const IndexSelect&, RowScope) override { no(); }

    void route(const RouterJob&, const RouterRule&, RowScope) override { no(); }

    void sum_experts(const ExpertSum&) override { no(); }

    void add(FloatRows, FloatRows) override { no(); }

    void check_logits(FloatRows, RowScope) override { no(); }

private:
    static void no() { CHECK(false); }
};

enum class FileOrder { Reference, Extents };

struct SyntheticLayer {
    std::int32_t layer = 0;
    std::int32_t n_experts = 8;
    Storage storage = Storage::Int4;
    std::int32_t group = 64;
};

/// Random experts in one file (Extents order: one extent an expert; Reference order: all scales,
/// then all payloads, at offsets that are not aligned).
class SyntheticModel {
public:
    SyntheticModel(std::vector<SyntheticLayer> layers,
                   std::int64_t hidden,
                   std::int64_t width,
                   FileOrder order,
                   unsigned seed)
        : random_(seed) {
        for (const SyntheticLayer& layer : layers) {
            for (std::int32_t expert = 0; expert < layer.n_experts; ++expert) {
                add_expert(layer, expert, hidden, width);
            }
        }
        bytes_.resize(order == FileOrder::Extents ? 4096 : 1236, std::byte{0x55});
        if (order == FileOrder::Extents) {
            for (std::size_t i = 0; i < matrices_.size(); i += 3) {
                for (std::size_t k = i; k < i + 3; ++k) {
                    put_payload(k);
                }
                for (std::size_t k = i; k < i + 3; ++k) {
                    put_scales(k);
                }
            }
        } else {
            for (std::size_t k = 0; k < matrices_.size(); ++k) {
                put_scales(k);
            }
            for (std::size_t k = 0; k < matrices_.size(); ++k) {
                put_payload(k);
            }
        }
        Result<File> file = File::create(folder_ / "experts");
        const Status written = file.ok() ? file->write(bytes_) : Status(file.error());
        EXPECT_TRUE(written.ok());
    }

    [[nodiscard]] ExpertSource source() const {
        ExpertSource source;
        source.paths = {folder_ / "experts"};
        source.matrices = matrices_;
        source.folder = FolderKind::Container;
        return source;
    }

    /// What CopyOps must have put into a slot for the matrix.
    [[nodiscard]] std::vector<std::byte> packed(const TensorSource& matrix) const {
        std::vector<std::byte> out(range(matrix.payload));
        const auto scales = range(matrix.scales);
        out.insert(out.end(), scales.begin(), scales.end());
        return out;
    }

    [[nodiscard]] const TensorSource& matrix(std::size_t expert_number, std::size_t which) const {
        return matrices_[expert_number * 3 + which];
    }

    [[nodiscard]] std::filesystem::path path() const { return folder_ / "experts"; }

    [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }

    std::vector<TensorSource>& matrices() { return matrices_; }

private:
    void add_expert(const SyntheticLayer& layer,
                    std::int32_t expert,
                    std::int64_t hidden,
                    std::int64_t width) {
        for (int which = 0; which < 3; ++which) {
            TensorSource source;
            source.name = "layer " + std::to_string(layer.layer) + " expert " +
                          std::to_string(expert) + " matrix " + std::to_string(which);
            source.role = TensorRole::RoutedExpert;
            source.layer = layer.layer;
            source.storage = layer.storage;
            source.group = layer.group;
            source.rows = which == 2 ? hidden : width;
            source.cols = which == 2 ? width : hidden;
            source.scale_storage = ScaleStorage::F32;
            matrices_.push_back(source);
        }
    }

    [[nodiscard]] static WeightFormat format(const TensorSource& source) {
        return {source.storage == Storage::Int8 ? WeightKind::Int8 : WeightKind::Int4,
                source.group};
    }

    void put_payload(std::size_t k) {
        TensorSource& m = matrices_[k];
        const std::int64_t n = m.rows * raw_row_bytes(format(m).kind, m.cols);
        m.payload = {0, static_cast<std::int64_t>(bytes_.size()), n};
        const std::size_t begin = bytes_.size();
        bytes_.resize(begin + static_cast<std::size_t>(n));
        fill_random(std::span(bytes_).subspan(begin), random_());
    }

    void put_scales(std::size_t k) {
        TensorSource& m = matrices_[k];
        const std::int64_t n = m.rows * scales_per_row(format(m), m.cols);
        m.scales = {0, static_cast<std::int64_t>(bytes_.size()), n * 4};
        for (std::int64_t i = 0; i < n; ++i) {
            const float scale = 0.001F * static_cast<float>(1 + random_() % 1000);
            const auto* raw = reinterpret_cast<const std::byte*>(&scale);
            bytes_.insert(bytes_.end(), raw, raw + 4);
        }
    }

    [[nodiscard]] std::vector<std::byte> range(const FileRange& r) const {
        const auto begin = bytes_.begin() + r.offset;
        return {begin, begin + r.bytes};
    }

    TempFolder folder_;
    std::mt19937 random_;
    std::vector<TensorSource> matrices_;
    std::vector<std::byte> bytes_;
};

}  // namespace terrace::test
