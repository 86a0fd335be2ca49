// Options that several commands share, declared once.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/core/prompt.h"
#include "app/core/sampling.h"
#include "engine/engine_config.h"

namespace terrace::cli {

/// --json, --quiet, --verbose.
struct OutputOptions {
    bool json = false;
    bool quiet = false;
    bool verbose = false;

    void add(CLI::App& command);
};

/// MODEL and every option of a command that opens a model.
struct ModelOptions {
    std::string model;
    EngineConfig engine;

    void add(CLI::App& command);
    /// Turns texts into values. Errors: WrongUse, naming option and value; also for options whose
    /// part is not in this build.
    [[nodiscard]] Status resolve();

private:
    std::string ram_ = "auto";
    std::string slots_;
    std::string draft_ = "auto";
    std::string direct_ = "auto";
    std::string io_ = "auto";
    std::string mode_ = "auto";
    std::string device_ = "none";
    std::vector<std::string> vram_;
    std::string dense_ = "auto";
    std::string history_ = "on";
    std::vector<std::string> modelCopy_;
    std::optional<std::int64_t> experts_;
    std::optional<double> expertMass_;
    std::string traceFile_;
    std::optional<std::int64_t> context_;
};

/// Sampling and stopping.
struct AnswerOptions {
    app::SamplingChoice sampling;
    std::optional<std::int64_t> n;
    bool ignoreEos = false;
    std::vector<std::string> stop;
    std::string think;

    void add(CLI::App& command);
    [[nodiscard]] Status resolve();
    [[nodiscard]] app::Thinking thinking() const;

private:
    std::vector<std::string> logitBias_;
    std::string seed_;
};

/// The text of "TEXT", "@FILE" or "-" (standard input).
[[nodiscard]] Result<std::string> textArgument(const std::string& argument);

}  // namespace terrace::cli
