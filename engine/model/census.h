// What tensors a config asks for: names, roles and shapes, in the order of the forward pass. The
// one place that knows which layer has what. Internal to engine/model.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/model/family.h"
#include "engine/model/model_config.h"
#include "engine/model/weights.h"

namespace terrace {

/// A size and the key of config.json that it comes from, for messages.
struct ExpectedSize {
    std::int64_t value = 0;
    const char* key = "";
};

/// One tensor that has to be there.
struct ExpectedTensor {
    std::string name;
    TensorRole role = TensorRole::Vector;
    std::int32_t layer = -1;
    bool in_mtp_layer = false;
    ExpectedSize rows;  ///< value 1 for vectors
    ExpectedSize cols;

    [[nodiscard]] bool is_vector() const { return role == TensorRole::Vector; }
};

/// Everything outside the layers: embedding, final norm, head (not when it is tied).
[[nodiscard]] std::vector<ExpectedTensor> expected_globals(const ModelConfig& config,
                                                           const Family& family);

/// Everything of one layer except routed experts and the indexer. Layers from num_hidden_layers
/// on are MTP layers.
[[nodiscard]] std::vector<ExpectedTensor> expected_layer(const ModelConfig& config,
                                                         const Family& family,
                                                         std::int64_t layer);

/// The indexer of a layer that owns one.
[[nodiscard]] std::vector<ExpectedTensor> expected_indexer(const ModelConfig& config,
                                                           const Family& family,
                                                           std::int64_t layer);

/// One projection of one routed expert.
[[nodiscard]] ExpectedTensor expected_expert(const ModelConfig& config,
                                             const Family& family,
                                             std::int64_t layer,
                                             std::int64_t expert,
                                             Projection projection);

}  // namespace terrace
