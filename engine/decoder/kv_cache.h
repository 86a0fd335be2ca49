// The cache of every layer: what earlier positions left behind for attention and the indexer.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/device/device.h"
#include "engine/device/ops.h"
#include "engine/model/weights.h"

namespace terrace {

/// What one layer needs of the cache.
struct CacheLayer {
    bool has_index_keys = false;
};

/// Shape of the whole cache. Quantised sessions hold int8 rows with a scale for every 64, float
/// sessions binary32 rows (docs/arithmetic.md 3).
struct CacheShape {
    SessionKind kind = SessionKind::Quantised;
    std::int64_t capacity = 0;  ///< positions
    std::int64_t latent = 0;
    std::int64_t rope = 0;
    std::int64_t index_dim = 0;
    std::vector<CacheLayer> layers;
};

/// One allocation for all layers, made at load, never grown. Rows are overwritten in place: what
/// is valid is the session's knowledge. Owner: the decoder. Thread: engine.
class KvCache {
public:
    [[nodiscard]] static Result<KvCache> create(const CacheShape& shape, Device& device);

    /// Bytes that `create` would allocate.
    [[nodiscard]] static std::int64_t bytes(const CacheShape& shape);

    [[nodiscard]] const MlaCache& attention(std::int64_t layer) const {
        return attention_[static_cast<std::size_t>(layer)];
    }

    /// Only for layers that have an indexer of their own.
    [[nodiscard]] const IndexCache& index(std::int64_t layer) const {
        return index_[static_cast<std::size_t>(layer)];
    }

    [[nodiscard]] std::int64_t capacity() const { return capacity_; }

private:
    KvCache() = default;

    Buffer memory_;
    std::int64_t capacity_ = 0;
    std::vector<MlaCache> attention_;
    std::vector<IndexCache> index_;
};

}  // namespace terrace
