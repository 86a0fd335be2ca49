#!/usr/bin/python3
"""Compares contract.py with every entry of the operation vectors (vectors.json), bit for bit.

usage: check_vectors.py [--oracle DIR] [--verbose]     DIR holds vectors.json, or contract/vectors.json
"""
import argparse
import json
import os
import sys

import numpy as np

import contract as C

HERE = os.path.dirname(os.path.abspath(__file__))
f32, f64 = np.float32, np.float64


def bits32(text):
    return np.frombuffer(bytes.fromhex(text), ">u4").astype(np.uint32).view(f32)


def bits64(text):
    return np.frombuffer(bytes.fromhex(text), ">u8").astype(np.uint64).view(f64)


def int8s(text):
    return np.frombuffer(bytes.fromhex(text), np.int8)


class Tally:
    def __init__(self, verbose):
        self.equal, self.different, self.verbose, self.sections = 0, 0, verbose, {}

    def same(self, what, got, want):
        got, want = np.atleast_1d(got), np.atleast_1d(want)
        if want.dtype == f32:
            assert got.dtype == f32, (what, got.dtype)
            got, want = got.view(np.uint32), want.view(np.uint32)
        elif want.dtype == f64:
            assert got.dtype == f64, (what, got.dtype)
            got, want = got.view(np.uint64), want.view(np.uint64)
        ok = got.shape == want.shape and np.array_equal(got, want)
        section = self.sections.setdefault(what.split(" ")[0], [0, 0])
        section[0] += ok
        section[1] += not ok
        self.equal += ok
        self.different += not ok
        if not ok:
            print("DIFFERENT", what)
            if got.shape == want.shape:
                at = np.argwhere(got != want)[:4]
                for i in at:
                    i = tuple(i)
                    print("   at", i, "got", hex(int(got[i])), "expected", hex(int(want[i])))
            else:
                print("   shapes", got.shape, want.shape)


def check_quantise(t, entries):
    for i, e in enumerate(entries):
        q, s, fault = C.quantise8(bits32(e["x"]))
        t.same(f"quantise {i} q", q.reshape(-1).astype(np.int8), int8s(e["q"]))
        t.same(f"quantise {i} s", s, bits32(e["s"]))
        t.same(f"quantise {i} fault", bool(fault), bool(e["fault"]))


def check_rowdot(t, entries):
    for i, e in enumerate(entries):
        if "w" in e:
            w, x = int8s(e["w"]).reshape(-1, e["n"]), bits32(e["x"]).reshape(-1, e["n"])
        else:  # the entry at the limit is described in words: its note
            assert e["note"] == "w all -128; x all 1 but x[0] and x[700] = -1", e["note"]
            w, x = np.full((1, e["n"]), -128, np.int8), np.ones((1, e["n"]), f32)
            x[0, 0] = x[0, 700] = -1
        y = bits32(e["y"])
        m = C.Quantised(w, bits32(e["scales"]), e["group"])
        q, s, _ = C.quantise8(x)
        t.same(f"rowdot {i} bits {e['bits']} group {e['group']} n {e['n']}", m.rowdot(q, s).reshape(-1), y)
        many = np.concatenate([x, -x, x * f32(3)])  # a row is computed alone, whatever stands beside it
        q, s, _ = C.quantise8(many)
        t.same(f"rowdot {i} batch", m.rowdot(q, s)[:1].reshape(-1), y)


def check_reductions(t, entries):
    for i, e in enumerate(entries):
        x, w = bits32(e["x"]), bits32(e["w"])
        t.same(f"dot32 {i}", C.dot32(x, w), bits32(e["dot32"]))
        if "sum32" in e:
            t.same(f"sum32 {i}", C.sum32(x), bits32(e["sum32"]))
        if "rmsnorm_eps_1e-5" in e:
            t.same(f"rmsnorm {i}", C.rmsnorm(x, w, 1e-5), bits32(e["rmsnorm_eps_1e-5"]))
        if "layernorm_eps_1e-6" in e:
            t.same(f"layernorm {i}", C.layernorm(x, w, bits32(e["b"])), bits32(e["layernorm_eps_1e-6"]))


