#!/usr/bin/python3
"""Writes small seeded glm_moe_dsa checkpoints: `tiny81` (float32), `small` and `wide` (bf16; wide is the wide-tiny
model of docs/arithmetic.md 7), and with --container the same as a reference container with mixed scale groups.

usage: wide_tiny.py tiny81|small|wide OUT [--container]
"""
import json
import os
import sys

import numpy as np

from folder import pack_int4, quantise_matrix, save_safetensors, to_bf16, widen_bf16

f32, f64 = np.float32, np.float64


def fnv32(text):
    x = 2166136261
    for b in text.encode():
        x = (x ^ b) * 16777619 & 0xFFFFFFFF
    return x


def values(name, n):
    """x <- 1664525 x + 1013904223 mod 2^32 from the name's hash, (x >> 8)/2^24 - 0.5; the k-th step by doubling."""
    a, c = np.ones(n, np.uint64), np.zeros(n, np.uint64)
    k = np.arange(1, n + 1, dtype=np.uint64)
    ma, mc, mask = 1664525, 1013904223, np.uint64(0xFFFFFFFF)
    for b in range(max(1, int(n).bit_length())):
        on = (k >> np.uint64(b)) & np.uint64(1) == 1
        a[on], c[on] = (a[on] * np.uint64(ma)) & mask, (c[on] * np.uint64(ma) + np.uint64(mc)) & mask
        ma, mc = ma * ma & 0xFFFFFFFF, (ma * mc + mc) & 0xFFFFFFFF
    x = (a * np.uint64(fnv32(name)) + c) & mask
    return (x >> np.uint64(8)).astype(f64) / 2 ** 24 - 0.5


BASE = dict(architectures=["GlmMoeDsaForCausalLM"], model_type="glm_moe_dsa", attention_bias=False, hidden_act="silu",
            n_shared_experts=1, n_group=1, topk_group=1, topk_method="noaux_tc", scoring_func="sigmoid",
            norm_topk_prob=True, routed_scaling_factor=2.5, index_share_for_mtp_iteration=True,
            indexer_rope_interleave=True, rope_interleave=True, rms_norm_eps=1e-5, num_nextn_predict_layers=1,
            tie_word_embeddings=False, eos_token_id=[0], max_position_embeddings=4096)


def shape(vocab, hidden, layers, dense, types, heads, q_rank, latent, nope, rope, v, index_heads, index_dim, topk, experts, k,
          width, dense_width, theta):
    return dict(BASE, vocab_size=vocab, hidden_size=hidden, num_hidden_layers=layers, first_k_dense_replace=dense,
                mlp_layer_types=["dense"] * dense + ["sparse"] * (layers - dense),
                indexer_types=["full" if t == "F" else "shared" for t in types], num_attention_heads=heads,
                num_key_value_heads=heads, q_lora_rank=q_rank, kv_lora_rank=latent, qk_nope_head_dim=nope,
                qk_rope_head_dim=rope, qk_head_dim=nope + rope, v_head_dim=v, head_dim=rope, index_n_heads=index_heads,
                index_head_dim=index_dim, index_topk=topk, n_routed_experts=experts, num_experts_per_tok=k,
                moe_intermediate_size=width, intermediate_size=dense_width,
                rope_parameters=dict(rope_theta=theta, rope_type="default"))


KINDS = dict(tiny81=shape(32, 16, 4, 1, "FFSF", 2, 12, 8, 6, 4, 8, 8, 8, 3, 6, 2, 6, 20, 10000),
             small=shape(64, 520, 3, 2, "FFS", 2, 40, 40, 12, 8, 20, 3, 24, 5, 4, 2, 20, 72, 8000000),
             wide=shape(96, 1160, 2, 1, "FF", 4, 136, 192, 24, 16, 40, 4, 48, 5, 4, 2, 584, 584, 8000000))


