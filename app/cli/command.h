// One command of terrace-cli. To add one: a new file beside the others, and a line in commands().
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <vector>

#include "app/cli/options.h"
#include "app/cli/stop_on_interrupt.h"
#include "app/cli/terminal.h"

namespace terrace::cli {

/// Owner: main. One thread. declare() is called once, run() at most once after parsing.
class Command {
public:
    virtual ~Command() = default;

    [[nodiscard]] virtual const char* name() const = 0;
    [[nodiscard]] virtual const char* summary() const = 0;
    /// Two examples, a line each.
    [[nodiscard]] virtual const char* examples() const = 0;
    virtual void declare(CLI::App& command) = 0;
    [[nodiscard]] virtual Exit run(Terminal& terminal, StopOnInterrupt& interrupt) = 0;

    OutputOptions output;
};

[[nodiscard]] std::unique_ptr<Command> makeRunCommand();
[[nodiscard]] std::unique_ptr<Command> makeChatCommand();
[[nodiscard]] std::unique_ptr<Command> makeTokenizeCommand();
[[nodiscard]] std::unique_ptr<Command> makeRenderCommand();
[[nodiscard]] std::unique_ptr<Command> makeInspectCommand();
[[nodiscard]] std::unique_ptr<Command> makeMakeModelCommand();
[[nodiscard]] std::unique_ptr<Command> makeConvertCommand();

/// All of them, in the order of --help.
[[nodiscard]] std::vector<std::unique_ptr<Command>> allCommands();

}  // namespace terrace::cli
