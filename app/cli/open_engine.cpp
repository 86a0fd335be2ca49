#include "app/cli/open_engine.h"

#include "app/core/model_location.h"
#include "app/core/size_text.h"

namespace terrace::cli {

namespace {

class LoadProgressLine final : public LoadObserver {
public:
    explicit LoadProgressLine(Terminal& terminal) : terminal_(terminal) {}

    void progress(const char* stage, std::int64_t done, std::int64_t total) override {
        terminal_.progress(stage, done, total, "units");
    }

private:
    Terminal& terminal_;
};

void describePlan(const EnginePlan& plan, const Terminal& terminal) {
    const MemoryClasses& m = plan.memory;
    terminal.detail("plan: " + app::formatSize(m.total()) + " of " +
                    app::formatSize(plan.budget_bytes) + " (dense " + app::formatSize(m.dense) +
                    ", cache " + app::formatSize(m.kv) + ", experts " + app::formatSize(m.experts) +
                    " in " + std::to_string(plan.n_slots) + " of " +
                    std::to_string(plan.n_experts) + " slots, staging " +
                    app::formatSize(m.staging) + ", scratch " + app::formatSize(m.scratch) + ")");
    terminal.detail("context " + std::to_string(plan.context) + ", chunk " +
                    std::to_string(plan.chunk_rows) + ", draft depth " +
                    std::to_string(plan.draft_depth) + ", threads " +
                    std::to_string(plan.n_threads) + ", kernels " + cpu::to_string(plan.isa));
    for (const std::string& note : plan.notes) {
        terminal.detail(note);
    }
}

}  // namespace

Result<std::unique_ptr<Engine>> openEngine(const ModelOptions& options,
                                           Terminal& terminal,
                                           StopOnInterrupt& interrupt) {
    Result<std::filesystem::path> path = app::modelPath(options.model);
    if (!path) {
        return std::move(path).error();
    }
    Result<ModelFolder> folder = open_model_folder(*path);
    if (!folder) {
        return std::move(folder).error();
    }
    for (const std::string& warning : folder->facts.warnings) {
        terminal.warn(warning);
    }
    LoadProgressLine progress(terminal);
    Result<std::unique_ptr<Engine>> engine =
        Engine::open(std::move(folder).value(), options.engine, &progress, interrupt.newRequest());
    terminal.endProgress();
    if (engine) {
        describePlan((*engine)->plan(), terminal);
    }
    return engine;
}

}  // namespace terrace::cli
