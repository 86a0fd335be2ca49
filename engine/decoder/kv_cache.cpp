#include "engine/decoder/kv_cache.h"

namespace terrace {

namespace {

/// Hands out 64-byte aligned pieces of one allocation; with a null base it only counts.
class Carver {
public:
    explicit Carver(std::byte* base) : base_(base) {}

    template <typename T>
    T* take(std::int64_t count) {
        std::byte* piece = base_ == nullptr ? nullptr : base_ + used_;
        used_ += round_up(count * static_cast<std::int64_t>(sizeof(T)), 64);
        return reinterpret_cast<T*>(piece);
    }

    [[nodiscard]] std::int64_t used() const { return used_; }

private:
    std::byte* base_;
    std::int64_t used_ = 0;
};

MlaCache carve_attention(const CacheShape& shape, Carver& carver) {
    MlaCache cache;
    cache.capacity = shape.capacity;
    cache.latent = shape.latent;
    cache.rope = shape.rope;
    if (shape.kind == SessionKind::Float) {
        cache.values = carver.take<float>(shape.capacity * (shape.latent + shape.rope));
    } else {
        cache.rows = carver.take<std::int8_t>(shape.capacity * cache.row_bytes());
        cache.scales = carver.take<float>(shape.capacity * cache.n_groups());
    }
    return cache;
}

IndexCache carve_index(const CacheShape& shape, Carver& carver) {
    IndexCache cache;
    cache.capacity = shape.capacity;
    cache.dim = shape.index_dim;
    const std::int64_t padded = round_up(shape.index_dim, kQuantGroup);
    const std::int64_t keys = round_up(shape.capacity, 16);
    if (shape.kind == SessionKind::Float) {
        cache.values = carver.take<float>(shape.capacity * shape.index_dim);
    } else {
        cache.keys = carver.take<std::int8_t>(keys * padded);
        cache.scales = carver.take<float>(keys * padded / kQuantGroup);
    }
    return cache;
}

}  // namespace

std::int64_t KvCache::bytes(const CacheShape& shape) {
    Carver counter(nullptr);
    for (const CacheLayer& layer : shape.layers) {
        carve_attention(shape, counter);
        if (layer.has_index_keys) {
            carve_index(shape, counter);
        }
    }
    return counter.used();
}

Result<KvCache> KvCache::create(const CacheShape& shape, Device& device) {
    Result<Buffer> memory = device.allocate(bytes(shape));
    if (!memory) {
        return std::move(memory).error().in("cache for " + std::to_string(shape.capacity) +
                                            " positions");
    }
    KvCache cache;
    cache.memory_ = std::move(memory).value();
    cache.capacity_ = shape.capacity;
    Carver carver(cache.memory_.data());
    for (const CacheLayer& layer : shape.layers) {
        cache.attention_.push_back(carve_attention(shape, carver));
        cache.index_.push_back(layer.has_index_keys ? carve_index(shape, carver) : IndexCache{});
    }
    return cache;
}

}  // namespace terrace