def tensors(c, mtp=True, mtp_indexer=True):
    """name -> shape of every tensor of a config."""
    h, heads, n = c["hidden_size"], c["num_attention_heads"], c["num_hidden_layers"]
    q_rank, latent, nope, rope, v = (c[k] for k in ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim",
                                                    "v_head_dim"))
    t = {"model.embed_tokens.weight": (c["vocab_size"], h), "lm_head.weight": (c["vocab_size"], h), "model.norm.weight": (h,)}

    def ffn(prefix, width):
        t.update({prefix + "gate_proj.weight": (width, h), prefix + "up_proj.weight": (width, h),
                  prefix + "down_proj.weight": (h, width)})

    for l in range(n + mtp):
        p, a, m = f"model.layers.{l}.", f"model.layers.{l}.self_attn.", f"model.layers.{l}.mlp."
        t.update({p + "input_layernorm.weight": (h,), p + "post_attention_layernorm.weight": (h,),
                  a + "q_a_proj.weight": (q_rank, h), a + "q_a_layernorm.weight": (q_rank,),
                  a + "q_b_proj.weight": (heads * (nope + rope), q_rank),
                  a + "kv_a_proj_with_mqa.weight": (latent + rope, h), a + "kv_a_layernorm.weight": (latent,),
                  a + "kv_b_proj.weight": (heads * (nope + v), latent), a + "o_proj.weight": (h, heads * v)})
        if mtp_indexer if l == n else c["indexer_types"][l] == "full":
            d, x = c["index_head_dim"], a + "indexer."
            t.update({x + "wq_b.weight": (c["index_n_heads"] * d, q_rank), x + "wk.weight": (d, h), x + "k_norm.weight": (d,),
                      x + "k_norm.bias": (d,), x + "weights_proj.weight": (c["index_n_heads"], h)})
        if l < c["first_k_dense_replace"]:
            ffn(m, c["intermediate_size"])
        else:
            experts = c["n_routed_experts"]
            t.update({m + "gate.weight": (experts, h), m + "gate.e_score_correction_bias": (experts,)})
            if c["n_shared_experts"]:
                ffn(m + "shared_experts.", c["moe_intermediate_size"] * c["n_shared_experts"])
            for e in range(c["n_routed_experts"]):
                ffn(f"{m}experts.{e}.", c["moe_intermediate_size"])
        if l == n:
            t.update({p + "eh_proj.weight": (h, 2 * h), p + "enorm.weight": (h,), p + "hnorm.weight": (h,),
                      p + "shared_head.norm.weight": (h,)})
    return t


def weights(c, kind):
    w, plain = {}, kind == "tiny81"
    for name, s in tensors(c).items():
        v = values(name + ("" if plain else "#" + kind), int(np.prod(s))).reshape(s)
        if name.endswith("e_score_correction_bias"):
            v = v if plain else 6.9 + 0.2 * v
        elif name.endswith("k_norm.bias"):
            v = 0.5 * v
        elif len(s) == 1:
            v = 1 + 0.5 * v
        elif name == "model.embed_tokens.weight":
            v = 2 * v
        elif not plain:  # unit gain
            v = v * f64(3.4640625 * (3 if name == "lm_head.weight" else 1.5)) / np.sqrt(f64(s[1]))
        w[name] = v.astype(f32)
    return w


def mixed_group(name):
    return (32, 64, 0, 16)[sum(name.encode()) % 4]


def write_checkpoint(out, config, w, as_float32=False):
    """A Hugging Face folder with one file: bf16, the correction bias float32."""
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
    items = {}
    for name, v in w.items():
        if as_float32 or name.endswith("e_score_correction_bias"):
            items[name] = ("F32", v.shape, v.astype("<f4").tobytes())
        else:
            items[name] = ("BF16", v.shape, to_bf16(v).tobytes())
    save_safetensors(os.path.join(out, "model.safetensors"), items)


def write_container(out, config, w, group_of=mixed_group, stay_float=()):
    """A reference container: int8 per row for embed, head, indexers and MTP, else int4 with group_of(name)."""
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
    items, n = {}, config["num_hidden_layers"]
    for name, v in w.items():
        if not name.endswith("e_score_correction_bias"):
            v = widen_bf16(to_bf16(v)).reshape(v.shape)
        if v.ndim == 1 or name.endswith("mlp.gate.weight") or name in stay_float:
            items[name] = ("F32", v.shape, v.astype("<f4").tobytes())
            continue
        eight = (name in ("model.embed_tokens.weight", "lm_head.weight") or ".indexer." in name
                 or name.startswith(f"model.layers.{n}."))
        q, s = quantise_matrix(v, 8 if eight else 4, 0 if eight else group_of(name))
        payload = q.tobytes() if eight else pack_int4(q).tobytes()
        items[name] = ("U8", (len(payload),), payload)
        items[name + ".qs"] = ("F32", (s.size,), s.astype("<f4").tobytes())
    ordered = dict(sorted(items.items(), key=lambda item: (item[1][0] != "F32", item[0])))
    save_safetensors(os.path.join(out, "out-00000.safetensors"), ordered)


def write(kind, out, container=False):
    config = dict(KINDS[kind], dtype="float32" if kind == "tiny81" else "bfloat16")
    w = weights(config, kind)
    if container:
        write_container(out, config, w)
    else:
        write_checkpoint(out, config, w, kind == "tiny81")


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in KINDS:
        sys.exit(__doc__)
    write(sys.argv[1], sys.argv[2], "--container" in sys.argv[3:])
