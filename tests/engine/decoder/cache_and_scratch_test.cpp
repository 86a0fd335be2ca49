// Memory of the forward pass: what is planned is what is taken, and pieces never overlap.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/cpu/cpu_device.h"
#include "engine/decoder/activations.h"
#include "engine/decoder/kv_cache.h"
#include "engine/model/model_folder.h"
#include "tests/support/models.h"

namespace terrace::test {
namespace {

/// Pieces of memory in the order of their addresses.
class Pieces {
public:
    void add(const void* begin, std::int64_t bytes) {
        if (begin != nullptr) {
            pieces_.emplace_back(static_cast<const std::byte*>(begin), bytes);
        }
    }

    /// Bytes of all pieces; fails the test when two overlap or one is not aligned to 64 bytes.
    std::int64_t total() {
        std::sort(pieces_.begin(), pieces_.end());
        std::int64_t sum = 0;
        for (std::size_t i = 0; i < pieces_.size(); ++i) {
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pieces_[i].first) % 64, 0u);
            if (i > 0) {
                EXPECT_LE(pieces_[i - 1].first + pieces_[i - 1].second, pieces_[i].first);
            }
            sum += pieces_[i].second;
        }
        return sum;
    }

private:
    std::vector<std::pair<const std::byte*, std::int64_t>> pieces_;
};

CacheShape odd_shape(SessionKind kind) {
    CacheShape shape;
    shape.kind = kind;
    shape.capacity = 77;
    shape.latent = 70;
    shape.rope = 12;
    shape.index_dim = 40;
    shape.layers = {{true}, {false}, {true}};
    return shape;
}

TEST(KvCache, HoldsInt8RowsWithAScaleForEvery64) {
    cpu::CpuDevice device;
    const CacheShape shape = odd_shape(SessionKind::Quantised);
    Result<KvCache> cache = KvCache::create(shape, device);
    ASSERT_TRUE(cache.ok());
    Pieces pieces;
    for (std::int64_t layer = 0; layer < 3; ++layer) {
        const MlaCache& rows = cache->attention(layer);
        EXPECT_EQ(rows.row_bytes(), 128 + 64);
        EXPECT_EQ(rows.values, nullptr);
        pieces.add(rows.rows, 77 * 192);
        pieces.add(rows.scales, 77 * 3 * 4);
        const IndexCache& index = cache->index(layer);
        if (layer == 1) {
            EXPECT_EQ(index.keys, nullptr) << "a shared layer has no index keys";
            continue;
        }
        pieces.add(index.keys, 80 * 64);  // lanes of 16 keys
        pieces.add(index.scales, 80 * 4);
    }
    const std::int64_t total = pieces.total();
    EXPECT_GE(KvCache::bytes(shape), total);
    EXPECT_LE(KvCache::bytes(shape), total + 10 * 63) << "only alignment comes on top";
    EXPECT_GE(device.allocated_bytes(), KvCache::bytes(shape));
}

TEST(KvCache, HoldsFloatsInFloatSessions) {
    cpu::CpuDevice device;
    const CacheShape shape = odd_shape(SessionKind::Float);
    Result<KvCache> cache = KvCache::create(shape, device);
    ASSERT_TRUE(cache.ok());
    Pieces pieces;
    for (std::int64_t layer = 0; layer < 3; ++layer) {
        EXPECT_EQ(cache->attention(layer).rows, nullptr);
        pieces.add(cache->attention(layer).values, 77 * 82 * 4);
        if (layer != 1) {
            pieces.add(cache->index(layer).values, 77 * 40 * 4);
        }
    }
    const std::int64_t total = pieces.total();
    EXPECT_GE(KvCache::bytes(shape), total);
    EXPECT_LE(KvCache::bytes(shape), total + 5 * 63);
}

void add_rows(Pieces& pieces, const ActivationRows& rows, std::int64_t n, std::int64_t width) {
    EXPECT_EQ(rows.n_rows, n);
    EXPECT_EQ(rows.width, width);
    EXPECT_GE(rows.stride, width);
    pieces.add(rows.values, n * width * 4);
    pieces.add(rows.q, n * width);
}

TEST(Activations, TakeWhatWasPlannedAndDoNotOverlap) {
    Result<ModelFolder> folder = open_model_folder(demo_model());
    ASSERT_TRUE(folder.ok());
    const ModelConfig& c = folder->config;
    for (const SessionKind kind : {SessionKind::Quantised, SessionKind::Float}) {
        std::int64_t before = 0;
        for (const std::int64_t n : {1, 4, 17, 64}) {
            cpu::CpuDevice device;
            Result<Activations> made = Activations::create(c, kind, n, device);
            ASSERT_TRUE(made.ok());
            const ActivationSet& set = made->set;
            EXPECT_EQ(set.max_rows, n);
            EXPECT_EQ(made->selections.size(), static_cast<std::size_t>(n));
            Pieces pieces;
            add_rows(pieces, set.normed, n, c.hidden_size);
            add_rows(pieces, set.final, n, c.hidden_size);
            add_rows(pieces, set.q_latent, n, c.q_lora_rank);
            add_rows(pieces, set.values, n, c.num_attention_heads * c.v_head_dim);
            add_rows(pieces, set.mtp_input, n, 2 * c.hidden_size);
            add_rows(pieces, set.mtp_out, n, c.hidden_size);
            pieces.add(set.hidden.data, n * c.hidden_size * 4);
            pieces.add(set.block_out.data, n * c.hidden_size * 4);
            pieces.add(set.z.data, n * c.num_attention_heads * c.kv_lora_rank * 4);
            pieces.add(set.expert_out.data, n * c.num_experts_per_tok * c.hidden_size * 4);
            pieces.add(set.selected, n * c.index_topk * 4);
            pieces.add(set.expert_ids, n * c.num_experts_per_tok * 4);
            pieces.add(set.expert_gates, n * c.num_experts_per_tok * 4);
            const std::int64_t planned = Activations::bytes(c, kind, n);
            EXPECT_LE(pieces.total(), planned);
            EXPECT_GE(device.allocated_bytes(), planned);
            EXPECT_GT(planned, before) << "more rows need more room";
            before = planned;
        }
    }
}

TEST(Activations, SayWhatDoesNotFit) {
    Result<ModelFolder> folder = open_model_folder(demo_model());
    ASSERT_TRUE(folder.ok());
    cpu::CpuDevice device;
    const auto made =
        Activations::create(folder->config, SessionKind::Quantised, std::int64_t{1} << 40, device);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, ErrorCode::OutOfMemory);
    EXPECT_EQ(device.allocated_bytes(), 0);
}

}  // namespace
}  // namespace terrace::test
