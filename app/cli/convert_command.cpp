// terrace-cli convert: a checkpoint to our container, int4 in groups of 64 with an int8 draft
// layer.
#include "app/cli/command.h"
#include "app/core/size_text.h"
#include "engine/model/container_writer.h"

namespace terrace::cli {

namespace {

class ConvertCommand final : public Command {
public:
    [[nodiscard]] const char* name() const override { return "convert"; }

    [[nodiscard]] const char* summary() const override {
        return "A checkpoint to a Terrace container";
    }

    [[nodiscard]] const char* examples() const override {
        return "  terrace-cli convert ~/models/GLM-5.2-FP8 ~/models/GLM-5.2-int4\n"
               "  terrace-cli convert checkpoint out --max-file-size 1G";
    }

    void declare(CLI::App& command) override {
        command.add_option("model", model_, "Folder to read")->required();
        command.add_option("out", out_, "Folder to make; must not exist or be empty")->required();
        command.add_option("--max-file-size", maxFileSize_, "Largest file, such as 5G");
    }

    [[nodiscard]] Exit run(Terminal& terminal, StopOnInterrupt& interrupt) override {
        ContainerOptions options;
        if (!maxFileSize_.empty()) {
            const std::optional<std::int64_t> bytes = app::parseSize(maxFileSize_);
            if (!bytes || *bytes < 1) {
                return terminal.fail(
                    {ErrorCode::WrongUse,
                     "--max-file-size is \"" + maxFileSize_ + "\"; expected a size such as 5G",
                     "convert", ""});
            }
            options.max_file_bytes = *bytes;
        }
        Result<ModelFolder> folder = open_model_folder(model_);
        if (!folder) {
            return terminal.fail(folder.error());
        }
        std::int64_t written = 0;
        const auto progress = [&](const ConvertProgress& p) {
            written = p.bytes_total;
            terminal.progress("converting", p.bytes_done >> 10,
                              std::max<std::int64_t>(p.bytes_total >> 10, 1), "KiB");
        };
        const Status done =
            write_container(*folder, options, out_, progress, interrupt.newRequest());
        terminal.endProgress();
        if (!done) {
            return terminal.fail(done.error());
        }
        terminal.out(terminal.json() ? "{\"bytes\": " + std::to_string(written) + "}\n"
                                     : out_ + ": " + app::formatSize(written) + "\n");
        return Exit::Done;
    }

private:
    std::string model_;
    std::string out_;
    std::string maxFileSize_;
};

}  // namespace

std::unique_ptr<Command> makeConvertCommand() {
    return std::make_unique<ConvertCommand>();
}

}  // namespace terrace::cli
