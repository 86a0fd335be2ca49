// terrace-cli: everything the window can do with the engine, without a window.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "app/cli/command.h"
#include "app/cli/nearest_name.h"
#include "engine/engine.h"
#include "engine/version.h"

namespace terrace::cli {

namespace {

std::vector<std::string> commandNames(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::App* sub : app.get_subcommands({})) {
        names.push_back(sub->get_name());
    }
    return names;
}

std::vector<std::string> optionNames(const CLI::App& command) {
    std::vector<std::string> names;
    for (const CLI::Option* option : command.get_options()) {
        if (option->nonpositional()) {
            names.push_back(option->get_name(false, false));
        }
    }
    return names;
}

/// CLI11 says what it did not understand; this adds the name that was probably meant.
Error wrongUse(const CLI::ParseError& error,
               const CLI::App& app,
               const std::vector<std::string>& args) {
    std::string hint;
    const CLI::App* used = nullptr;
    for (const CLI::App* sub : app.get_subcommands()) {
        used = sub;
    }
    if (used == nullptr && !args.empty() && args.front().rfind('-', 0) != 0) {
        const std::string nearest = nearestName(args.front(), commandNames(app));
        return Error{
            ErrorCode::WrongUse, "there is no command \"" + args.front() + "\"", "",
            nearest.empty() ? "See terrace-cli --help" : "Did you mean \"" + nearest + "\"?"};
    }
    if (used != nullptr) {
        const std::vector<std::string> known = optionNames(*used);
        for (const std::string& arg : args) {
            const std::string option = arg.substr(0, arg.find('='));
            if (option.rfind("--", 0) == 0 &&
                std::find(known.begin(), known.end(), option) == known.end()) {
                const std::string nearest = nearestName(option, known);
                hint = nearest.empty() ? "" : "Did you mean " + nearest + "?";
                return Error{ErrorCode::WrongUse, "there is no option " + option, used->get_name(),
                             hint};
            }
        }
    }
    return Error{ErrorCode::WrongUse, error.what(), used != nullptr ? used->get_name() : "",
                 "See --help"};
}

/// A value that begins with a dash, or an option given twice, must do what cli.md says.
void setManners(CLI::App& command) {
    for (CLI::Option* option : command.get_options()) {
        if (option->get_items_expected_max() == 1) {
            option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
        }
    }
}

int run(int argc, char** argv) {
    StopOnInterrupt interrupt;
    CLI::App app("Terrace runs mixture-of-experts language models bigger than memory.",
                 "terrace-cli");
    app.set_version_flag("--version", std::string("terrace-cli ") + kVersion +
                                          ", arithmetic version " + std::to_string(kArithVersion));
    app.require_subcommand(1);
    std::vector<std::unique_ptr<Command>> commands = allCommands();
    for (const std::unique_ptr<Command>& command : commands) {
        CLI::App* sub = app.add_subcommand(command->name(), command->summary());
        command->declare(*sub);
        command->output.add(*sub);
        sub->footer(std::string("Examples:\n") + command->examples());
        setManners(*sub);
    }
    const std::vector<std::string> args(argv + 1, argv + argc);
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& done) {
        return app.exit(done);
    } catch (const CLI::ParseError& error) {
        const bool json = std::find(args.begin(), args.end(), "--json") != args.end();
        const Terminal terminal(json ? Format::Json : Format::Text, Verbosity::Normal);
        return static_cast<int>(terminal.fail(wrongUse(error, app, args)));
    }
    for (const std::unique_ptr<Command>& command : commands) {
        if (app.got_subcommand(command->name())) {
            const OutputOptions& output = command->output;
            Terminal terminal(output.json ? Format::Json : Format::Text,
                              output.quiet     ? Verbosity::Quiet
                              : output.verbose ? Verbosity::Verbose
                                               : Verbosity::Normal);
            const Exit status = command->run(terminal, interrupt);
            if (terminal.outputLost() && status == Exit::Done) {
                std::fprintf(stderr, "error: the result could not be written to standard output\n");
                return static_cast<int>(Exit::Failed);
            }
            return static_cast<int>(status);
        }
    }
    return static_cast<int>(Exit::WrongUse);
}

}  // namespace

}  // namespace terrace::cli

int main(int argc, char** argv) {
    return terrace::cli::run(argc, argv);
}
