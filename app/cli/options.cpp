#include "app/cli/options.h"

#include <charconv>
#include <cmath>
#include <iostream>
#include <iterator>

#include "app/core/size_text.h"
#include "engine/support/file.h"

namespace terrace::cli {

namespace {

Error wrongValue(const std::string& option, const std::string& value, const std::string& expected) {
    return Error{ErrorCode::WrongUse, option + " is \"" + value + "\"; expected " + expected, "",
                 "See --help"};
}

/// Options of parts that are not in this build must not be taken in silence.
Error notBuilt(const std::string& option) {
    return Error{ErrorCode::WrongUse, option + " has no effect in this build, so it is refused", "",
                 "Leave it out"};
}

/// More text than any context holds.
constexpr std::int64_t kLargestText = std::int64_t{256} << 20;

template <typename Number>
std::optional<Number> parseNumber(const std::string& text) {
    Number value{};
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || at != end) {
        return std::nullopt;
    }
    return value;
}

}  // namespace

void OutputOptions::add(CLI::App& command) {
    command.add_flag("--json", json, "Print one JSON object on standard output");
    command.add_flag("--quiet", quiet, "No notes, warnings or progress");
    command.add_flag("--verbose", verbose, "Say more about decisions and timings");
}

void ModelOptions::add(CLI::App& command) {
    command.add_option("model", model, "Model folder, or a file in it; left out: the demo model");
    const std::string group = "Model";
    command.add_option("--ram", ram_, "RAM budget: auto, 6G, 6GiB, 6GB, 512M")->group(group);
    command.add_option("--slots", slots_, "Expert slots in RAM: a number or all")->group(group);
    command.add_option("--context", context_, "Positions; the cache is made for them")
        ->group(group);
    command.add_option("--threads", engine.threads, "Compute threads; 0: the cores we may use")
        ->check(CLI::Range(0, 1024))
        ->group(group);
    command.add_option("--isa", engine.isa, "auto, scalar, avx2, avxvnni, avx512")->group(group);
    command.add_option("--chunk", engine.chunk_rows, "Prefill rows of one sweep; 0: by plan")
        ->check(CLI::Range(0, 1 << 20))
        ->group(group);
    command.add_option("--draft", draft_, "Speculation depth: off, auto or a number")->group(group);
    command.add_option("--io", io_, "How experts are read: auto or pread")->group(group);
    command.add_option("--direct", direct_, "Direct reads: auto, on, off")->group(group);
    command.add_flag("--float", engine.float_session, "Weights and cache in float32")->group(group);
    command.add_option("--latent-eps", engine.latent_eps, "Eps of the latent norms, with --float")
        ->group(group);
    command.add_option("--inject", engine.inject, "Faults on purpose, e.g. disk.read:error@5")
        ->group(group);
    // Known names of parts that later builds have: refused with a sentence, not as a misspelling.
    command.add_option("--mode", mode_, "")->group("");
    command.add_option("--device", device_, "")->group("");
    command.add_option("--vram", vram_, "")->group("");
    command.add_option("--dense", dense_, "")->group("");
    command.add_option("--history", history_, "")->group("");
    command.add_option("--model-copy", modelCopy_, "")->group("");
    command.add_option("--experts", experts_, "")->group("");
    command.add_option("--expert-mass", expertMass_, "")->group("");
    command.add_option("--trace", traceFile_, "")->group("");
}

