// The expert store over a model folder as it is on disk: each expert as the checkpoint reads it.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/experts/expert_store.h"
#include "engine/model/model_folder.h"
#include "tests/engine/experts/synthetic_model.h"

namespace terrace {
namespace {

using test::CopyOps;
using test::HeapDevice;

/// What a slot must hold: the weight as the checkpoint reads it alone, packed.
std::vector<std::byte> pack_directly(const ModelFolder& folder,
                                     const CopyOps& ops,
                                     const TensorSource& source,
                                     SessionKind session) {
    const WeightFormat format = target_format(source, folder.checkpoint->kind(), session);
    const Result<RawWeight> raw = folder.checkpoint->read_weight(source, format);
    EXPECT_TRUE(raw.ok()) << raw.error().text();
    std::vector<std::byte> out(static_cast<std::size_t>(
        ops.packed_bytes(format, WeightUse::RowDot, source.rows, source.cols)));
    ops.pack(raw->matrix, WeightUse::RowDot, out.data());
    return out;
}

void expect_equal_to_checkpoint(const ModelFolder& folder,
                                const CopyOps& ops,
                                const ExpertLease& lease,
                                SessionKind session) {
    const ExpertWeights& w = lease.weights();
    const WeightMatrix* matrices[] = {&w.gate, &w.up, &w.down};
    for (const Projection projection : kProjections) {
        const TensorSource& source =
            folder.checkpoint->expert(lease.id().layer, lease.id().expert, projection);
        const WeightMatrix& matrix = *matrices[static_cast<std::size_t>(projection)];
        EXPECT_EQ(matrix.format, target_format(source, folder.checkpoint->kind(), session));
        EXPECT_EQ(matrix.rows, source.rows);
        EXPECT_EQ(matrix.cols, source.cols);
        const std::vector<std::byte> expected = pack_directly(folder, ops, source, session);
        EXPECT_EQ(std::memcmp(matrix.data, expected.data(), expected.size()), 0) << source.name;
    }
}

void compare_folder(const std::string& name, ExpertPrecision precision) {
    const std::filesystem::path path =
        std::filesystem::path(TERRACE_ORACLE_DIR) / "container" / name;
    if (!std::filesystem::exists(path)) {
        GTEST_SKIP() << "1 folder skipped: " << name << " is not there";
    }
    const Result<ModelFolder> folder = open_model_folder(path);
    ASSERT_TRUE(folder.ok()) << folder.error().text();
    const CopyOps ops;
    HeapDevice device;
    const SessionKind session =
        precision == ExpertPrecision::Float ? SessionKind::Float : SessionKind::Quantised;
    for (const std::int64_t n_slots : {2, 5, 0}) {
        ExpertStoreOptions options;
        options.n_slots = n_slots;
        options.precision = precision;
        const auto store = ExpertStore::create(*folder->checkpoint, ops, device, options);
        ASSERT_TRUE(store.ok()) << store.error().text();
        std::vector<Demand> demands;
        for (std::int64_t e = 0; e < folder->config.n_routed_experts; ++e) {
            demands.push_back({static_cast<std::int32_t>(e), 1});
        }
        std::size_t n_delivered = 0;
        for (std::int64_t layer = 0; layer < folder->config.n_layers_stored(); ++layer) {
            if (!folder->config.is_sparse(layer)) {
                continue;
            }
            ExpertVisit visit = (*store)->begin_visit(static_cast<int>(layer), demands, layer);
            while (true) {
                const Result<ExpertBatch> batch = visit.next_batch({});
                ASSERT_TRUE(batch.ok()) << batch.error().text();
                if (batch->state == ExpertBatch::State::Done) {
                    break;
                }
                n_delivered += batch->leases.size();
                for (const ExpertLease& lease : batch->leases) {
                    expect_equal_to_checkpoint(*folder, ops, lease, session);
                }
            }
        }
        EXPECT_EQ(n_delivered * 3, folder->checkpoint->experts().size());
    }
}

TEST(CheckpointStore, HoldsWhatAContainerHolds) {
    compare_folder("tiny-int4g64", ExpertPrecision::Quantised);
}

TEST(CheckpointStore, WidensAContainerForAFloatSession) {
    compare_folder("tiny-int4g64", ExpertPrecision::Float);
}

TEST(CheckpointStore, QuantisesAFloatFolderWhileReading) {
    compare_folder("tiny-hf", ExpertPrecision::Quantised);
}

TEST(CheckpointStore, HoldsTheFloatsOfAFloatFolder) {
    compare_folder("tiny-hf", ExpertPrecision::Float);
}

}  // namespace
}  // namespace terrace
