#!/usr/bin/python3
"""Writes tests/data/contract/more_vectors.json: operations that vectors.json leaves open or decides by one number only,
computed by contract.py. Same notation: hex digits of the bits. Without --write it compares with the file instead.

usage: make_more_vectors.py [--write]
"""
import json
import os
import sys

import numpy as np

import contract as C

f32 = np.float32
PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "contract", "more_vectors.json")


def hex32(x):
    return np.ascontiguousarray(x, f32).astype(">f4").tobytes().hex()


def hex8(q):
    return np.ascontiguousarray(q, np.int8).tobytes().hex()


def indexer(rng):
    """All index scores of one query against many keys: order of heads, and where the head weight is scaled."""
    out = []
    for heads, d, keys in ((5, 24, 40), (32, 128, 24), (3, 72, 40)):
        q, k, w = (rng.standard_normal(s).astype(f32) for s in ((1, heads, d), (keys, d), (1, heads)))
        qq, qs, _ = C.quantise8(q)
        kq, ks, _ = C.quantise8(k)
        score = C.index_scores(C.all_scores((qq, qs), kq, ks, C.inverse_sqrt(d)), w, heads)[0]
        out.append(dict(heads=heads, d=d, keys=keys, q=hex32(q), k=hex32(k), w=hex32(w), scores=hex32(score),
                        first_7_of_the_order=[int(i) for i in C.order(score)[:7]]))
    return out


def absorbed_float(rng):
    """kv_b stored as float: qa_j = fma(K_dj, q_nope[d], acc), d ascending from +0."""
    p, w = rng.standard_normal(37).astype(f32), rng.standard_normal((37, 19)).astype(f32)
    return dict(nope=37, kv_lora=19, q_nope=hex32(p), w_float=hex32(w), qa=hex32(C.column_fma(p, w)))


def merge(rng):
    """Merge of three blocks, without and with a sink (below and above every block's maximum)."""
    m, s = rng.standard_normal(3).astype(f32) * f32(4), (1 + rng.random(3) * 90).astype(f32)
    z = rng.standard_normal((3, 11)).astype(f32)
    there = np.ones(3, bool)
    out = dict(blocks=3, width=11, m=hex32(m), s=hex32(s), z_b=hex32(z), z=hex32(C.merge_blocks(m, s, z, there)))
    for name, sink in (("low", f32(m.min() - 1)), ("high", f32(m.max() + 2))):
        out[f"sink_{name}"], out[f"z_sink_{name}"] = hex32(sink), hex32(C.merge_blocks(m, s, z, there, sink))
    return out


def gated(rng):
    g, u = (np.concatenate([rng.standard_normal(24) * 3, [9, -9, 7, -7, 0, 0]]).astype(f32) for _ in range(2))
    return dict(g=hex32(g), u=hex32(u), swiglu=hex32(C.swiglu(g, u)), gpt_oss=hex32(C.swiglu_gpt_oss(g, u)))


def router_sum_order(rng):
    """Sigmoid routing where the sum in rank order and the sum in id order differ."""
    out = []
    while len(out) < 4:
        logits, bias = rng.standard_normal(16).astype(f32), (rng.standard_normal(16) * 0.1).astype(f32)
        chosen, g, s = C.route_sigmoid(logits, bias, 6, 2.5)
        if C.sequential_sum(s[chosen]) != C.sequential_sum(s[np.sort(chosen)]):
            out.append(dict(logits=hex32(logits), bias=hex32(bias), k=6, factor="2.5", chosen=[int(i) for i in chosen],
                            weights=hex32(g)))
    return out


def sampler(rng):
    """Penalties in greedy choice, their order, min-p after top-p, exact ties."""
    cases = []

    def case(note, logits, context, **options):
        logits = np.asarray(logits, f32)
        s = C.Settings(**options)
        ids, grown = [], list(context)
        for step in range(8):
            ids.append(C.sample(logits, grown, s))
            grown.append(grown[step])
        cases.append(dict(note=note, logits=hex32(logits), context=context, winners_at_next_8_positions=ids,
                          **{k: str(v) if k == "seed" else v for k, v in options.items()}))

    context = [int(v) for v in rng.integers(0, 24, 9)]
    l = (rng.standard_normal(24) * 2).astype(f32)
    top = int(l.argmax())
    case("greedy counts penalties", l, [top] * 9, temperature=0.0, repetition=3.0, frequency=0.5, presence=0.5, last_n=64)
    case("last_n 0: no penalty at all", l, [top] * 9, temperature=0.0, repetition=3.0, frequency=5.0, presence=5.0, last_n=0)
    case("repetition before presence", [4.0, 3.37] + [-9.0] * 22, [0] * 9, temperature=0.0, repetition=1.1, frequency=0.0,
         presence=0.28, last_n=9)
    flat = np.log(np.array([40, 20, 10, 8, 6, 5, 4, 3, 2, 1, 1])).astype(f32)
    for seed in range(6):
        case("min-p after top-p", flat, [0, 1, 2, 3, 4, 5, 6, 7, 8], temperature=1.0, top_p=0.8, min_p=0.11, seed=100 + seed)
        case("top-k before top-p", flat, [0, 1, 2, 3, 4, 5, 6, 7, 8], temperature=1.3, top_k=4, top_p=0.9, seed=200 + seed)
    for top_p in (0.3, 0.6, 0.7):  # the boundary of a sum of ten equal weights
        case("top-p on the boundary", [1.0] * 10, [0] * 9, temperature=1.0, top_p=top_p, seed=300)
    case("ties: the lower id", np.zeros(24), context, temperature=0.0)
    return cases


def make():
    rng = np.random.default_rng(20240901)
    return dict(format="as vectors.json; made by tests/oracle/make_more_vectors.py", arith_version=C.ARITH_VERSION,
                indexer=indexer(rng), absorbed_query_float=absorbed_float(rng), merge=merge(rng), gated=gated(rng),
                router_sigmoid=router_sum_order(rng), sampler=sampler(rng))


def main():
    made = json.loads(json.dumps(make()))
    if "--write" in sys.argv[1:]:
        with open(PATH, "w") as f:
            json.dump(made, f, indent=1)
            f.write("\n")
        return 0
    kept = json.load(open(PATH))
    different = [k for k in set(made) | set(kept) if made.get(k) != kept.get(k)]
    print(f"{len(made) - len(different)} sections equal, different: {different or 'none'}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