def check_exp(t, e):
    x = bits32(e["x"])
    t.same("exp list", C.exp32(x), bits32(e["exp"]))
    t.same("sigmoid list", C.sigmoid(x), bits32(e["sigmoid"]))
    g = np.where(np.isinf(x), f32(1), x)
    t.same("swiglu list", C.swiglu(g, bits32(e["swiglu_u"])), bits32(e["swiglu"]))
    for r in e["hash_of_ranges"]:
        patterns = np.arange(int(r["first"], 16), int(r["last"], 16) + 1, r["step"], dtype=np.uint64)
        y = C.exp32(patterns.astype(np.uint32).view(f32))
        t.same(f"exp hash from {r['first']}", C.fnv64(y.astype("<f4").tobytes()), int(r["fnv64_of_exp"], 16))


def check_binary64(t, e):
    def columns(rows):
        return [bits64("".join(r[k] for r in rows)) for k in range(len(rows[0]))]
    x, y = columns(e["ln"])
    t.same("ln64", C.ln64(x), y)
    x, y = columns(e["exp64"])
    t.same("exp64", C.exp64(x), y)
    a, b, y = columns(e["pow"])
    t.same("pow64", C.pow64(a, b), y)
    x, s, c = columns(e["x_sin_cos"])
    t.same("sin64", C.sincos64(x)[0], s)
    t.same("cos64", C.sincos64(x)[1], c)


