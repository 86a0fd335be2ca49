// Counts and sizes of an opened checkpoint, for people. Internal to engine/model.
#pragma once

#include "engine/model/model_folder.h"

namespace terrace {

/// Fills all facts that follow from config and checkpoint; texts and warnings are left alone.
void count_facts(const ModelConfig& config, const Checkpoint& checkpoint, FolderFacts& facts);

}  // namespace terrace
