// Opens an engine and runs it the ways the tests compare: traces of known tokens, answers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/generate/trace.h"

namespace terrace::test {

/// The largest logit wins.
[[nodiscard]] SamplingSettings greedy();

/// Temperature 1 with this seed.
[[nodiscard]] SamplingSettings sampled(std::uint64_t seed);

using Ids = std::vector<std::int32_t>;

/// Two threads, nothing else chosen.
[[nodiscard]] EngineConfig test_config();

/// Null after failing the test with the engine's message.
[[nodiscard]] std::unique_ptr<Engine> open_engine(const std::filesystem::path& model,
                                                  const EngineConfig& config = test_config());

using Trace = std::map<std::string, TraceArray>;

/// Empty after failing the test. Greedy unless `sampling` says otherwise.
[[nodiscard]] Trace trace(Engine& engine,
                          std::span<const std::int32_t> tokens,
                          std::int64_t chunk_rows = 64,
                          const SamplingSettings& sampling = greedy());

/// Row `row` of an array whose last two axes are [rows, width]; `plane` counts what is before.
[[nodiscard]] std::span<const std::byte> row_of(const TraceArray& array,
                                                std::int64_t row,
                                                std::int64_t plane = 0);

[[nodiscard]] std::vector<float> floats(const TraceArray& array);
[[nodiscard]] std::vector<std::int32_t> ints(const TraceArray& array);

/// FNV-1a 64 as 16 hex digits.
[[nodiscard]] std::string hash_of(std::span<const std::byte> bytes);

/// A request without stops.
[[nodiscard]] GenerateRequest request_for(Ids prompt,
                                          std::int64_t n_tokens,
                                          SamplingSettings sampling = greedy());

/// Fails the test and gives an empty result on an error.
[[nodiscard]] GenerateResult generate(Engine& engine,
                                      const GenerateRequest& request,
                                      GenerateObserver* observer = nullptr,
                                      std::stop_token stop = {});

/// Seeded ids below `vocab`.
[[nodiscard]] Ids random_ids(std::int64_t n, std::int64_t vocab, std::uint32_t seed);

}  // namespace terrace::test