Status ModelOptions::resolve() {
    if (ram_ != "auto") {
        engine.ram_budget_bytes = app::parseSize(ram_);
        if (!engine.ram_budget_bytes) {
            return wrongValue("--ram", ram_, "auto or a size such as 6G, 6GiB, 6GB");
        }
    }
    if (slots_ == "all") {
        engine.slots = 0;
    } else if (!slots_.empty()) {
        engine.slots = parseNumber<std::int64_t>(slots_);
        if (!engine.slots || *engine.slots < 1) {
            return wrongValue("--slots", slots_, "a number of at least 2, or all");
        }
    }
    engine.context = context_;
    if (engine.latent_eps && !(*engine.latent_eps > 0 && std::isfinite(*engine.latent_eps))) {
        return wrongValue("--latent-eps", std::to_string(*engine.latent_eps), "a number above 0");
    }
    if (draft_ == "off") {
        engine.draft_depth = 0;
    } else if (draft_ != "auto") {
        engine.draft_depth = parseNumber<std::int64_t>(draft_);
        if (!engine.draft_depth || *engine.draft_depth < 0 || *engine.draft_depth > 16) {
            return wrongValue("--draft", draft_, "off, auto or 0 to 16");
        }
    }
    if (direct_ == "on") {
        engine.direct = DirectReads::On;
    } else if (direct_ == "off") {
        engine.direct = DirectReads::Off;
    } else if (direct_ != "auto") {
        return wrongValue("--direct", direct_, "auto, on or off");
    }
    if (io_ == "uring") {
        return notBuilt("--io uring");
    }
    if (io_ != "auto" && io_ != "pread") {
        return wrongValue("--io", io_, "auto or pread");
    }
    if (mode_ != "auto") {
        return notBuilt("--mode");
    }
    if (device_ != "none") {
        return notBuilt("--device");
    }
    if (dense_ != "auto" && dense_ != "cpu") {
        return notBuilt("--dense " + dense_);
    }
    if (history_ != "on") {
        return notBuilt("--history");
    }
    if (!vram_.empty() || !modelCopy_.empty() || experts_ || expertMass_ || !traceFile_.empty()) {
        return notBuilt(!vram_.empty()        ? "--vram"
                        : !modelCopy_.empty() ? "--model-copy"
                        : experts_            ? "--experts"
                        : expertMass_         ? "--expert-mass"
                                              : "--trace");
    }
    return {};
}

void AnswerOptions::add(CLI::App& command) {
    const std::string group = "Answer";
    command.add_option("--n", n, "Most new tokens; default: until a stop or the context's end")
        ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40))
        ->group(group);
    command.add_flag("--ignore-eos", ignoreEos, "Go on past stop tokens")->group(group);
    command.add_option("--stop", stop, "Stop before this text (repeatable)")->group(group);
    command.add_option("--think", think, "on or off; default: the template's")
        ->check(CLI::IsMember({"on", "off"}))
        ->group(group);
    command.add_option("--temperature", sampling.temperature, "0 is greedy")->group(group);
    command.add_option("--top-k", sampling.topK, "Keep the k best; 0: all")->group(group);
    command.add_option("--top-p", sampling.topP, "Keep this share of the mass")->group(group);
    command
        .add_option("--min-p", sampling.minP,
                    "Drop what is less likely than this share of the best")
        ->group(group);
    command.add_option("--repetition-penalty", sampling.repetitionPenalty, "1: none")->group(group);
    command.add_option("--frequency-penalty", sampling.frequencyPenalty, "0: none")->group(group);
    command.add_option("--presence-penalty", sampling.presencePenalty, "0: none")->group(group);
    command.add_option("--logit-bias", logitBias_, "ID=B (repeatable)")->group(group);
    command.add_option("--seed", seed_, "Default: drawn, and printed")->group(group);
}

Status AnswerOptions::resolve() {
    if (!seed_.empty()) {
        sampling.seed = parseNumber<std::uint64_t>(seed_);
        if (!sampling.seed) {
            return wrongValue("--seed", seed_, "a whole number from 0 to 18446744073709551615");
        }
    }
    for (const std::string& text : stop) {
        if (text.empty()) {
            return wrongValue("--stop", text, "some text");
        }
    }
    for (const std::string& entry : logitBias_) {
        const std::size_t equals = entry.find('=');
        const auto id = parseNumber<std::int32_t>(entry.substr(0, equals));
        const auto bias = equals == std::string::npos
                              ? std::nullopt
                              : parseNumber<double>(entry.substr(equals + 1));
        if (!id || !bias || *id < 0 || !std::isfinite(*bias)) {
            return wrongValue("--logit-bias", entry, "ID=B, for example 2012=-5");
        }
        sampling.logitBias.emplace_back(*id, *bias);
    }
    return {};
}

app::Thinking AnswerOptions::thinking() const {
    if (think.empty()) {
        return app::Thinking::ModelDefault;
    }
    return think == "on" ? app::Thinking::On : app::Thinking::Off;
}

Result<std::string> textArgument(const std::string& argument) {
    if (argument == "-") {
        return std::string(std::istreambuf_iterator<char>(std::cin), {});
    }
    if (argument.empty() || argument.front() != '@') {
        return argument;
    }
    return read_text_file(argument.substr(1), kLargestText);
}

}  // namespace terrace::cli