def check_rope(t, v):
    for e in v["rope"]:
        d = e["d"]
        f = C.rope_frequencies(e["theta"], d)
        want = bits64("".join(e["f"]))
        t.same(f"rope d {d} frequencies", f[:len(want)], want)
        for p, pair in e["positions"].items():
            cos, sin = C.rope_table(f, [int(p)])
            n = len(pair["cos"]) // 8
            t.same(f"rope d {d} cos at {p}", cos[0, :n], bits32(pair["cos"]))
            t.same(f"rope d {d} sin at {p}", sin[0, :n], bits32(pair["sin"]))
        cos, sin = C.rope_table(f, np.arange(0, 1048576, 1013))
        data = np.stack([cos, sin], -1).astype("<f4").tobytes()
        t.same(f"rope d {d} hash", C.fnv64(data), int(e["fnv64_cos_sin_pairs_every_1013th_position_j_inner"], 16))
    e = v["rope_pair"]
    cos, sin = C.rope_table(C.rope_frequencies(e["theta"], e["d"]), [e["p"]])
    x = np.zeros(e["d"], f32)
    x[2 * e["j"]], x[2 * e["j"] + 1] = bits32(e["a"])[0], bits32(e["b"])[0]
    y = C.rope(x, cos[0], sin[0], True)
    t.same("rope_pair", y[2 * e["j"]:2 * e["j"] + 2], bits32(e["a'"] + e["b'"]))
    half = np.zeros(e["d"], f32)
    half[e["j"]], half[e["j"] + e["d"] // 2] = bits32(e["a"])[0], bits32(e["b"])[0]
    y = C.rope(half, cos[0], sin[0], False)
    t.same("rope_pair half", y[[e["j"], e["j"] + e["d"] // 2]], bits32(e["a'"] + e["b'"]))
    e = v["yarn"]
    f = C.yarn_frequencies(e["theta"], e["d"], e["factor"], e["original"], e["fast"], e["slow"])
    t.same("yarn frequencies", f, bits64("".join(e["f"])))
    m = C.yarn_m(1, e["factor"])
    t.same("yarn m", f64(m), bits64(e["m_1"]))
    t.same("yarn softmax scale", C.inverse_sqrt(192, m * m), bits32(e["softmax_scale_192"]))
    for d, want in v["inverse_square_roots"].items():
        t.same(f"inverse_sqrt {d}", C.inverse_sqrt(int(d)), bits32(want))


class SplitMix:
    def __init__(self, seed):
        self.state = seed

    def next(self):
        mask = 0xFFFFFFFFFFFFFFFF
        self.state = (self.state + 0x9E3779B97F4A7C15) & mask
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    def number(self, factor):
        a = self.next() >> 32
        a = (a - (1 << 32) if a >> 31 else a) * 2.0 ** -31
        e = self.next() & 7
        return f32(f32(a) * f32(2.0 ** -e * factor))


def check_attention(t, entries):
    for e in entries:
        n, latent, rope = e["keys"], e["latent"], e["rope"]
        rng = SplitMix(e["seed"])
        query = np.array([rng.number(4.0) for _ in range(latent + rope)], f32)
        keys = np.array([[rng.number(1.0) for _ in range(latent + rope)] for _ in range(n)], f32)
        name = f"attention {n} keys"
        t.same(name + " generator: q", query, bits32(e["q"]))
        t.same(name + " generator: first key", keys[0], bits32(e["first_key"]))
        t.same(name + " generator: keys", C.fnv64(keys.astype("<f4").tobytes()), int(e["fnv64_of_keys"], 16))
        scale = bits32(e["scale"])[0]
        cq, cs, _ = C.quantise8(keys[:, :latent])
        kq, ks, _ = C.quantise8(keys[:, latent:])
        first = np.concatenate([cq[0].reshape(-1), kq[0].reshape(-1)]).astype(np.int8)
        want = int8s(e["first_key_q"])
        if len(want) == latent + rope:
            first = np.concatenate([cq[0].reshape(-1)[:latent], kq[0].reshape(-1)[:rope]]).astype(np.int8)
        t.same(name + " cached row", first, want)
        t.same(name + " cached scales", np.concatenate([cs[0], ks[0]]), bits32(e["first_key_s"]))
        qa, qr = query[None, None, :latent], query[None, None, latent:]
        padded = np.concatenate([C.pad_to(qa, 64), C.pad_to(qr, 64)], -1)
        q, s, _ = C.quantise8(padded)
        score = C.all_scores((q, s), np.concatenate([cq, kq], 1), np.concatenate([cs, ks], 1), scale)
        t.same(name + " first score", score[0, 0, 0], bits32(e["first_score"]))
        everything = [np.arange(n)]
        z, _, _ = C.attention(qa, qr, (cq, cs, kq, ks), everything, scale)
        t.same(name + " z", z[0, 0], bits32(e["z"]))
        z, _ = C.attention_float(qa, qr, keys[:, :latent], keys[:, latent:], everything, scale)
        t.same(name + " z of a float session", z[0, 0], bits32(e["z_float_session"]))


def check_absorbed(t, entries):
    for i, e in enumerate(entries):
        w = int8s(e["w"]).reshape(e["nope"], e["kv_lora"])
        y, _ = C.column_sum(bits32(e["q_nope"]), C.Quantised(w, bits32(e["scales"]), e["group"]))
        t.same(f"absorbed_query {i} rows {e['nope']} group {e['group']}", y, bits32(e["qa"]))


def check_indexer(t, e):
    d, h = e["d"], e["heads"]
    q, s, _ = C.quantise8(bits32(e["q"]).reshape(1, h, d))
    kq, ks, _ = C.quantise8(bits32(e["k"]).reshape(1, d))
    dots = C.all_scores((q, s), kq, ks, C.inverse_sqrt(d))
    score = C.index_scores(dots, bits32(e["w"]).reshape(1, h), h)
    t.same("indexer score", score[0], bits32(e["score"]))


def check_routers(t, v):
    for i, e in enumerate(v["router_sigmoid"]):
        chosen, g, s = C.route_sigmoid(bits32(e["logits"]), bits32(e["bias"]), e["k"], float(e["factor"]))
        t.same(f"router_sigmoid {i} chosen", chosen, np.array(e["chosen"]))
        t.same(f"router_sigmoid {i} weights", g, bits32(e["weights"]))
        t.same(f"router_sigmoid {i} s", s, bits32(e["s"]))
    for i, e in enumerate(v["router_softmax"]):
        for key, options in (("after_topk", dict(after=True)), ("before_topk", {}),
                             ("before_topk_norm", dict(norm=True))):
            chosen, g = C.route_softmax(bits32(e["logits"]), e["k"], **options)
            t.same(f"router_softmax {i} chosen", chosen, np.array(e["chosen"]))
            t.same(f"router_softmax {i} {key}", g, bits32(e[key]))
    e = v["router_groups"]
    choice = bits32(e["choice"])
    mask, kept = C.limit_groups(choice, e["groups"], e["keep"])
    t.same("router_groups kept", kept, np.array(sorted(e["kept"])))
    t.same("router_groups chosen", C.choose(choice, e["k"], mask), np.array(e["chosen"]))
    e = v["expert_sum"]
    ids = sorted(int(k[2:]) for k in e if k.startswith("g_"))
    acc = np.zeros(len(e["h"]) // 8, f32)
    for k in ids:
        acc = C.fma32(bits32(e[f"g_{k}"])[0], bits32(e[f"expert_{k}"]), acc)
    t.same("expert_sum", bits32(e["h"]) + (acc + bits32(e["shared"])), bits32(e["h'"]))


def check_sampler(t, v):
    for i, e in enumerate(v["philox4x32_10"]):
        key, counter = (np.frombuffer(bytes.fromhex(e[k]), ">u4") for k in ("key", "counter"))
        words = C.philox([int(k) for k in key], [np.array([c]) for c in counter])
        want = np.frombuffer(bytes.fromhex(e["words"]), ">u4")
        t.same(f"philox {i}", np.array([int(w[0]) for w in words]), want.astype(np.int64))
    for i, e in enumerate(v["race_E"]):
        t.same(f"race_E {i}", C.race_e(int(e["seed"]), e["position"], [e["id"]]), bits64(e["E"]))
    for i, e in enumerate(v["sampler"]):
        s = C.Settings(e["temperature"], e["top_k"], e["top_p"], e["min_p"], e["repetition"], e["frequency"],
                       e["presence"], e["last_n"], e["bias"], int(e["seed"]), np.arange(e["defined_ids"]))
        context, winners = list(e["context"]), []
        for step in range(8):
            winners.append(C.sample(bits32(e["logits"]), context, s))
            context.append(context[step])
        t.same(f"sampler {i}", np.array(winners), np.array(e["winners_at_next_8_positions"]))


def half_to_float(h):
    return h.view(np.float16).astype(f32)


def check_binary16(t, e):
    half = np.frombuffer(bytes.fromhex(e["half"]), ">u2").astype(np.uint16)
    x = bits32(e["x"])
    with np.errstate(all="ignore"):
        t.same("binary16 from binary32", x.astype(np.float16).view(np.uint16), half)
    exact = half_to_float(x.astype(np.float16).view(np.uint16))  # widening a half is exact: it comes back
    t.same("binary16 to binary32", exact.astype(np.float16).view(np.uint16), half)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--oracle", default=os.path.join(HERE, "..", "data", "contract"))
    parser.add_argument("--verbose", action="store_true")
    a = parser.parse_args()
    path = next((p for p in (os.path.join(a.oracle, "vectors.json"), os.path.join(a.oracle, "contract", "vectors.json"))
                 if os.path.exists(p)), None)
    if path is None:
        sys.exit(f"no vectors.json in {a.oracle}: name the folder with --oracle DIR")
    v = json.load(open(path))
    t = Tally(a.verbose)
    checks = dict(quantise=check_quantise, rowdot=check_rowdot, reductions=check_reductions, exp=check_exp,
                  binary64=check_binary64, attention=check_attention, absorbed_query=check_absorbed,
                  indexer=check_indexer, binary16=check_binary16)
    together = dict(rope=("rope", "rope_pair", "yarn", "inverse_square_roots"),
                    routers=("router_sigmoid", "router_softmax", "router_groups", "expert_sum"),
                    sampler=("philox4x32_10", "race_E", "sampler"))
    for name, check in checks.items():
        check(t, v[name])
    check_rope(t, v)
    check_routers(t, v)
    check_sampler(t, v)
    known = set(checks) | {k for names in together.values() for k in names} | {"format"}
    for name in sorted(set(v) - known):
        t.same(f"{name}: no check is written for this entry", 0, 1)
    for name, (good, bad) in t.sections.items():
        if a.verbose or bad:
            print(f"{name:16} {good} equal, {bad} different")
    print(f"{t.equal} comparisons equal, {t.different} different ({path})")
    return 1 if t.different else 0


if __name__ == "__main__":
    sys.exit(main())
