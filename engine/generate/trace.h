// Runs known tokens through the model and keeps every intermediate that the reference data names.
#pragma once

#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/decoder/decoder.h"
#include "engine/generate/sampler.h"

namespace terrace {

/// One array of a trace, named and shaped as the reference data names it.
struct TraceArray {
    enum class Type : std::uint8_t { F32, I32, U8 };

    std::string name;
    Type type = Type::F32;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> bytes;  ///< little endian, row-major
};

/// What to run, and how.
struct TraceRequest {
    std::span<const std::int32_t> tokens;
    std::int64_t chunk_rows = 64;
    std::int64_t chain_depth = 3;  ///< draft rows after the last token; with a draft head only
};

/// Bytes that trace_tokens would keep: `n_tokens` positions of this model.
[[nodiscard]] std::int64_t trace_bytes(const ModelConfig& config, std::int64_t n_tokens);

/// Every position of `tokens` from position 0 on. T tokens, V vocabulary, H hidden, L layers,
/// S sparse layers, F layers with an indexer, k experts a token:
///   input_ids [T] i32, logits [T, V], hidden [L + 1, T, H], final_norm [T, H] f32,
///   router_ids [S, T, k] i32, router_weights [S, T, k] f32, selected [F, T, T] u8,
///   with a draft head mtp_logits [T, V] (the last row eats the token that `sampler` draws) and
///   mtp_chain_logits [chain_depth, V].
/// Overwrites the decoder's cache. Errors: those of the forward pass; a stop is Cancelled.
[[nodiscard]] Result<std::vector<TraceArray>> trace_tokens(Decoder& decoder,
                                                           Sampler& sampler,
                                                           const TraceRequest& request,
                                                           std::stop_token stop);

}  // namespace terrace
