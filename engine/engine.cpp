#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "engine/cpu/cpu_device.h"
#include "engine/cpu/cpu_ops.h"
#include "engine/cpu/thread_pool.h"
#include "engine/decoder/activations.h"
#include "engine/experts/expert_catalog.h"
#include "engine/support/faults.h"
#include "engine/support/machine.h"
#include "engine/support/memory.h"

namespace terrace {

namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kDefaultContext = 8192;
constexpr std::int64_t kDefaultChunk = 512;
constexpr std::int64_t kSmallestChunk = 16;
constexpr std::int64_t kFewestSlots = 2;
constexpr int kIoThreads = 4;

std::string mebibytes(std::int64_t bytes) {
    return std::to_string((bytes + kMiB - 1) / kMiB) + " MiB";
}

SessionKind session_kind(const EngineConfig& config) {
    return config.float_session ? SessionKind::Float : SessionKind::Quantised;
}

ExpertSource expert_source(const Checkpoint& checkpoint, SessionKind kind) {
    ExpertSource source;
    for (const CheckpointFile& file : checkpoint.files()) {
        source.paths.push_back(file.path);
    }
    source.matrices = checkpoint.experts();
    source.folder = checkpoint.kind();
    source.session = kind;
    return source;
}

/// The config with the features that the files really have.
ModelConfig effective_config(const ModelFolder& folder) {
    ModelConfig config = folder.config;
    if (!folder.checkpoint->has_indexer()) {
        config.index_topk = 0;
        config.index_n_heads = 0;
        config.index_head_dim = 0;
    }
    return config;
}

/// Plans one engine: every number that is decided before memory is taken.
class Planner {
public:
    Planner(const ModelFolder& folder, const EngineConfig& config)
        : folder_(folder),
          config_(config),
          model_(effective_config(folder)),
          kind_(session_kind(config)) {}

    Result<EnginePlan> run() {
        if (Status legal = check_options(); !legal) {
            return std::move(legal).error();
        }
        Result<cpu::Isa> isa = cpu::choose_isa(config_.isa);
        if (!isa) {
            return std::move(isa).error();
        }
        plan_.isa = *isa;
        plan_.n_threads = config_.threads > 0 ? config_.threads : usable_cores();
        plan_.context =
            config_.context.value_or(std::min(model_.max_position_embeddings, kDefaultContext));
        plan_.draft_depth = !has_mtp() ? 0 : config_.draft_depth.value_or(3);
        const cpu::CpuOps ops(plan_.isa, nullptr, nullptr);
        plan_.memory.dense = DecoderWeights::bytes_needed(folder_, kind_, ops);
        if (Status budget = find_budget(); !budget) {
            return std::move(budget).error();
        }
        if (Status fits = divide(ops); !fits) {
            return std::move(fits).error();
        }
        return std::move(plan_);
    }

private:
    [[nodiscard]] bool has_mtp() const { return folder_.checkpoint->has_mtp(); }

    [[nodiscard]] Status check_options() const {
        const auto wrong = [](std::string message) {
            return Error{ErrorCode::WrongUse, std::move(message), "", ""};
        };
        if (config_.draft_depth.value_or(0) > 0 && !has_mtp()) {
            return wrong("a draft depth was asked for and this model has no draft (MTP) layer");
        }
        if (config_.latent_eps && !config_.float_session) {
            return wrong(
                "a latent eps of its own (--latent-eps) is for float sessions only (--float)");
        }
        if (config_.context && *config_.context > model_.max_position_embeddings) {
            return wrong("a context of " + std::to_string(*config_.context) +
                         " positions was asked for and the model knows " +
                         std::to_string(model_.max_position_embeddings));
        }
        if (config_.context && *config_.context < 1) {
            return wrong("a context of " + std::to_string(*config_.context) +
                         " positions was asked for; expected at least 1");
        }
        return {};
    }

    Status find_budget() {
        Result<AvailableMemory> available = available_memory();
        if (!available) {
            return std::move(available).error();
        }
        if (config_.ram_budget_bytes) {
            plan_.budget_bytes = *config_.ram_budget_bytes;
            if (plan_.budget_bytes > available->bytes) {
                return Error{ErrorCode::TooLarge,
                             "a RAM budget of " + mebibytes(plan_.budget_bytes) +
                                 " was asked for and " + mebibytes(available->bytes) +
                                 " can be had now",
                             "", "Choose --ram auto or at most " + mebibytes(available->bytes)};
            }
            return {};
        }
        const std::int64_t reserve = std::max(512 * kMiB, available->bytes / 10);
        plan_.budget_bytes = std::max<std::int64_t>(available->bytes - reserve, 0);
        return {};
    }

