// Ops that work row by row (arithmetic.md 2 and 4) on the CPU.
#pragma once

#include "engine/cpu/cpu_context.h"
#include "engine/device/ops.h"

namespace terrace::cpu {

void embed(Context context,
           const RawMatrix& table,
           std::span<const std::int32_t> ids,
           FloatRows out);
void rms_norm(Context context,
              FloatRows x,
              const float* weight,
              float eps,
              const ActivationRows& out,
              RowScope scope);
void layer_norm(Context context, FloatRows x, const float* weight, const float* bias, float eps);
void swiglu(Context context,
            FloatRows gate,
            FloatRows up,
            Activation activation,
            const ActivationRows& out,
            RowScope scope);
void rope(Context context, const RopeJob& job);
void route(Context context, const RouterJob& job, const RouterRule& rule, RowScope scope);
void sum_experts(Context context, const ExpertSum& job);
void add(Context context, FloatRows residual, FloatRows y);
void check_logits(Context context, FloatRows logits, RowScope scope);

}  // namespace terrace::cpu
