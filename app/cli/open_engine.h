// Opens a model for a command, with progress on the terminal.
#pragma once

#include <memory>

#include "app/cli/options.h"
#include "app/cli/stop_on_interrupt.h"
#include "app/cli/terminal.h"
#include "engine/engine.h"

namespace terrace::cli {

/// Opens the folder that MODEL means, notes its warnings, plans and loads.
[[nodiscard]] Result<std::unique_ptr<Engine>> openEngine(const ModelOptions& options,
                                                         Terminal& terminal,
                                                         StopOnInterrupt& interrupt);

}  // namespace terrace::cli