    /// Scratch for chunk_rows, at most an eighth of the budget unless the user chose the chunk.
    void choose_chunk() {
        const std::int64_t wanted = config_.chunk_rows > 0 ? config_.chunk_rows : kDefaultChunk;
        std::int64_t rows = std::clamp<std::int64_t>(
            wanted, plan_.draft_depth + 1, std::max(plan_.context, plan_.draft_depth + 1));
        if (config_.chunk_rows == 0) {
            while (rows / 2 >= kSmallestChunk && rows / 2 > plan_.draft_depth &&
                   Activations::bytes(model_, kind_, rows) > plan_.budget_bytes / 8) {
                rows /= 2;
            }
        }
        plan_.chunk_rows = rows;
        plan_.memory.scratch = Activations::bytes(model_, kind_, rows);
    }

    /// Bytes of all slots and staging slabs when there are `n_slots`; 0 = one for every expert.
    Result<std::int64_t> expert_bytes(const Ops& ops, std::int64_t n_slots) {
        const ExpertSource source = expert_source(*folder_.checkpoint, kind_);
        const std::int64_t transient = model_.num_experts_per_tok * (plan_.draft_depth + 1);
        Result<ExpertCatalog> catalog = ExpertCatalog::make(source, ops, n_slots, transient);
        if (!catalog) {
            return std::move(catalog).error();
        }
        plan_.n_experts = catalog->n_experts();
        plan_.memory.staging = kIoThreads * catalog->largest_slab_bytes();
        std::int64_t bytes = 0;
        for (const SlotClass& c : catalog->classes()) {
            bytes += c.slot_bytes * c.n_slots;
        }
        return bytes;
    }

    Status divide(const Ops& ops) {
        choose_chunk();
        DecoderOptions options;
        options.kind = kind_;
        options.context = plan_.context;
        options.use_mtp = plan_.draft_depth > 0;
        plan_.memory.kv = KvCache::bytes(Decoder::cache_shape(model_, options));
        if (config_.slots && *config_.slots != 0 && *config_.slots < kFewestSlots) {
            return too_few_slots();
        }
        Result<std::int64_t> all = expert_bytes(ops, 0);
        if (!all) {
            return std::move(all).error();
        }
        const std::int64_t left = plan_.budget_bytes - plan_.memory.total();
        plan_.memory.experts = *all;
        plan_.n_slots = plan_.n_experts;
        if (config_.slots && *config_.slots != 0) {
            plan_.n_slots = std::min(*config_.slots, plan_.n_experts);
        } else if (!config_.slots && *all > left) {
            const double share =
                std::max(0.0, static_cast<double>(left) / static_cast<double>(*all));
            plan_.n_slots =
                std::max(kFewestSlots,
                         static_cast<std::int64_t>(static_cast<double>(plan_.n_experts) * share));
        }
        // Slots differ in size by layer, so a share of the experts is not the same share of bytes.
        for (;;) {
            Result<std::int64_t> bytes = expert_bytes(ops, plan_.n_slots);
            if (!bytes) {
                return std::move(bytes).error();
            }
            plan_.memory.experts = *bytes;
            if (*bytes <= left) {
                break;
            }
            if (config_.slots || plan_.n_slots == kFewestSlots) {
                return does_not_fit();
            }
            plan_.n_slots = std::max(kFewestSlots, plan_.n_slots - 1 - plan_.n_slots / 64);
        }
        if (!config_.draft_depth && plan_.draft_depth > 1 && plan_.n_slots < plan_.n_experts) {
            // Every draft row may ask for experts of its own, and here they come from the disk.
            plan_.draft_depth = 1;
            plan_.notes.push_back("experts are read from disk: one draft token a step");
        }
        return {};
    }

    [[nodiscard]] Status too_few_slots() const {
        return Error{ErrorCode::WrongUse,
                     std::to_string(config_.slots.value_or(0)) +
                         " expert slots were asked for; expected at least 2",
                     "", "Choose --slots 2 or more, or --slots all"};
    }

    [[nodiscard]] Status does_not_fit() const {
        const MemoryClasses& m = plan_.memory;
        const std::int64_t wanted = m.total();
        return Error{ErrorCode::TooLarge,
                     "the model needs " + mebibytes(wanted) + " (dense weights " +
                         mebibytes(m.dense) + ", cache for " + std::to_string(plan_.context) +
                         " positions " + mebibytes(m.kv) + ", scratch " + mebibytes(m.scratch) +
                         ", staging " + mebibytes(m.staging) + ", experts " + mebibytes(m.experts) +
                         ") and the budget is " + mebibytes(plan_.budget_bytes),
                     "",
                     m.kv > wanted - plan_.budget_bytes
                         ? "A shorter context would fit (--context)"
                         : "Raise the RAM budget to at least " + mebibytes(wanted)};
    }

    const ModelFolder& folder_;
    const EngineConfig& config_;
    ModelConfig model_;
    SessionKind kind_;
    EnginePlan plan_;
};

}  // namespace

