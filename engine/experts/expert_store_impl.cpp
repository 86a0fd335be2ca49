#include "engine/experts/expert_store_impl.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <new>
#include <string>
#include <utility>

#include "engine/device/check.h"
#include "engine/support/faults.h"

namespace terrace {

ExpertStore::Impl::Impl(ExpertCatalog catalog, const Ops& ops, const ExpertStoreOptions& options)
    : catalog_(std::move(catalog)),
      ops_(ops),
      half_life_(options.heat_half_life_tokens),
      faults_(options.faults),
      slot_of_(static_cast<std::size_t>(catalog_.n_experts()), -1),
      heat_(static_cast<std::size_t>(catalog_.n_experts())) {}

ExpertStore::Impl::~Impl() = default;

Result<std::unique_ptr<ExpertStore::Impl>> ExpertStore::Impl::create(
    ExpertCatalog catalog,
    const ExpertSource& source,
    const Ops& ops,
    Device& device,
    const ExpertStoreOptions& options) {
    const bool legal = options.n_io_threads > 0 && options.n_staging_slabs > 0 &&
                       options.heat_half_life_tokens > 0.0;
    if (!legal) {
        return Error{ErrorCode::WrongUse,
                     "expected at least one io thread, one staging slab and a positive half life",
                     "expert store", ""};
    }
    std::unique_ptr<Impl> impl(new Impl(std::move(catalog), ops, options));
    if (Status made = impl->make_pools(device); !made) {
        return std::move(made).error().in("expert store");
    }
    PreadReaderOptions reader;
    reader.n_threads = options.n_io_threads;
    reader.n_slabs = options.n_staging_slabs;
    reader.slab_bytes = impl->catalog_.largest_slab_bytes();
    reader.mode = options.read_mode;
    reader.faults = options.faults;
    Result<std::unique_ptr<PreadReader>> made =
        PreadReader::create(source.paths, device, *impl, reader);
    if (!made) {
        return std::move(made).error().in("expert store");
    }
    impl->reader_ = std::move(made).value();
    return impl;
}

Status ExpertStore::Impl::make_pools(Device& device) {
    for (const SlotClass& c : catalog_.classes()) {
        const std::int64_t bytes = c.slot_bytes * c.n_slots;
        if (faults_ != nullptr && faults_->next_host_allocation_fails()) {
            return Error{ErrorCode::OutOfMemory,
                         "no memory for " + std::to_string(c.n_slots) + " expert slots, " +
                             std::to_string(bytes) + " bytes (injected fault)",
                         device.name(), "Give the model less memory for experts."};
        }
        Result<Buffer> memory = device.allocate(bytes);
        if (!memory) {
            return std::move(memory).error();
        }
        const auto first_slot = static_cast<std::int32_t>(slots_.size());
        const auto slot_class = static_cast<std::int32_t>(pools_.size());
        for (std::int32_t i = 0; i < c.n_slots; ++i) {
            Slot& slot = slots_.emplace_back();
            slot.slot_class = slot_class;
            slot.index = i;
            slot.memory = memory->data() + i * c.slot_bytes;
        }
        pools_.push_back(
            {std::move(memory).value(), SlotCache(c.n_slots, c.n_transient), first_slot});
        n_slots_ += c.n_slots;
        slot_bytes_ += bytes;
    }
    return {};
}

void ExpertStore::Impl::begin_visit(int layer,
                                    std::span<const Demand> demands,
                                    std::int64_t clock_tokens) {
    const std::lock_guard lock(mutex_);
    CHECK(!visit_.active);
    visit_.active = true;
    ++visit_.serial;
    visit_.entries.clear();
    visit_.n_delivered = 0;
    visit_.n_ready = 0;
    visit_.n_pending = 0;
    visit_.error.reset();
    for (const Demand& demand : demands) {
        Entry entry;
        entry.number = catalog_.number_of({layer, demand.expert});
        this->demand(entry, demand.n_rows, clock_tokens);
        visit_.entries.push_back(entry);
    }
    const auto by_number = [](const Entry& a, const Entry& b) { return a.number < b.number; };
    std::sort(visit_.entries.begin(), visit_.entries.end(), by_number);
    const auto twice =
        std::adjacent_find(visit_.entries.begin(), visit_.entries.end(),
                           [](const Entry& a, const Entry& b) { return a.number == b.number; });
    CHECK(twice == visit_.entries.end());
    start_pending();
}

void ExpertStore::Impl::demand(Entry& entry, std::int32_t n_rows, std::int64_t clock) {
    ExpertHeat& heat = heat_[static_cast<std::size_t>(entry.number)];
    heat = heat_after_use(heat, clock, n_rows, half_life_);
    ++stats_.lookups;
    entry.slot = slot_of_[static_cast<std::size_t>(entry.number)];
    if (entry.slot < 0) {
        entry.state = EntryState::Pending;
        ++visit_.n_pending;
        ++stats_.misses;
        return;
    }
    touch(entry.slot);
    const Slot& slot = slots_[static_cast<std::size_t>(entry.slot)];
    SlotCache& cache = cache_of(slot);
    if (cache.state(slot.index) == SlotState::Resident) {
        cache.lease(slot.index);
        entry.state = EntryState::Ready;
        ++visit_.n_ready;
        ++stats_.hits_ram;
        return;
    }
    cache.raise_priority(slot.index, ReadPriority::Demand);
    reader_->raise_priority(static_cast<std::uint64_t>(entry.slot), ReadPriority::Demand);
    entry.state = EntryState::Waiting;
    ++stats_.misses;
}

/// Tells the slot how hot its expert is.
void ExpertStore::Impl::touch(std::int32_t slot_number) {
    // Order decides only who has to go; where everybody stays it is not worth a logarithm.
    if (all_fit()) {
        return;
    }
    const Slot& slot = slots_[static_cast<std::size_t>(slot_number)];
    const ExpertHeat& heat = heat_[static_cast<std::size_t>(slot.number)];
    cache_of(slot).touch(slot.index, heat_order(heat, half_life_), heat.t_last, visit_.serial);
}

/// Takes a slot and asks the reader; -1: no slot can be had now.
std::int32_t ExpertStore::Impl::start_read(std::int64_t number, ReadPriority priority) {
    Pool& pool = pools_[static_cast<std::size_t>(catalog_.class_of(number))];
    const std::optional<SlotCache::Taken> taken = pool.cache.take(catalog_.id(number), priority);
    if (!taken) {
        return -1;
    }
    if (taken->evicted) {
        slot_of_[static_cast<std::size_t>(catalog_.number_of(*taken->evicted))] = -1;
        ++stats_.evictions;
    }
    const std::int32_t slot_number = pool.first_slot + taken->slot;
    Slot& slot = slots_[static_cast<std::size_t>(slot_number)];
    slot.number = number;
    slot.plan = catalog_.read_plan(number);
    slot_of_[static_cast<std::size_t>(number)] = slot_number;
    reader_->submit({static_cast<std::uint64_t>(slot_number), slot.plan.used_extents(), priority});
    return slot_number;
}

void ExpertStore::Impl::start_pending() {
    for (Entry& entry : visit_.entries) {
        if (visit_.n_pending == 0) {
            return;
        }
        if (entry.state != EntryState::Pending) {
            continue;
        }
        entry.slot = start_read(entry.number, ReadPriority::Demand);
        if (entry.slot < 0) {
            return;
        }
        entry.state = EntryState::Waiting;
        --visit_.n_pending;
        touch(entry.slot);
    }
}

Result<ExpertBatch> ExpertStore::Impl::next_batch(ExpertStore* store, const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    CHECK(visit_.active);
    while (true) {
        if (stop.stop_requested()) {
            ExpertBatch stopped;
            stopped.state = ExpertBatch::State::Stopped;
            return stopped;
        }
        if (visit_.error) {
            return *visit_.error;
        }
        start_pending();
        if (visit_.n_ready > 0) {
            return take_ready(store);
        }
        if (visit_.n_delivered == visit_.entries.size()) {
            return ExpertBatch{};
        }
        if (!something_is_read()) {
            return Error{ErrorCode::Internal,
                         "every expert slot is leased while another expert is asked for",
                         "expert store", "Please report this."};
        }
        const auto begin = std::chrono::steady_clock::now();
        const std::uint64_t seen = n_completed_;
        arrived_.wait(lock, stop, [this, seen] { return n_completed_ != seen; });
        const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
        stats_.visible_wait_seconds += time.count();
    }
}

bool ExpertStore::Impl::any_ready() {
    const std::lock_guard lock(mutex_);
    return visit_.n_ready > 0 || visit_.error || visit_.n_delivered == visit_.entries.size();
}

/// In the memory that the visit needs slots of.
bool ExpertStore::Impl::something_is_read() const {
    const std::int64_t number = visit_.entries.front().number;
    const Pool& pool = pools_[static_cast<std::size_t>(catalog_.class_of(number))];
    return pool.cache.n_in(SlotState::Reading) > 0;
}

ExpertBatch ExpertStore::Impl::take_ready(ExpertStore* store) {
    ExpertBatch batch;
    batch.state = ExpertBatch::State::Experts;
    batch.leases.reserve(visit_.n_ready);
    for (Entry& entry : visit_.entries) {
        if (entry.state == EntryState::Ready) {
            entry.state = EntryState::Delivered;
            batch.leases.push_back(ExpertLease(store, entry.slot));
        }
    }
    visit_.n_delivered += visit_.n_ready;
    visit_.n_ready = 0;
    return batch;
}

void ExpertStore::Impl::end_visit() {
    const std::lock_guard lock(mutex_);
    CHECK(visit_.active);
    visit_.active = false;
    if (visit_.n_delivered == visit_.entries.size()) {
        return;
    }
    for (const Entry& entry : visit_.entries) {
        if (entry.state == EntryState::Ready) {
            const Slot& slot = slots_[static_cast<std::size_t>(entry.slot)];
            cache_of(slot).end_lease(slot.index);
        } else if (entry.state == EntryState::Waiting) {
            cancel_read(entry.slot);
        }
    }
}

void ExpertStore::Impl::end_lease(std::int32_t slot_number) {
    const std::lock_guard lock(mutex_);
    const Slot& slot = slots_[static_cast<std::size_t>(slot_number)];
    cache_of(slot).end_lease(slot.index);
    // The next read begins now and not when the caller asks for its batch.
    if (visit_.active && visit_.n_pending > 0 && !visit_.error) {
        start_pending();
    }
}

/// The slot is free at once when its read has not begun, else when the read has ended.
void ExpertStore::Impl::cancel_read(std::int32_t slot_number) {
    const auto tag = static_cast<std::uint64_t>(slot_number);
    if (reader_->cancel(tag) == ExpertReader::CancelOutcome::Dropped) {
        free_after_read(slot_number);
    }
}

void ExpertStore::Impl::free_after_read(std::int32_t slot_number) {
    Slot& slot = slots_[static_cast<std::size_t>(slot_number)];
    cache_of(slot).read_dropped(slot.index);
    slot_of_[static_cast<std::size_t>(slot.number)] = -1;
    slot.number = -1;
}

ExpertStore::Impl::Entry* ExpertStore::Impl::entry_waiting_for(std::int32_t slot) {
    if (!visit_.active) {
        return nullptr;
    }
    const auto waits = [slot](const Entry& entry) {
        return entry.state == EntryState::Waiting && entry.slot == slot;
    };
    const auto found = std::find_if(visit_.entries.begin(), visit_.entries.end(), waits);
    return found == visit_.entries.end() ? nullptr : &*found;
}

void ExpertStore::Impl::read_done(const ReadCompletion& completion) {
    const auto slot_number = static_cast<std::int32_t>(completion.tag);
    // While a slot is read nobody else touches its plan, its number and its memory.
    const Slot& slot = slots_[static_cast<std::size_t>(slot_number)];
    ExpertWeights weights;
    std::optional<Error> error = completion.error;
    if (completion.outcome == ReadCompletion::Outcome::Done) {
        error = unpack(slot, completion, weights);
    }
    {
        const std::lock_guard lock(mutex_);
        stats_.bytes_read += completion.bytes;
        stats_.read_seconds += completion.seconds;
        ++n_completed_;
        Entry* entry = entry_waiting_for(slot_number);
        if (error || completion.outcome == ReadCompletion::Outcome::Cancelled) {
            drop_read(slot_number, entry, std::move(error));
        } else {
            become_resident(slot_number, entry, weights);
        }
    }
    arrived_.notify_all();
}

void ExpertStore::Impl::become_resident(std::int32_t slot_number,
                                        Entry* entry,
                                        const ExpertWeights& weights) {
    Slot& slot = slots_[static_cast<std::size_t>(slot_number)];
    slot.weights = weights;
    SlotCache& cache = cache_of(slot);
    cache.read_done(slot.index);
    if (entry != nullptr) {
        cache.lease(slot.index);
        entry->state = EntryState::Ready;
        ++visit_.n_ready;
    }
}

/// A read failed or was cancelled. An entry that waits for a cancelled one (cancelled by an
/// earlier visit) asks again.
void ExpertStore::Impl::drop_read(std::int32_t slot_number,
                                  Entry* entry,
                                  std::optional<Error> error) {
    free_after_read(slot_number);
    if (entry != nullptr) {
        entry->slot = -1;
        entry->state = EntryState::Pending;
        ++visit_.n_pending;
        if (error && !visit_.error) {
            visit_.error = std::move(error);
        }
    } else if (error && prefilling_ && !prefill_error_) {
        prefill_error_ = std::move(error);
    }
}

std::optional<Error> ExpertStore::Impl::unpack(const Slot& slot,
                                               const ReadCompletion& completion,
                                               ExpertWeights& weights) const {
    const std::array<SlotMatrix, 3> layout = catalog_.layout(slot.number, ops_);
    const std::array<WeightMatrix*, 3> matrices = {&weights.gate, &weights.up, &weights.down};
    try {
        for (std::size_t i = 0; i < matrices.size(); ++i) {
            Status done = unpack_matrix(slot, i, layout[i], completion, *matrices[i]);
            if (!done) {
                return std::move(done).error();
            }
        }
    } catch (const std::bad_alloc&) {
        return Error{ErrorCode::OutOfMemory, "no memory to convert an expert's weights",
                     catalog_.sources(slot.number)[0].name,
                     "Give the model less memory for experts."};
    }
    return std::nullopt;
}

Status ExpertStore::Impl::unpack_matrix(const Slot& slot,
                                        std::size_t which,
                                        const SlotMatrix& place,
                                        const ReadCompletion& completion,
                                        WeightMatrix& matrix) const {
    const TensorSource& source = catalog_.sources(slot.number)[which];
    const auto bytes_of = [&](const ReadPart& part) -> std::span<const std::byte> {
        if (part.extent < 0) {
            return {};
        }
        return completion.extents[static_cast<std::size_t>(part.extent)].subspan(
            static_cast<std::size_t>(part.offset), static_cast<std::size_t>(part.bytes));
    };
    const Result<RawWeight> raw =
        materialise(source, bytes_of(slot.plan.parts[2 * which]),
                    bytes_of(slot.plan.parts[2 * which + 1]), place.format);
    if (!raw) {
        return raw.error();
    }
    std::byte* out = slot.memory + place.offset;
    ops_.pack(raw->matrix, WeightUse::RowDot, out);
    matrix = {place.format, WeightUse::RowDot, source.rows, source.cols, out};
    return {};
}

Result<std::int64_t> ExpertStore::Impl::prefill_slots(const Progress& progress,
                                                      const std::stop_token& stop) {
    if (!all_fit()) {
        return Error{ErrorCode::WrongUse,
                     "a slot for each of " + std::to_string(catalog_.n_experts()) +
                         " experts was expected, there are " + std::to_string(n_slots_),
                     "expert store", "Let the experts be read as they are asked for."};
    }
    std::unique_lock lock(mutex_);
    CHECK(!visit_.active);
    prefilling_ = true;
    prefill_error_.reset();
    request_all();
    while (n_in(SlotState::Resident) < catalog_.n_experts() && !prefill_error_ &&
           !stop.stop_requested()) {
        // Reads that an earlier visit cancelled may have ended without a result meanwhile.
        if (n_in(SlotState::Reading) == 0) {
            request_all();
        }
        const std::uint64_t seen = n_completed_;
        const std::int64_t n_now = n_in(SlotState::Resident);
        lock.unlock();
        if (progress) {
            progress(n_now, catalog_.n_experts());
        }
        lock.lock();
        arrived_.wait(lock, stop, [this, seen] { return n_completed_ != seen; });
    }
    cancel_all();
    prefilling_ = false;
    if (prefill_error_) {
        return *std::exchange(prefill_error_, std::nullopt);
    }
    const std::int64_t n_now = n_in(SlotState::Resident);
    lock.unlock();
    if (progress) {
        progress(n_now, catalog_.n_experts());
    }
    return n_now;
}

void ExpertStore::Impl::request_all() {
    for (std::int64_t number = 0; number < catalog_.n_experts(); ++number) {
        if (slot_of_[static_cast<std::size_t>(number)] < 0) {
            const std::int32_t slot = start_read(number, ReadPriority::Background);
            CHECK(slot >= 0);
        }
    }
}

void ExpertStore::Impl::cancel_all() {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        if (cache_of(slots_[i]).state(slots_[i].index) == SlotState::Reading) {
            cancel_read(static_cast<std::int32_t>(i));
        }
    }
}

std::int64_t ExpertStore::Impl::n_in(SlotState state) const {
    std::int64_t n = 0;
    for (const Pool& pool : pools_) {
        n += pool.cache.n_in(state);
    }
    return n;
}

ExpertStoreStats ExpertStore::Impl::stats() const {
    const std::lock_guard lock(mutex_);
    ExpertStoreStats stats = stats_;
    stats.n_experts = catalog_.n_experts();
    stats.n_slots = n_slots_;
    stats.n_resident = n_in(SlotState::Resident);
    stats.slot_bytes = slot_bytes_;
    stats.staging_bytes = reader_->staging_bytes();
    stats.direct_reads = reader_->direct();
    if (faults_ != nullptr) {
        const FaultInjector::Counts counts = faults_->counts();
        stats.faults_injected = counts.injected;
        stats.faults_repaired = counts.repaired;
    }
    return stats;
}

}  // namespace terrace
