#include "engine/experts/expert_store.h"

#include "engine/device/check.h"
#include "engine/experts/expert_store_impl.h"
#include "engine/model/checkpoint.h"

namespace terrace {

Result<std::unique_ptr<ExpertStore>> ExpertStore::create(const Checkpoint& checkpoint,
                                                         const Ops& ops,
                                                         Device& device,
                                                         const ExpertStoreOptions& options) {
    ExpertSource source;
    for (const CheckpointFile& file : checkpoint.files()) {
        source.paths.push_back(file.path);
    }
    source.matrices = checkpoint.experts();
    source.folder = checkpoint.kind();
    return create(source, ops, device, options);
}

Result<std::unique_ptr<ExpertStore>> ExpertStore::create(const ExpertSource& source,
                                                         const Ops& ops,
                                                         Device& device,
                                                         const ExpertStoreOptions& options) {
    ExpertSource of_session = source;
    of_session.session =
        options.precision == ExpertPrecision::Float ? SessionKind::Float : SessionKind::Quantised;
    Result<ExpertCatalog> catalog =
        ExpertCatalog::make(of_session, ops, options.n_slots, options.n_transient_slots);
    if (!catalog) {
        return std::move(catalog).error();
    }
    Result<std::unique_ptr<Impl>> impl =
        Impl::create(std::move(catalog).value(), of_session, ops, device, options);
    if (!impl) {
        return std::move(impl).error();
    }
    return std::unique_ptr<ExpertStore>(new ExpertStore(std::move(impl).value()));
}

ExpertStore::ExpertStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ExpertStore::~ExpertStore() = default;

ExpertVisit ExpertStore::begin_visit(int layer,
                                     std::span<const Demand> demands,
                                     std::int64_t clock_tokens) {
    impl_->begin_visit(layer, demands, clock_tokens);
    return ExpertVisit(this);
}

Result<std::int64_t> ExpertStore::prefill_slots(const Progress& progress,
                                                const std::stop_token& stop) {
    return impl_->prefill_slots(progress, stop);
}

bool ExpertStore::all_fit() const {
    return impl_->all_fit();
}

ExpertStoreStats ExpertStore::stats() const {
    return impl_->stats();
}

ExpertLease::~ExpertLease() {
    if (store_ != nullptr) {
        store_->impl_->end_lease(slot_);
    }
}

ExpertId ExpertLease::id() const {
    CHECK(store_ != nullptr);
    return store_->impl_->id(slot_);
}

const ExpertWeights& ExpertLease::weights() const {
    CHECK(store_ != nullptr);
    return store_->impl_->weights(slot_);
}

ExpertVisit::~ExpertVisit() {
    if (store_ != nullptr) {
        store_->impl_->end_visit();
    }
}

Result<ExpertBatch> ExpertVisit::next_batch(const std::stop_token& stop) {
    CHECK(store_ != nullptr);
    return store_->impl_->next_batch(store_, stop);
}

bool ExpertVisit::any_ready() const {
    CHECK(store_ != nullptr);
    return store_->impl_->any_ready();
}

}  // namespace terrace
