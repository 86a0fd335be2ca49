// What experts a model has, how large each is in a slot, and how the slots are divided among
// layers whose experts differ in size.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "engine/device/ops.h"
#include "engine/device/result.h"
#include "engine/experts/expert_id.h"
#include "engine/experts/read_plan.h"
#include "engine/model/weights.h"

namespace terrace {

/// Where the experts come from: what the store needs of a Checkpoint.
struct ExpertSource {
    std::vector<std::filesystem::path> paths;  ///< of the files that FileRange::file counts
    /// Every routed expert matrix: layer, then expert, then gate, up, down.
    std::span<const TensorSource> matrices;
    FolderKind folder = FolderKind::Float;
    SessionKind session = SessionKind::Quantised;
};

/// One matrix of an expert as it lies in a slot.
struct SlotMatrix {
    WeightFormat format;
    std::int64_t offset = 0;  ///< within the slot
    std::int64_t bytes = 0;
};

/// Slots of one size.
struct SlotClass {
    std::int64_t slot_bytes = 0;  ///< a multiple of 4096
    std::int64_t n_experts = 0;
    std::int32_t n_slots = 0;
    std::int32_t n_transient = 0;
};

/// Immutable after construction; thread-safe. Refers to the matrices of its source.
class ExpertCatalog {
public:
    /// n_slots 0: one for every expert. Errors: WrongUse for 1 or a negative number of slots, or
    /// for a model without routed experts.
    [[nodiscard]] static Result<ExpertCatalog> make(const ExpertSource& source,
                                                    const Ops& ops,
                                                    std::int64_t n_slots,
                                                    std::int64_t n_transient);

    [[nodiscard]] std::int64_t n_experts() const { return static_cast<std::int64_t>(ids_.size()); }

    [[nodiscard]] const std::vector<SlotClass>& classes() const { return classes_; }

    /// Running number of an expert over all layers. Precondition: it exists (CHECK).
    [[nodiscard]] std::int64_t number_of(ExpertId id) const;

    [[nodiscard]] ExpertId id(std::int64_t number) const {
        return ids_[static_cast<std::size_t>(number)];
    }

    [[nodiscard]] std::int32_t class_of(std::int64_t number) const {
        return class_of_layer_[static_cast<std::size_t>(id(number).layer)];
    }

    /// Gate, up, down.
    [[nodiscard]] std::span<const TensorSource, 3> sources(std::int64_t number) const {
        return matrices_.subspan(static_cast<std::size_t>(number) * 3).first<3>();
    }

    [[nodiscard]] std::array<SlotMatrix, 3> layout(std::int64_t number, const Ops& ops) const;
    [[nodiscard]] ReadPlan read_plan(std::int64_t number) const;

    [[nodiscard]] std::int64_t largest_slab_bytes() const { return largest_slab_bytes_; }

private:
    struct Layer {
        std::int64_t first = -1;  ///< number of its expert 0; -1: no routed experts
        std::int64_t n_experts = 0;
    };

    ExpertCatalog() = default;

    void measure(const Ops& ops);
    void make_classes(const std::vector<std::int64_t>& bytes_of_layer);
    void divide_slots(std::int64_t n_slots, std::int64_t n_transient);

    std::span<const TensorSource> matrices_;
    FolderKind folder_ = FolderKind::Float;
    SessionKind session_ = SessionKind::Quantised;
    std::vector<ExpertId> ids_;
    std::vector<Layer> layers_;
    std::vector<std::int32_t> class_of_layer_;
    std::vector<SlotClass> classes_;
    std::int64_t largest_slab_bytes_ = 0;
};

}  // namespace terrace
