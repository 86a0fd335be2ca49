#include "engine/experts/expert_catalog.h"

#include <algorithm>
#include <string>

#include "engine/device/check.h"
#include "engine/experts/pread_reader.h"

namespace terrace {
namespace {

constexpr std::int64_t kPageBytes = 4096;
constexpr std::int64_t kMinSlotsOfClass = 2;

std::int64_t slot_bytes(const std::array<SlotMatrix, 3>& layout) {
    return round_up(layout.back().offset + layout.back().bytes, kPageBytes);
}

}  // namespace

Result<ExpertCatalog> ExpertCatalog::make(const ExpertSource& source,
                                          const Ops& ops,
                                          std::int64_t n_slots,
                                          std::int64_t n_transient) {
    if (source.matrices.empty()) {
        return Error{ErrorCode::WrongUse, "expected a model with routed experts, found none",
                     "expert store", "Open a mixture-of-experts model."};
    }
    if (n_slots < 0 || n_slots == 1) {
        return Error{
            ErrorCode::WrongUse,
            "at least 2 expert slots were expected, " + std::to_string(n_slots) + " were asked for",
            "expert store", "Ask for 2 or more, or for all (0)."};
    }
    CHECK(source.matrices.size() % 3 == 0);
    ExpertCatalog catalog;
    catalog.matrices_ = source.matrices;
    catalog.folder_ = source.folder;
    catalog.session_ = source.session;
    for (std::size_t i = 0; i < source.matrices.size(); i += 3) {
        const std::int32_t layer = source.matrices[i].layer;
        CHECK(layer >= 0);
        if (static_cast<std::size_t>(layer) >= catalog.layers_.size()) {
            catalog.layers_.resize(static_cast<std::size_t>(layer) + 1);
        }
        Layer& entry = catalog.layers_[static_cast<std::size_t>(layer)];
        if (entry.first < 0) {
            entry.first = static_cast<std::int64_t>(i / 3);
        }
        catalog.ids_.push_back({layer, static_cast<std::int32_t>(entry.n_experts++)});
    }
    catalog.measure(ops);
    catalog.divide_slots(n_slots, n_transient);
    return catalog;
}

void ExpertCatalog::measure(const Ops& ops) {
    std::vector<std::int64_t> bytes_of_layer(layers_.size(), 0);
    for (std::int64_t number = 0; number < n_experts(); ++number) {
        std::int64_t& bytes = bytes_of_layer[static_cast<std::size_t>(id(number).layer)];
        bytes = std::max(bytes, slot_bytes(layout(number, ops)));
        const ReadPlan plan = read_plan(number);
        largest_slab_bytes_ = std::max(largest_slab_bytes_, slab_bytes_for(plan.used_extents()));
    }
    make_classes(bytes_of_layer);
}

void ExpertCatalog::make_classes(const std::vector<std::int64_t>& bytes_of_layer) {
    class_of_layer_.assign(layers_.size(), -1);
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
        if (layers_[layer].first < 0) {
            continue;
        }
        const std::int64_t bytes = bytes_of_layer[layer];
        auto found = std::find_if(classes_.begin(), classes_.end(),
                                  [bytes](const SlotClass& c) { return c.slot_bytes == bytes; });
        if (found == classes_.end()) {
            found = classes_.insert(found, SlotClass{bytes, 0, 0, 0});
        }
        found->n_experts += layers_[layer].n_experts;
        class_of_layer_[layer] = static_cast<std::int32_t>(found - classes_.begin());
    }
}

/// Each class gets its share by number of experts, at least two slots. Where there are too few for
/// that, all layers share slots of the largest size.
void ExpertCatalog::divide_slots(std::int64_t n_slots, std::int64_t n_transient) {
    const std::int64_t wanted = n_slots == 0 ? n_experts() : std::min(n_slots, n_experts());
    if (wanted < kMinSlotsOfClass * static_cast<std::int64_t>(classes_.size())) {
        SlotClass one;
        for (const SlotClass& c : classes_) {
            one.slot_bytes = std::max(one.slot_bytes, c.slot_bytes);
            one.n_experts += c.n_experts;
        }
        classes_.assign(1, one);
        for (std::int32_t& c : class_of_layer_) {
            c = std::min(c, 0);
        }
    }
    std::int64_t left = wanted;
    std::int64_t experts_left = n_experts();
    std::int64_t classes_left = static_cast<std::int64_t>(classes_.size());
    for (SlotClass& c : classes_) {
        --classes_left;
        // What is left must do for the classes after this one, and need not be more.
        const std::int64_t most = std::min(c.n_experts, left - classes_left * kMinSlotsOfClass);
        const std::int64_t least =
            std::max(std::min(kMinSlotsOfClass, c.n_experts), left - (experts_left - c.n_experts));
        const std::int64_t share = left * c.n_experts / experts_left;
        const std::int64_t n = std::clamp(share, std::min(least, most), most);
        left -= n;
        experts_left -= c.n_experts;
        c.n_slots = static_cast<std::int32_t>(n);
        const std::int64_t transient =
            std::clamp(n_transient, kMinSlotsOfClass, std::max(kMinSlotsOfClass, n / 2));
        c.n_transient = n == c.n_experts ? 0 : static_cast<std::int32_t>(std::min(n, transient));
    }
}

std::int64_t ExpertCatalog::number_of(ExpertId id) const {
    CHECK(id.layer >= 0 && static_cast<std::size_t>(id.layer) < layers_.size());
    const Layer& layer = layers_[static_cast<std::size_t>(id.layer)];
    CHECK(layer.first >= 0 && id.expert >= 0 && id.expert < layer.n_experts);
    return layer.first + id.expert;
}

std::array<SlotMatrix, 3> ExpertCatalog::layout(std::int64_t number, const Ops& ops) const {
    std::array<SlotMatrix, 3> matrices;
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < 3; ++i) {
        const TensorSource& source = sources(number)[i];
        SlotMatrix& matrix = matrices[i];
        matrix.format = target_format(source, folder_, session_);
        matrix.offset = offset;
        matrix.bytes = ops.packed_bytes(matrix.format, WeightUse::RowDot, source.rows, source.cols);
        offset += matrix.bytes;
        CHECK(offset % 64 == 0);
    }
    return matrices;
}

ReadPlan ExpertCatalog::read_plan(std::int64_t number) const {
    std::array<ReadExtent, kMaxExpertParts> parts;
    for (std::size_t i = 0; i < 3; ++i) {
        const TensorSource& source = sources(number)[i];
        parts[2 * i] = {source.payload.file, source.payload.offset, source.payload.bytes};
        parts[2 * i + 1] = {source.scales.file, source.scales.offset,
                            source.scale_storage == ScaleStorage::None ? 0 : source.scales.bytes};
    }
    return plan_read(parts);
}

}  // namespace terrace
