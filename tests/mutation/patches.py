"""The mistakes that the tests must see: each a sentence, the edits that make it, and the suites that are tried first.

An edit is (file, old text, new text); the old text stands exactly once in the file. Where the twin and the fast kernels hold the
same line, the mistake is made in all of them, so that only a recorded value or the second implementation can tell.
"""
from typing import NamedTuple


class Patch(NamedTuple):
    name: str
    sentence: str
    edits: list
    suites: list


CPU = "engine/cpu/"
ROW_OPS, ATTENTION, MATMUL, PROGRAM = "cpu_row_ops_test", "cpu_attention_test", "cpu_matmul_test", "program"
SAMPLER, MODELS = "engine_generate_test", "contract_models_test"

PATCHES = [
    Patch("rms-norm-order", "rms_norm multiplies the weight by the factor before the number",
          [(CPU + "row_ops/row_kernels_scalar.cpp", "out[i] = (x[i] * r) * weight[i];", "out[i] = x[i] * (r * weight[i]);"),
           (CPU + "row_ops/row_kernels_lanes.h", "L::mul(L::mul(L::load(x + i, n - i), factor), L::load(weight + i, n - i))",
            "L::mul(L::load(x + i, n - i), L::mul(factor, L::load(weight + i, n - i)))")], [ROW_OPS, PROGRAM]),
    Patch("exp-order", "exp subtracts the small part of n ln 2 before the large one",
          [(CPU + "float_math.h", "__builtin_fmaf(n, -0x1.62e4p-1f, x);\n    t = __builtin_fmaf(n, -0x1.7f7d1cp-20f, t)",
            "__builtin_fmaf(n, -0x1.7f7d1cp-20f, x);\n    t = __builtin_fmaf(n, -0x1.62e4p-1f, t)"),
           (CPU + "float_math_avx2.h", "_mm256_set1_ps(-0x1.62e4p-1f), v);\n    t = _mm256_fmadd_ps(n, _mm256_set1_ps(-0x1.7f7d1cp-20f), t)",
            "_mm256_set1_ps(-0x1.7f7d1cp-20f), v);\n    t = _mm256_fmadd_ps(n, _mm256_set1_ps(-0x1.62e4p-1f), t)"),
           (CPU + "float_math_avx512.h", "_mm512_set1_ps(-0x1.62e4p-1f), v);\n    t = _mm512_fmadd_ps(n, _mm512_set1_ps(-0x1.7f7d1cp-20f), t)",
            "_mm512_set1_ps(-0x1.7f7d1cp-20f), v);\n    t = _mm512_fmadd_ps(n, _mm512_set1_ps(-0x1.62e4p-1f), t)")],
          [ROW_OPS, ATTENTION, PROGRAM]),
    Patch("reduce-order", "the 32 partial sums of a dot product are added neighbours first",
          [(CPU + "float_math.h", "for (int m = 16; m >= 1; m /= 2) {\n        for (int i = 0; i < m; ++i) {",
            "for (int m = 1; m <= 16; m *= 2) {\n        for (int i = 0; i < 32; i += 2 * m) {")], [ROW_OPS, ATTENTION]),
    Patch("quantise-padding", "quantise8 leaves the padding behind a row as it was",
          [(CPU + "matmul/quantise8_scalar.cpp", "for (std::int64_t i = 0; i < kGroup; ++i) {\n        float v = 0.0f;",
            "for (std::int64_t i = 0; i < n; ++i) {\n        float v = 0.0f;")], [MATMUL, ATTENTION, PROGRAM]),
    Patch("scale-rounding", "the scale of a quantised group is multiplied by 1/127 instead of divided by 127",
          [(CPU + "matmul/quantise8_scalar.cpp", "*scales = a / 127.0f;", "*scales = a * (1.0f / 127.0f);"),
           (CPU + "matmul/quantise8_avx2.cpp", "*scales = a / 127.0f;", "*scales = a * (1.0f / 127.0f);"),
           (CPU + "matmul/quantise8_avx512.cpp", "tiny ? 0.0f : a / 127.0f", "tiny ? 0.0f : a * (1.0f / 127.0f)")],
          [MATMUL, ATTENTION, PROGRAM]),
    Patch("matmul-segment", "a segment of a row dot has 1024 inputs instead of 512",
          [(CPU + "matmul/packed_layout.h", "kSegmentBlocks = 8;", "kSegmentBlocks = 16;")], [MATMUL, PROGRAM]),
    Patch("attention-segment", "a segment of a cached row's dot has 1024 inputs instead of 512",
          [(CPU + "attention/twin.cpp", "kSegmentBlocks = 8;", "kSegmentBlocks = 16;")], [ATTENTION, PROGRAM]),
    Patch("merge-without-maximum", "the blocks of attention are merged without their maxima",
          [(CPU + "attention/twin.cpp", "exp32(maxima[b] - maximum);", "1.0f + 0.0f * maximum;"),
           (CPU + "attention/float_attention.cpp", "exp32(maxima[b] - maximum);", "1.0f + 0.0f * maximum;"),
           (CPU + "attention/mla_attention.cpp", "exp32(maxima[b] - maximum);", "1.0f + 0.0f * maximum;")], [ATTENTION, PROGRAM]),
    Patch("index-tie", "of equal index scores the highest position is kept",
          [(CPU + "attention/top_k.cpp", "    std::int64_t n_out = 0;\n    for_keys(",
            "    std::int64_t n_out = 0;\n    std::int64_t skip = -rank;\n    for_keys(\n"
            "        keys, [&](__m256i key) { return _mm256_cmpgt_epi32(key, below); },\n"
            "        [&](std::int64_t, std::uint32_t key) {\n            skip += key == threshold ? 1 : 0;\n            return true;\n"
            "        });\n    for_keys("),
           (CPU + "attention/top_k.cpp", "key > threshold || rank-- > 0", "key > threshold || skip-- <= 0")],
          [ATTENTION, PROGRAM]),
    Patch("router-tie", "of equally good experts the one with the higher number is chosen",
          [(CPU + "row_ops/route.cpp", "value[id] > value[list[at - 1]]", "value[id] >= value[list[at - 1]]")], [ROW_OPS, PROGRAM]),
    Patch("bias-in-weight", "the correction bias is part of an expert's weight",
          [(CPU + "row_ops/route.cpp", "gates[i] = row.scores[ids[i]];", "gates[i] = row.choice[ids[i]];")], [ROW_OPS, PROGRAM]),
    Patch("rank-order", "experts are summed in the order of their rank, not of their number",
          [(CPU + "row_ops/row_ops.cpp", "const std::int64_t rank = next_rank(ids, job.top_k, id);", "const std::int64_t rank = i;")],
          [ROW_OPS, PROGRAM]),
    Patch("denormals", "compute threads flush denormal numbers to zero",
          [(CPU + "thread_pool.cpp", "kContractMxcsr = 0x1F80;", "kContractMxcsr = 0x9FC0;")], [ROW_OPS, MATMUL, ATTENTION, PROGRAM]),
    Patch("latent-eps", "the latent norms use 1e-6, whatever eps the model asks for",
          [("engine/decoder/decoder.cpp", "options.latent_eps.value_or(config.rms_norm_eps)", "options.latent_eps.value_or(1e-6)")],
          [PROGRAM, MODELS]),
    Patch("cache-before-rope", "keys are written into the cache before they are rotated",
          [("engine/decoder/attention_block.cpp", "    rotate(kv, shape_.latent, 1, 0, batch, shape_.pairs);\n",
            "    ops_->write_mla_cache(rows, latent, key, scope);\n    rotate(kv, shape_.latent, 1, 0, batch, shape_.pairs);\n"),
           ("engine/decoder/attention_block.cpp", "shape_.pairs);\n    ops_->write_mla_cache(rows, latent, key, scope);\n\n", "shape_.pairs);\n\n")],
          [PROGRAM, MODELS]),
    Patch("rope-last-dims", "index keys and queries are rotated in their last numbers instead of their first",
          [("engine/decoder/attention_block.cpp", "rotate(k, 0, 1, 0,", "rotate(k, shape_.index_dim - shape_.rope, 1, 0,"),
           ("engine/decoder/attention_block.cpp", "rotate(q, 0, shape_.index_heads,", "rotate(q, shape_.index_dim - shape_.rope, shape_.index_heads,")],
          [PROGRAM, MODELS]),
    Patch("mtp-concat", "the draft layer gets hidden state and embedding the wrong way round",
          [("engine/decoder/decoder.cpp", "embedding{input.values, n,", "embedding{input.values + width, n,"),
           ("engine/decoder/decoder.cpp", "previous{input.values + width, n,", "previous{input.values, n,")], [PROGRAM, MODELS]),
    Patch("chain-without-itself", "a later draft does not attend to the drafts before it",
          [("engine/decoder/decoder.cpp", "        chain_selected_.push_back(position);\n", "")], [MODELS, PROGRAM]),
    Patch("draft-race", "later drafts race with the random numbers of the first one",
          [("engine/generate/session.cpp", "turn.sampler.draw(logits, n_tokens + k, context)", "turn.sampler.draw(logits, n_tokens, context)")],
          [MODELS, PROGRAM]),
    Patch("top-p", "top-p leaves out the token that fills the mass",
          [("engine/generate/sampler.cpp", "ranked_.erase(ranked_.begin(), end);",
            "ranked_.erase(ranked_.begin(), end + 1 < ranked_.end() ? end + 1 : end);")], [SAMPLER, PROGRAM, MODELS]),
]
