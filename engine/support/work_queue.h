// A bounded queue between threads, with priorities and a stop token for whoever waits.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

namespace terrace {

/// Items leave by priority (largest first), equal ones in the order they came.
/// Owner: one of the two sides, which joins the other before destroying it. Thread-safe.
/// Failure: push and pop say whether they happened; they fail after close() or a stop.
template <typename T>
class WorkQueue {
public:
    explicit WorkQueue(std::size_t capacity) : capacity_(std::max<std::size_t>(capacity, 1)) {
        items_.reserve(capacity_);
    }

    WorkQueue(const WorkQueue&) = delete;
    WorkQueue& operator=(const WorkQueue&) = delete;

    /// Waits while the queue is full. False: closed or stopped, and the item is dropped.
    bool push(T item, std::int32_t priority, const std::stop_token& stop) {
        {
            std::unique_lock lock(mutex_);
            const auto may_go_on = [this] { return closed_ || items_.size() < capacity_; };
            if (!changed_.wait(lock, stop, may_go_on) || closed_ || stop.stop_requested()) {
                return false;
            }
            insert(std::move(item), priority);
        }
        changed_.notify_all();
        return true;
    }

    /// Never waits. False: full or closed, and the item is dropped.
    bool try_push(T item, std::int32_t priority) {
        {
            const std::lock_guard lock(mutex_);
            if (closed_ || items_.size() >= capacity_) {
                return false;
            }
            insert(std::move(item), priority);
        }
        changed_.notify_all();
        return true;
    }

    /// Waits for an item. Empty: stopped, or closed and nothing is left.
    std::optional<T> pop(const std::stop_token& stop) {
        std::optional<T> item;
        {
            std::unique_lock lock(mutex_);
            const auto may_go_on = [this] { return closed_ || !items_.empty(); };
            if (!changed_.wait(lock, stop, may_go_on) || stop.stop_requested() || items_.empty()) {
                return item;
            }
            item.emplace(std::move(items_.front().value));
            items_.erase(items_.begin());
        }
        changed_.notify_all();
        return item;
    }

    /// Nothing more comes in; what is in the queue can still be taken. Wakes everybody.
    void close() {
        {
            const std::lock_guard lock(mutex_);
            closed_ = true;
        }
        changed_.notify_all();
    }

    [[nodiscard]] std::size_t size() const {
        const std::lock_guard lock(mutex_);
        return items_.size();
    }

private:
    struct Item {
        std::int32_t priority;
        T value;
    };

    // Sorted, because bounded queues are short.
    void insert(T item, std::int32_t priority) {
        const auto place = std::find_if(items_.begin(), items_.end(), [priority](const Item& it) {
            return it.priority < priority;
        });
        items_.insert(place, Item{priority, std::move(item)});
    }

    mutable std::mutex mutex_;  // guards items_ and closed_
    std::condition_variable_any changed_;
    const std::size_t capacity_;
    std::vector<Item> items_;
    bool closed_ = false;
};

}  // namespace terrace
