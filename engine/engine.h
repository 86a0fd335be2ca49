// One open model: weights, experts, cache and session on this machine. The composition root of the
// engine, shared by the command line and the window.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/cpu/cpu_context.h"
#include "engine/decoder/decoder.h"
#include "engine/engine_config.h"
#include "engine/experts/expert_store.h"
#include "engine/generate/session.h"
#include "engine/model/model_folder.h"

namespace terrace {

/// kArithVersion is part of every identity: another version is another function.
inline constexpr int kArithVersion = 1;

/// Bytes by what they are for. Filled before anything is allocated.
struct MemoryClasses {
    std::int64_t dense = 0;
    std::int64_t kv = 0;
    std::int64_t experts = 0;
    std::int64_t staging = 0;
    std::int64_t scratch = 0;

    [[nodiscard]] std::int64_t total() const { return dense + kv + experts + staging + scratch; }
};

/// What a model will use, and what was decided for it.
struct EnginePlan {
    MemoryClasses memory;
    std::int64_t budget_bytes = 0;
    std::int64_t context = 0;
    std::int64_t chunk_rows = 0;
    std::int64_t n_slots = 0;
    std::int64_t n_experts = 0;
    std::int64_t n_threads = 0;
    std::int64_t draft_depth = 0;
    cpu::Isa isa = cpu::Isa::Scalar;
    std::vector<std::string> notes;  ///< decisions that a user should see
};

/// Stages of opening a model, for a progress bar.
class LoadObserver {
public:
    virtual ~LoadObserver() = default;
    virtual void progress(const char* stage, std::int64_t done, std::int64_t total) = 0;
};

/// Owner: the program. Thread: open() and session() on the engine thread; expert_stats() on any.
class Engine {
public:
    /// Plans without allocating. Errors: TooLarge when the smallest legal plan does not fit, with
    /// the parts and one change that would work; WrongUse for options that do not go together.
    [[nodiscard]] static Result<EnginePlan> plan(const ModelFolder& folder,
                                                 const EngineConfig& config);

    /// Plans, loads the dense weights and, when all experts fit, the experts.
    [[nodiscard]] static Result<std::unique_ptr<Engine>> open(ModelFolder folder,
                                                              const EngineConfig& config,
                                                              LoadObserver* observer,
                                                              std::stop_token stop);

    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    [[nodiscard]] Session& session();
    [[nodiscard]] Decoder& decoder();
    [[nodiscard]] const ModelFolder& folder() const;
    [[nodiscard]] const EnginePlan& plan() const;
    [[nodiscard]] ExpertStoreStats expert_stats() const;
    [[nodiscard]] double load_seconds() const;

private:
    struct Parts;
    explicit Engine(std::unique_ptr<Parts> parts);
    std::unique_ptr<Parts> parts_;
};

}  // namespace terrace