/// Members in the order in which they depend on each other; destroyed in reverse.
struct Engine::Parts {
    ModelFolder folder;
    ModelConfig config;
    EnginePlan plan;
    std::unique_ptr<FaultInjector> faults;
    cpu::CpuDevice device;
    Stream stream;
    std::unique_ptr<cpu::ThreadPool> pool;
    std::unique_ptr<cpu::CpuOps> ops;
    DecoderWeights weights;
    std::unique_ptr<ExpertStore> store;
    std::unique_ptr<Decoder> decoder;
    std::unique_ptr<Session> session;
    double load_seconds = 0.0;
};

Engine::Engine(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Engine::~Engine() = default;

Result<EnginePlan> Engine::plan(const ModelFolder& folder, const EngineConfig& config) {
    return Planner(folder, config).run();
}

Result<std::unique_ptr<Engine>> Engine::open(ModelFolder folder,
                                             const EngineConfig& config,
                                             LoadObserver* observer,
                                             std::stop_token stop) {
    const auto start = std::chrono::steady_clock::now();
    Result<EnginePlan> plan = Engine::plan(folder, config);
    if (!plan) {
        return std::move(plan).error();
    }
    auto parts = std::make_unique<Parts>();
    parts->config = effective_config(folder);
    parts->folder = std::move(folder);
    parts->plan = std::move(plan).value();
    if (!config.inject.empty()) {
        Result<std::unique_ptr<FaultInjector>> faults = FaultInjector::parse(config.inject);
        if (!faults) {
            return std::move(faults).error();
        }
        parts->faults = std::move(faults).value();
    }
    const EnginePlan& p = parts->plan;
    parts->pool = std::make_unique<cpu::ThreadPool>(static_cast<int>(p.n_threads));
    parts->ops = std::make_unique<cpu::CpuOps>(p.isa, parts->pool.get(), &parts->stream);

    const SessionKind kind = session_kind(config);
    LoadProgress report;
    if (observer != nullptr) {
        report = [observer](std::int64_t done, std::int64_t total) {
            observer->progress("dense weights", done, total);
        };
    }
    Result<DecoderWeights> weights =
        DecoderWeights::load(parts->folder, kind, *parts->ops, parts->device, report, stop);
    if (!weights) {
        return std::move(weights).error();
    }
    parts->weights = std::move(weights).value();

    ExpertStoreOptions store_options;
    store_options.n_slots = p.n_slots;
    store_options.n_transient_slots = parts->config.num_experts_per_tok * (p.draft_depth + 1);
    store_options.n_io_threads = kIoThreads;
    store_options.read_mode = config.direct == DirectReads::On    ? ReadMode::Direct
                              : config.direct == DirectReads::Off ? ReadMode::Buffered
                                                                  : ReadMode::Auto;
    store_options.precision =
        config.float_session ? ExpertPrecision::Float : ExpertPrecision::Quantised;
    store_options.faults = parts->faults.get();
    Result<std::unique_ptr<ExpertStore>> store =
        ExpertStore::create(*parts->folder.checkpoint, *parts->ops, parts->device, store_options);
    if (!store) {
        return std::move(store).error();
    }
    parts->store = std::move(store).value();

    DecoderOptions options;
    options.kind = kind;
    options.context = p.context;
    options.max_rows = p.chunk_rows;
    options.latent_eps = config.latent_eps;
    options.use_mtp = p.draft_depth > 0;
    Result<std::unique_ptr<Decoder>> decoder =
        Decoder::create(parts->config, options, parts->weights, *parts->store, *parts->ops,
                        parts->stream, parts->device);
    if (!decoder) {
        return std::move(decoder).error();
    }
    parts->decoder = std::move(decoder).value();
    if (parts->store->all_fit()) {
        const auto progress = [observer](std::int64_t done, std::int64_t total) {
            if (observer != nullptr) {
                observer->progress("experts", done, total);
            }
        };
        Result<std::int64_t> filled = parts->store->prefill_slots(progress, stop);
        if (!filled) {
            return std::move(filled).error();
        }
        if (stop.stop_requested()) {
            return Error{ErrorCode::Cancelled, "stopped", "loading experts", ""};
        }
    }
    parts->session = std::make_unique<Session>(parts->decoder.get(), parts->folder.tokenizer.get(),
                                               parts->folder.stop_ids,
                                               SessionOptions{p.chunk_rows, p.draft_depth});
    parts->load_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::unique_ptr<Engine>(new Engine(std::move(parts)));
}

Session& Engine::session() {
    return *parts_->session;
}

Decoder& Engine::decoder() {
    return *parts_->decoder;
}

const ModelFolder& Engine::folder() const {
    return parts_->folder;
}

const EnginePlan& Engine::plan() const {
    return parts_->plan;
}

ExpertStoreStats Engine::expert_stats() const {
    return parts_->store->stats();
}

double Engine::load_seconds() const {
    return parts_->load_seconds;
}

}  // namespace terrace
