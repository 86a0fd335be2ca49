// Everything a user may choose about how a model is opened and run. The only way an option reaches
// the engine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace terrace {

enum class DirectReads : std::uint8_t { Auto, On, Off };

/// Value type; defaults are those of the command line.
struct EngineConfig {
    std::optional<std::int64_t> ram_budget_bytes;  ///< empty: what the machine has to spare
    std::optional<std::int64_t> slots;        ///< expert slots in RAM; 0 = all; empty: by budget
    std::optional<std::int64_t> context;      ///< positions; empty: min(model, 8192)
    std::int64_t threads = 0;                 ///< 0: the cores we may use
    std::string isa = "auto";                 ///< kernel family
    std::int64_t chunk_rows = 0;              ///< prefill rows of one sweep; 0: by plan
    std::optional<std::int64_t> draft_depth;  ///< empty: auto; 0: off
    DirectReads direct = DirectReads::Auto;
    bool float_session = false;        ///< weights and cache in binary32
    std::optional<double> latent_eps;  ///< of the latent norms, float sessions only; empty: the
                                       ///< model's rms_norm_eps
    std::vector<std::string> inject;   ///< faults on purpose; empty: none
};

}  // namespace terrace
