#include "engine/generate/session.h"

#include <algorithm>
#include <chrono>

#include "engine/decoder/row_views.h"
#include "engine/generate/fnv.h"
#include "engine/generate/repetition_guard.h"
#include "engine/generate/text_stream.h"

namespace terrace {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

const char* to_string(StopReason reason) {
    switch (reason) {
        case StopReason::Eos:
            return "eos";
        case StopReason::Stop:
            return "stop";
        case StopReason::Length:
            return "length";
        case StopReason::Context:
            return "context";
        case StopReason::Cancelled:
            return "cancelled";
    }
    return "length";
}

/// One call of generate: its request and everything that grows while it runs.
struct Session::Turn {
    const GenerateRequest& request;
    GenerateObserver* observer;
    std::stop_token stop;
    Sampler sampler;
    TextStream stream;
    GenerateResult result = {};
    Fnv64 hash = {};
    Clock::time_point start = Clock::now();
    std::vector<std::int32_t> drafts = {};
    bool drafter_failed = false;
    bool done = false;

    void finish(StopReason reason) {
        result.stop_reason = reason;
        done = true;
    }

    [[nodiscard]] std::int64_t tokens_left() const {
        if (request.max_new_tokens < 0) {
            return std::numeric_limits<std::int64_t>::max();
        }
        return request.max_new_tokens - static_cast<std::int64_t>(result.ids.size());
    }
};

Session::Session(Decoder* decoder,
                 const Tokenizer* tokenizer,
                 std::vector<std::int32_t> stop_ids,
                 SessionOptions options)
    : decoder_(decoder), tokenizer_(tokenizer), stop_ids_(std::move(stop_ids)), options_(options) {
    const std::int64_t vocab = decoder_->config().vocab_size;
    candidates_.resize(static_cast<std::size_t>(vocab));
    for (std::int64_t id = 0; id < vocab; ++id) {
        candidates_[static_cast<std::size_t>(id)] =
            tokenizer_ == nullptr || tokenizer_->is_defined(static_cast<std::int32_t>(id)) ? 1 : 0;
    }
    if (!decoder_->has_mtp()) {
        options_.draft_depth = 0;
    }
    options_.chunk_rows = std::min(options_.chunk_rows, decoder_->max_rows());
    options_.draft_depth = std::min(options_.draft_depth, decoder_->max_rows() - 1);
    logits_.resize(static_cast<std::size_t>((options_.draft_depth + 1) * vocab));
}

void Session::reset() {
    tokens_.clear();
    n_rows_ = 0;
    n_mtp_rows_ = 0;
}

Status Session::check(const GenerateRequest& request) const {
    const auto n = static_cast<std::int64_t>(request.prompt.size());
    if (n == 0) {
        return Error{ErrorCode::WrongUse, "the prompt has no tokens; expected at least one", "",
                     "Give some text"};
    }
    if (n > decoder_->context()) {
        return Error{ErrorCode::TooLarge,
                     "the prompt has " + std::to_string(n) + " tokens and the context holds " +
                         std::to_string(decoder_->context()) + "; nothing was cut",
                     "",
                     "Shorten the prompt by " + std::to_string(n - decoder_->context()) +
                         " tokens or choose a larger context (--context)"};
    }
    const std::int64_t vocab = decoder_->config().vocab_size;
    for (const std::int32_t id : request.prompt) {
        if (id < 0 || id >= vocab) {
            return Error{ErrorCode::WrongUse,
                         "token id " + std::to_string(id) + " is not in the vocabulary (0 to " +
                             std::to_string(vocab - 1) + ")",
                         "prompt", ""};
        }
    }
    return {};
}

/// Rows at the front that the cache already holds. The last prompt row is always computed: its
/// logits are wanted. With a drafter the row before a changed token is computed too, because the
/// draft layer eats that row's hidden state together with the token after it.
std::int64_t Session::reusable_rows(const std::vector<std::int32_t>& prompt) const {
    const auto mismatch =
        std::mismatch(prompt.begin(), prompt.end(), tokens_.begin(), tokens_.end());
    const std::int64_t common = mismatch.first - prompt.begin();
    const auto n = static_cast<std::int64_t>(prompt.size());
    std::int64_t rows = std::min({common, n_rows_, n - 1});
    if (options_.draft_depth > 0) {
        rows = std::min({rows, common - 1, n_mtp_rows_});
    }
    return std::max<std::int64_t>(rows, 0);
}

Result<GenerateResult> Session::generate(const GenerateRequest& request,
                                         GenerateObserver* observer,
                                         std::stop_token stop) {
    if (Status legal = check(request); !legal) {
        return std::move(legal).error();
    }
    Turn turn{request, observer, std::move(stop), Sampler(request.sampling, candidates_),
              TextStream(*tokenizer_, request.stop_strings)};
    turn.result.speculation.depth = options_.draft_depth;
    turn.result.prompt_tokens = static_cast<std::int64_t>(request.prompt.size());

    Status status = prefill(turn);
    turn.result.prefill_seconds = seconds_since(turn.start);
    const Clock::time_point decode_start = Clock::now();
    while (status && !turn.done) {
        status = decode(turn);
    }
    turn.result.decode_seconds = seconds_since(decode_start);
    if (!status) {
        if (status.error().code != ErrorCode::Cancelled) {
            return std::move(status).error();
        }
        turn.finish(StopReason::Cancelled);
    }
    const std::string rest = turn.stream.finish();
    turn.result.text += rest;
    if (!rest.empty() && observer != nullptr) {
        observer->text(rest, -1);
    }
    turn.result.logits_hash = turn.hash.value();
    const SpeculationStats& s = turn.result.speculation;
    if (s.drafted >= 64 && s.accepted == 0) {
        turn.result.warnings.push_back(
            "the draft head was never right in " + std::to_string(s.drafted) +
            " drafts: its weights are probably damaged. The text is not affected");
    }
    if (repeated_block(turn.result.ids) > 0) {
        turn.result.warnings.push_back("the answer repeats the same words over and over");
    }
    return std::move(turn.result);
}

Status Session::prefill(Turn& turn) {
    const std::vector<std::int32_t>& prompt = turn.request.prompt;
    const auto n = static_cast<std::int64_t>(prompt.size());
    std::int64_t row = reusable_rows(prompt);
    turn.result.reused_tokens = row;
    tokens_ = prompt;
    n_rows_ = row;
    n_mtp_rows_ = std::min(n_mtp_rows_, row);
    while (row < n) {
        const std::int64_t count = std::min(options_.chunk_rows, n - row);
        const std::span<const std::int32_t> ids(prompt.data() + row,
                                                static_cast<std::size_t>(count));
        Status step = decoder_->step(ids, static_cast<std::int32_t>(row), nullptr, turn.stop);
        if (!step) {
            tokens_.resize(static_cast<std::size_t>(n_rows_));
            return step;
        }
        n_rows_ = row + count;
        if (row + count < n) {
            if (Status fed = feed_drafter(turn, row, count); !fed) {
                return fed;
            }
        }
        row += count;
        if (turn.observer != nullptr) {
            turn.observer->prefill_progress(row, n);
        }
        if (row == n) {
            if (turn.request.max_new_tokens == 0) {
                turn.finish(StopReason::Length);
                return {};
            }
            if (Status logits = compute_logits(count - 1, 1); !logits) {
                return logits;
            }
            const std::span<const float> last(logits_.data(), candidates_.size());
            take(turn, turn.sampler.draw(last, n, tokens_), last);
            turn.result.first_token_seconds = seconds_since(turn.start);
            return turn.done ? Status{} : feed_drafter(turn, n - count, count);
        }
    }
    return {};
}

/// Gives the draft layer the rows of the last sweep that start at position `first_row`; the token
/// after each is known. A numeric fault in the draft layer only costs the drafts.
Status Session::feed_drafter(Turn& turn, std::int64_t first_row, std::int64_t n_rows) {
    if (options_.draft_depth == 0) {
        return {};
    }
    const std::span<const std::int32_t> next(tokens_.data() + first_row + 1,
                                             static_cast<std::size_t>(n_rows));
    Status fed =
        decoder_->mtp_feed(next, static_cast<std::int32_t>(first_row),
                           float_form(first_rows(decoder_->final_rows(), n_rows)), turn.stop);
    turn.drafter_failed = false;
    if (!fed) {
        if (fed.error().code != ErrorCode::NumericFault) {
            return fed;
        }
        turn.drafter_failed = true;
    }
    n_mtp_rows_ = first_row + n_rows;
    return {};
}

Status Session::compute_logits(std::int64_t first_row, std::int64_t n_rows) {
    const std::int64_t vocab = decoder_->config().vocab_size;
    const std::int64_t first_position = n_rows_ - n_rows;
    return decoder_->logits(first_row, FloatRows{logits_.data(), n_rows, vocab, vocab},
                            static_cast<std::int32_t>(first_position));
}

/// Accepts one token of the answer; `logits` are the ones it was drawn from.
void Session::take(Turn& turn, std::int32_t token, std::span<const float> logits) {
    turn.hash.add(logits);
    const bool is_stop = !turn.request.ignore_eos &&
                         std::find(stop_ids_.begin(), stop_ids_.end(), token) != stop_ids_.end();
    turn.result.ids.push_back(token);
    tokens_.push_back(token);
    if (is_stop) {
        turn.finish(StopReason::Eos);
        return;
    }
    const std::string piece = turn.stream.push(token);
    turn.result.text += piece;
    if (turn.observer != nullptr) {
        turn.observer->text(piece, token);
    }
    if (turn.stream.stopped()) {
        turn.finish(StopReason::Stop);
    } else if (turn.tokens_left() <= 0) {
        turn.finish(StopReason::Length);
    } else if (static_cast<std::int64_t>(tokens_.size()) > decoder_->context()) {
        turn.finish(StopReason::Context);
    }
}

/// One round: drafts from the draft head, one sweep over the newest token and the drafts, and as
/// many tokens as were right, plus one.
Status Session::decode(Turn& turn) {
    if (turn.stop.stop_requested()) {
        turn.finish(StopReason::Cancelled);
        return {};
    }
    turn.drafts.clear();
    if (options_.draft_depth > 0 && !turn.drafter_failed) {
        if (Status proposed = propose(turn); !proposed) {
            return proposed;
        }
    }
    return verify(turn);
}

/// Fills turn.drafts: winners of the same race, at the same indices, on the draft head's logits.
Status Session::propose(Turn& turn) {
    const auto n_tokens = static_cast<std::int64_t>(tokens_.size());
    const std::int64_t room = decoder_->context() - n_tokens;
    const std::int64_t depth = std::min({options_.draft_depth, turn.tokens_left() - 1, room});
    std::vector<std::int32_t> context = tokens_;
    const std::int64_t vocab = decoder_->config().vocab_size;
    for (std::int64_t k = 0; k < depth; ++k) {
        Status status;
        if (k > 0) {
            status = decoder_->mtp_chain(turn.drafts.back(), k, turn.stop);
        }
        if (status) {
            const std::int64_t row = k == 0 ? decoder_->chain_row() : 0;
            status = decoder_->mtp_logits(row, FloatRows{logits_.data(), 1, vocab, vocab});
        }
        if (!status) {
            return status.error().code == ErrorCode::NumericFault ? Status{} : std::move(status);
        }
        const std::span<const float> logits(logits_.data(), candidates_.size());
        const std::int32_t draft = turn.sampler.draw(logits, n_tokens + k, context);
        turn.drafts.push_back(draft);
        context.push_back(draft);
    }
    return {};
}

Status Session::verify(Turn& turn) {
    const auto n_drafts = static_cast<std::int64_t>(turn.drafts.size());
    const std::int64_t first = static_cast<std::int64_t>(tokens_.size()) - 1;
    std::vector<std::int32_t> ids{tokens_.back()};
    ids.insert(ids.end(), turn.drafts.begin(), turn.drafts.end());
    if (Status step = decoder_->step(ids, static_cast<std::int32_t>(first), nullptr, turn.stop);
        !step) {
        return step;
    }
    n_rows_ = first + 1 + n_drafts;
    if (Status logits = compute_logits(0, n_drafts + 1); !logits) {
        n_rows_ = first;
        return logits;
    }
    std::int64_t accepted = 0;
    for (std::int64_t i = 0; i <= n_drafts && !turn.done; ++i) {
        const std::span<const float> logits = std::span(logits_).subspan(
            static_cast<std::size_t>(i) * candidates_.size(), candidates_.size());
        const std::int32_t token =
            turn.sampler.draw(logits, static_cast<std::int64_t>(tokens_.size()), tokens_);
        take(turn, token, logits);
        if (i == n_drafts || token != turn.drafts[static_cast<std::size_t>(i)]) {
            break;
        }
        ++accepted;
    }
    // Rows behind the first wrong draft hold what never was said.
    n_rows_ = std::min(n_rows_, static_cast<std::int64_t>(tokens_.size()) - 1);
    SpeculationStats& stats = turn.result.speculation;
    ++stats.forwards;
    stats.drafted += n_drafts;
    stats.accepted += accepted;
    if (n_drafts > 0) {
        turn.result.rounds.push_back({first, turn.drafts, accepted});
    }
    return turn.done ? Status{} : feed_drafter(turn, first, n_rows_ - first);
}

}  // namespace terrace
