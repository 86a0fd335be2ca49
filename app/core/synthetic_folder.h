// Everything of a synthetic model that is not a weight, and what shapes its routing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "app/core/synthetic_model.h"

namespace terrace::app {

/// 256 bytes and the special tokens of the chat format.
inline constexpr std::int64_t kSyntheticTokens = 264;

/// Whether a main layer has an indexer of its own.
[[nodiscard]] bool syntheticLayerIsFull(const SyntheticSpec& spec, std::int64_t layer);

/// Writes config.json (last), generation_config.json, tokenizer.json, tokenizer_config.json and
/// chat_template.jinja.
[[nodiscard]] Status writeSyntheticFolder(const SyntheticSpec& spec,
                                          const std::filesystem::path& out);

/// Tokens of one topic: ids that stand together and whose embeddings have a part in common.
inline constexpr std::int64_t kTopicTokens = 16;

/// How alike the tokens of a topic are, so that consecutive tokens share the wanted experts.
struct TopicShape {
    double correlation = 0.0;  ///< of the embeddings of one topic
    double headPull = 0.0;     ///< weight of the topic's part in its rows of lm_head
};

/// Found by playing the router on pairs of correlated rows; text that the model writes stays in a
/// topic for eight tokens on average.
[[nodiscard]] TopicShape topicShape(const SyntheticSpec& spec);

/// Replaces a layer's correction bias so that experts are chosen as often as the spec says; leaves
/// it alone for uniform routing.
void shapeRouting(const SyntheticSpec& spec, const std::string& name, std::span<float> bias);

}  // namespace terrace::app
