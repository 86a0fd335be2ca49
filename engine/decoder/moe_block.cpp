#include "engine/decoder/moe_block.h"

#include <algorithm>
#include <utility>

#include "engine/decoder/row_views.h"

namespace terrace {

namespace {

RouterRule router_rule(const ModelConfig& config) {
    RouterRule rule;
    rule.scoring =
        config.scoring_func == ScoringFunc::Sigmoid ? Scoring::Sigmoid : Scoring::SoftmaxThenTopK;
    rule.n_experts = config.n_routed_experts;
    rule.top_k = config.num_experts_per_tok;
    rule.n_group = config.n_group;
    rule.topk_group = config.topk_group;
    rule.norm_topk = config.norm_topk_prob;
    rule.scaling = static_cast<float>(config.routed_scaling_factor);
    return rule;
}

}  // namespace

MoeBlock::MoeBlock(const ModelConfig& config, ExpertStore* store, Ops* ops)
    : rule_(router_rule(config)),
      eps_(static_cast<float>(config.rms_norm_eps)),
      inner_width_(config.moe_intermediate_size),
      shared_width_(config.n_shared_experts * config.moe_intermediate_size),
      store_(store),
      ops_(ops) {}

Status MoeBlock::run(const LayerWeights& weights,
                     std::int64_t layer,
                     const RowBatch& batch,
                     ActivationSet& a,
                     std::stop_token stop) {
    const std::int64_t n = batch.n_rows;
    const RowScope scope{batch.positions, static_cast<std::int32_t>(layer)};
    const ActivationRows x = first_rows(a.normed, n);
    ops_->rms_norm(first_rows(a.hidden, n), weights.post_attention_norm, eps_, x, scope);
    if (!weights.sparse()) {
        run_dense(*weights.feed_forward, batch, a, scope);
        return {};
    }
    ops_->route({weights.router, weights.router_bias, x, a.expert_ids, a.expert_gates}, rule_,
                scope);
    if (stop.stop_requested()) {
        // A stopped router leaves ids behind that nobody chose.
        return Error{ErrorCode::Cancelled, "stopped", "", ""};
    }
    group_rows_by_expert(batch, a);

    const FeedForwardWeights* shared = weights.feed_forward ? &*weights.feed_forward : nullptr;
    ExpertVisit visit = store_->begin_visit(static_cast<int>(layer), demand_, batch.clock_tokens);
    if (shared != nullptr && !visit.any_ready()) {
        // The reads fly while the shared expert is computed.
        run_experts({}, std::exchange(shared, nullptr), batch, a, scope);
    }
    for (;;) {
        Result<ExpertBatch> ready = visit.next_batch(stop);
        if (!ready) {
            return std::move(ready).error().in("layer " + std::to_string(layer));
        }
        if (ready->state == ExpertBatch::State::Stopped) {
            return Error{ErrorCode::Cancelled, "stopped", "", ""};
        }
        if (ready->state == ExpertBatch::State::Done) {
            break;
        }
        run_experts(ready->leases, std::exchange(shared, nullptr), batch, a, scope);
    }
    ExpertSum sum;
    sum.n_rows = n;
    sum.top_k = rule_.top_k;
    sum.width = a.hidden.width;
    sum.ids = a.expert_ids;
    sum.gates = a.expert_gates;
    sum.outputs = a.expert_out.data;
    sum.output_rows = a.expert_rows;
    sum.shared = weights.feed_forward ? a.block_out.data : nullptr;
    sum.residual = a.hidden.data;
    sum.residual_stride = a.hidden.stride;
    ops_->sum_experts(sum);
    return {};
}

void MoeBlock::run_dense(const FeedForwardWeights& weights,
                         const RowBatch& batch,
                         ActivationSet& a,
                         RowScope scope) {
    const std::int64_t n = batch.n_rows;
    const std::int64_t width = weights.gate.rows;
    const ActivationRows x = first_rows(a.normed, n);
    const FloatRows gate = narrowed(a.shared_gate, n, width);
    const FloatRows up = narrowed(a.shared_up, n, width);
    const ActivationRows inner = narrowed(a.shared_inner, n, width);
    const FloatRows out = first_rows(a.block_out, n);
    jobs_ = {matmul_job(weights.gate, x, gate), matmul_job(weights.up, x, up)};
    ops_->matmul(jobs_);
    ops_->swiglu(gate, up, Activation::SwiGlu, inner, scope);
    jobs_ = {matmul_job(weights.down, inner, out)};
    ops_->matmul(jobs_);
    ops_->add(first_rows(a.hidden, n), out);
}

/// Counting sort of the (row, rank) pairs by expert: each expert's rows stand together, and each
/// pair knows the row of `expert_out` that it will fill.
void MoeBlock::group_rows_by_expert(const RowBatch& batch, const ActivationSet& a) {
    const std::int64_t pairs = batch.n_rows * rule_.top_k;
    first_pair_.assign(static_cast<std::size_t>(rule_.n_experts) + 1, 0);
    pair_rows_.resize(static_cast<std::size_t>(pairs));
    for (std::int64_t p = 0; p < pairs; ++p) {
        ++first_pair_[static_cast<std::size_t>(a.expert_ids[p]) + 1];
    }
    demand_.clear();
    for (std::size_t e = 0; e + 1 < first_pair_.size(); ++e) {
        if (first_pair_[e + 1] > 0) {
            demand_.push_back({static_cast<std::int32_t>(e), first_pair_[e + 1]});
        }
        first_pair_[e + 1] += first_pair_[e];
    }
    for (std::int64_t p = 0; p < pairs; ++p) {
        const auto expert = static_cast<std::size_t>(a.expert_ids[p]);
        const std::int32_t at = first_pair_[expert]++;
        const std::int64_t row = p / rule_.top_k;
        pair_rows_[static_cast<std::size_t>(at)] = static_cast<std::int32_t>(row);
        a.expert_rows[p] = at;
        a.pair_positions[at] = batch.positions[row];
    }
    // Each entry now points at the end of its expert's rows; shift back to the beginnings.
    std::copy_backward(first_pair_.begin(), first_pair_.end() - 1, first_pair_.end());
    first_pair_[0] = 0;
}

void MoeBlock::run_experts(std::span<const ExpertLease> leases,
                           const FeedForwardWeights* shared,
                           const RowBatch& batch,
                           ActivationSet& a,
                           RowScope scope) {
    const std::int64_t n = batch.n_rows;
    const ActivationRows x = first_rows(a.normed, n);
    const FloatRows shared_gate = narrowed(a.shared_gate, n, shared_width_);
    const FloatRows shared_up = narrowed(a.shared_up, n, shared_width_);
    const ActivationRows shared_inner = narrowed(a.shared_inner, n, shared_width_);

    jobs_.clear();
    for (const ExpertLease& lease : leases) {
        const auto e = static_cast<std::size_t>(lease.id().expert);
        const std::int32_t begin = first_pair_[e];
        const auto count = static_cast<std::size_t>(first_pair_[e + 1] - begin);
        MatmulJob job;
        job.input = x;
        job.rows = {pair_rows_.data() + begin, count};
        job.weight = lease.weights().gate;
        job.out = a.gate.row(begin);
        job.out_stride = a.gate.stride;
        jobs_.push_back(job);
        job.weight = lease.weights().up;
        job.out = a.up.row(begin);
        job.out_stride = a.up.stride;
        jobs_.push_back(job);
    }
    if (shared != nullptr) {
        jobs_.push_back(matmul_job(shared->gate, x, shared_gate));
        jobs_.push_back(matmul_job(shared->up, x, shared_up));
    }
    ops_->matmul(jobs_);

    jobs_.clear();
    for (const ExpertLease& lease : leases) {
        const auto e = static_cast<std::size_t>(lease.id().expert);
        const std::int64_t begin = first_pair_[e];
        const std::int64_t count = first_pair_[e + 1] - begin;
        const ActivationRows inner = a.inner.rows(begin, count);
        ops_->swiglu({a.gate.row(begin), count, inner_width_, a.gate.stride},
                     {a.up.row(begin), count, inner_width_, a.up.stride}, Activation::SwiGlu, inner,
                     {a.pair_positions + begin, scope.layer});
        FloatRows out{a.expert_out.row(begin), count, a.expert_out.width, a.expert_out.stride};
        jobs_.push_back(matmul_job(lease.weights().down, inner, out));
    }
    if (shared != nullptr) {
        ops_->swiglu(shared_gate, shared_up, Activation::SwiGlu, shared_inner, scope);
        jobs_.push_back(matmul_job(shared->down, shared_inner, first_rows(a.block_out, n)));
    }
    ops_->matmul(jobs_);
}

}  // namespace terrace
