#include "app/cli/command.h"

namespace terrace::cli {

std::vector<std::unique_ptr<Command>> allCommands() {
    std::vector<std::unique_ptr<Command>> commands;
    commands.push_back(makeRunCommand());
    commands.push_back(makeChatCommand());
    commands.push_back(makeTokenizeCommand());
    commands.push_back(makeRenderCommand());
    commands.push_back(makeInspectCommand());
    commands.push_back(makeMakeModelCommand());
    commands.push_back(makeConvertCommand());
    return commands;
}

}  // namespace terrace::cli
