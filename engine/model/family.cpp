#include "engine/model/family.h"

#include <algorithm>
#include <array>

namespace terrace {
namespace {

constexpr Family kGlmMoeDsa = {
    .model_type = "glm_moe_dsa",
    .display_name = "GLM-5 (mixture of experts with sparse attention)",
    .attention = AttentionKind::Mla,
    .indexer = FamilyIndexer::Lightning,
    .router = RouterKind::SigmoidBias,
    .activation = ActivationKind::SiluGlu,
    .attention_rope = RopePairs::Interleaved,
    .indexer_rope = RopePairs::Interleaved,
    .names = {},
};

constexpr std::array kFamilies = {kGlmMoeDsa};

}  // namespace

std::string Family::layer_tensor(std::int64_t layer, std::string_view suffix) const {
    std::string name(names.layer_prefix);
    name += std::to_string(layer);
    name += '.';
    name += suffix;
    return name;
}

std::string Family::expert_tensor(std::int64_t layer,
                                  std::int64_t expert,
                                  Projection projection) const {
    std::string name = layer_tensor(layer, names.expert_prefix);
    name += std::to_string(expert);
    name += '.';
    switch (projection) {
        case Projection::Gate:
            name += names.expert_gate;
            break;
        case Projection::Up:
            name += names.expert_up;
            break;
        case Projection::Down:
            name += names.expert_down;
            break;
    }
    return name;
}

std::span<const Family> families() {
    return kFamilies;
}

const Family* find_family(std::string_view model_type) {
    const auto it = std::find_if(kFamilies.begin(), kFamilies.end(), [&](const Family& family) {
        return family.model_type == model_type;
    });
    return it == kFamilies.end() ? nullptr : &*it;
}

std::string known_families() {
    std::string list;
    for (const Family& family : kFamilies) {
        list += list.empty() ? "" : ", ";
        list += family.model_type;
    }
    return list;
}

}  // namespace terrace
