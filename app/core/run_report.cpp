#include "app/core/run_report.h"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "engine/support/memory.h"

namespace terrace::app {

namespace {

using Json = nlohmann::ordered_json;

double rate(std::int64_t tokens, double seconds) {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
}

std::string hex16(std::uint64_t value) {
    std::array<char, 17> text{};
    std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
    return text.data();
}

Json expertsOf(const ExpertStoreStats& s) {
    return {{"lookups", s.lookups},
            {"hits_ram", s.hits_ram},
            {"hits_vram", 0},
            {"misses", s.misses},
            {"bytes_read", s.bytes_read},
            {"visible_wait_seconds", s.visible_wait_seconds}};
}

Json memoryOf(const EnginePlan& plan) {
    Json memory{{"budget", plan.budget_bytes}, {"planned_peak", plan.memory.total()}};
    const Result<ProcessMemory> now = process_memory();
    memory["measured_peak"] = now ? Json(now->total_bytes()) : Json(nullptr);
    memory["by_class"] = {{"dense", plan.memory.dense},
                          {"kv", plan.memory.kv},
                          {"experts", plan.memory.experts},
                          {"staging", plan.memory.staging},
                          {"scratch", plan.memory.scratch}};
    return memory;
}

}  // namespace

std::string runReport(const GenerateResult& answer, const RunContext& context) {
    const Engine& engine = *context.engine;
    const ExpertStoreStats experts = engine.expert_stats();
    const std::int64_t decoded = static_cast<std::int64_t>(answer.ids.size()) - 1;
    Json json;
    json["text"] = answer.text;
    json["prompt_ids"] = context.promptIds;
    json["ids"] = answer.ids;
    json["stop_reason"] = to_string(answer.stop_reason);
    json["seed"] = context.seed;
    json["arith_version"] = kArithVersion;
    json["model_identity"] = engine.folder().identity;
    json["logits_hash"] = hex16(answer.logits_hash);
    json["load_seconds"] = engine.load_seconds();
    const std::int64_t computed = answer.prompt_tokens - answer.reused_tokens;
    json["prefill"] = {{"tokens", answer.prompt_tokens},
                       {"reused", answer.reused_tokens},
                       {"seconds", answer.prefill_seconds},
                       {"tokens_per_second", rate(computed, answer.prefill_seconds)}};
    json["decode"] = {{"tokens", std::max<std::int64_t>(decoded, 0)},
                      {"seconds", answer.decode_seconds},
                      {"tokens_per_second", rate(decoded > 0 ? decoded : 0, answer.decode_seconds)},
                      {"first_token_seconds", answer.first_token_seconds}};
    json["speculation"] = {{"depth", answer.speculation.depth},
                           {"drafted", answer.speculation.drafted},
                           {"accepted", answer.speculation.accepted},
                           {"forwards", answer.speculation.forwards}};
    json["experts"] = expertsOf(experts);
    json["memory"] = memoryOf(engine.plan());
    json["faults"] = {{"injected", experts.faults_injected}, {"repaired", experts.faults_repaired}};
    json["warnings"] = context.warnings;
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string runSummary(const GenerateResult& answer, const Engine& engine) {
    const ExpertStoreStats s = engine.expert_stats();
    const std::int64_t decoded = static_cast<std::int64_t>(answer.ids.size()) - 1;
    std::array<char, 256> text{};
    std::snprintf(
        text.data(), text.size(),
        "%lld prompt tokens (%lld reused) in %.2f s; %zu tokens, %.1f tok/s; drafts %lld of "
        "%lld right; experts %.1f %% in RAM",
        static_cast<long long>(answer.prompt_tokens), static_cast<long long>(answer.reused_tokens),
        answer.prefill_seconds, answer.ids.size(),
        rate(decoded > 0 ? decoded : 0, answer.decode_seconds),
        static_cast<long long>(answer.speculation.accepted),
        static_cast<long long>(answer.speculation.drafted),
        s.lookups > 0 ? 100.0 * static_cast<double>(s.hits_ram) / static_cast<double>(s.lookups)
                      : 100.0);
    return text.data();
}

}  // namespace terrace::app
