// Fuzzes the chat template engine: any template over any request must end in a prompt or in a
// failure, within its limits. Input: a template, and after a line of `%%%%` the JSON it renders.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/text/template/chat_template.h"

namespace {

constexpr std::string_view kSeparator = "\n%%%%\n";

/// Small limits: the fuzzer looks for faults, not for work.
terrace::TemplateLimits small_limits() {
    terrace::TemplateLimits limits;
    limits.max_steps = 50'000;
    limits.max_output_bytes = 1U << 20U;
    limits.max_memory_bytes = 16U << 20U;
    return limits;
}

/// A promise of the interface: spans are in order, apart, and inside the text.
void check_spans(const terrace::RenderedPrompt& prompt) {
    std::size_t end = 0;
    for (const terrace::TextSpan& span : prompt.user_spans) {
        if (span.begin < end || span.end <= span.begin || span.end > prompt.text.size()) {
            __builtin_trap();
        }
        end = span.end;
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    const std::size_t cut = input.find(kSeparator);
    const std::string_view source = input.substr(0, cut);
    const std::string json(cut == std::string_view::npos ? std::string_view("{\"messages\": []}")
                                                         : input.substr(cut + kSeparator.size()));
    const auto parsed = terrace::ChatTemplate::parse(source, "fuzz");
    if (!parsed.ok()) {
        return 0;
    }
    terrace::RenderRequest request;
    request.conversation = json;
    request.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
    request.limits = small_limits();
    const auto rendered = parsed.value().render(request);
    if (rendered.ok()) {
        check_spans(rendered.prompt());
    }
    const auto named = parsed.value().render_names(json, request.clock, request.limits);
    if (named.ok()) {
        check_spans(named.prompt());
    }
    return 0;
}
