#include "engine/generate/text_stream.h"

#include <algorithm>

namespace terrace {

namespace {

/// Longest suffix of `text` that is a proper prefix of `stop`.
std::size_t possible_beginning(const std::string& text, const std::string& stop) {
    std::size_t n = std::min(text.size(), stop.size() - 1);
    while (n > 0 && text.compare(text.size() - n, n, stop, 0, n) != 0) {
        --n;
    }
    return n;
}

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, std::vector<std::string> stop_strings)
    : decoder_(tokenizer), tokenizer_(&tokenizer), stop_strings_(std::move(stop_strings)) {
    std::erase_if(stop_strings_, [](const std::string& s) { return s.empty(); });
}

std::string TextStream::push(std::int32_t id) {
    if (stopped_ || tokenizer_->is_special(id)) {
        return {};
    }
    held_ += decoder_.push(id);
    return release(End::NotYet);
}

std::string TextStream::finish() {
    if (stopped_) {
        return {};
    }
    held_ += decoder_.finish();
    return release(End::Reached);
}

std::string TextStream::release(End end) {
    std::size_t stop_at = std::string::npos;
    std::size_t hold = 0;
    for (const std::string& stop : stop_strings_) {
        stop_at = std::min(stop_at, held_.find(stop));
        hold = std::max(hold, possible_beginning(held_, stop));
    }
    if (stop_at != std::string::npos) {
        stopped_ = true;
        held_.resize(stop_at);
        return std::exchange(held_, {});
    }
    if (end == End::Reached) {
        return std::exchange(held_, {});
    }
    std::string out = held_.substr(0, held_.size() - hold);
    held_.erase(0, held_.size() - hold);
    return out;
}

}  // namespace terrace
