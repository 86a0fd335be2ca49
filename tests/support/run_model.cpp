#include "tests/support/run_model.h"

#include <gtest/gtest.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <random>

#include "tests/engine/device/contract_vectors.h"

namespace terrace::test {

SamplingSettings greedy() {
    SamplingSettings settings;
    settings.temperature = 0.0;
    return settings;
}

SamplingSettings sampled(std::uint64_t seed) {
    SamplingSettings settings;
    settings.seed = seed;
    return settings;
}

EngineConfig test_config() {
    EngineConfig config;
    config.threads = 2;
    return config;
}

std::unique_ptr<Engine> open_engine(const std::filesystem::path& model,
                                    const EngineConfig& config) {
    Result<ModelFolder> folder = open_model_folder(model);
    if (!folder) {
        ADD_FAILURE() << folder.error().text();
        return nullptr;
    }
    Result<std::unique_ptr<Engine>> engine =
        Engine::open(std::move(folder).value(), config, nullptr, {});
    if (!engine) {
        ADD_FAILURE() << engine.error().text();
        return nullptr;
    }
    return std::move(engine).value();
}

Trace trace(Engine& engine,
            std::span<const std::int32_t> tokens,
            std::int64_t chunk_rows,
            const SamplingSettings& sampling) {
    Sampler sampler(sampling, engine.session().candidates());
    engine.session().reset();  // the trace writes over the session's cache
    Result<std::vector<TraceArray>> arrays =
        trace_tokens(engine.decoder(), sampler, {.tokens = tokens, .chunk_rows = chunk_rows}, {});
    if (!arrays) {
        ADD_FAILURE() << arrays.error().text();
        return {};
    }
    Trace by_name;
    for (TraceArray& array : *arrays) {
        by_name[array.name] = std::move(array);
    }
    return by_name;
}

std::span<const std::byte> row_of(const TraceArray& array, std::int64_t row, std::int64_t plane) {
    const std::size_t rank = array.shape.size();
    const auto width = static_cast<std::size_t>(array.shape[rank - 1]) *
                       (array.type == TraceArray::Type::U8 ? 1 : 4);
    const auto index = static_cast<std::size_t>(plane * array.shape[rank - 2] + row);
    return std::span(array.bytes).subspan(index * width, width);
}

std::vector<float> floats(const TraceArray& array) {
    std::vector<float> out(array.bytes.size() / 4);
    std::memcpy(out.data(), array.bytes.data(), array.bytes.size());
    return out;
}

std::vector<std::int32_t> ints(const TraceArray& array) {
    std::vector<std::int32_t> out(array.bytes.size() / 4);
    std::memcpy(out.data(), array.bytes.data(), array.bytes.size());
    return out;
}

std::string hash_of(std::span<const std::byte> bytes) {
    char text[17];
    std::snprintf(text, sizeof text, "%016" PRIx64, fnv64(bytes.data(), bytes.size()));
    return text;
}

GenerateRequest request_for(Ids prompt, std::int64_t n_tokens, SamplingSettings sampling) {
    GenerateRequest request;
    request.prompt = std::move(prompt);
    request.sampling = std::move(sampling);
    request.max_new_tokens = n_tokens;
    request.ignore_eos = true;
    return request;
}

GenerateResult generate(Engine& engine,
                        const GenerateRequest& request,
                        GenerateObserver* observer,
                        std::stop_token stop) {
    Result<GenerateResult> result = engine.session().generate(request, observer, std::move(stop));
    if (!result) {
        ADD_FAILURE() << result.error().text();
        return {};
    }
    return std::move(result).value();
}

Ids random_ids(std::int64_t n, std::int64_t vocab, std::uint32_t seed) {
    std::mt19937 random(seed);
    Ids ids(static_cast<std::size_t>(n));
    for (std::int32_t& id : ids) {
        id = static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(vocab));
    }
    return ids;
}

}  // namespace terrace::test
