#!/usr/bin/python3
"""Draws random small models at check time and compares the program with the twin, bit for bit.

usage: random_check.py [--cli PATH_TO_terrace-cli] [--count N] [--seed S] [--keep DIR] [--verbose]
The seed is printed; --seed repeats a run. Without --cli only the twin is compared with itself (rows fed in pieces).
"""
import argparse
import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import time

import numpy as np

import contract as C
import random_model
from model_twin import SITES, Model, hash_of_rows

f32 = np.float32
DRAFTS = 3


class Tally:
    def __init__(self):
        self.equal, self.different = 0, 0

    def same(self, what, got, want):
        if got == want:
            self.equal += 1
            return True
        self.different += 1
        print(f"  DIFFERENT {what}\n    got      {str(got)[:400]}\n    expected {str(want)[:400]}", flush=True)
        return False


def answer(model, case, settings, pieces):
    """Ids and hash of the logits of every sampled position, the prompt fed in pieces of that many rows."""
    model.reset()
    for begin in range(0, len(case["prompt"]), pieces):
        model.forward(case["prompt"][begin:begin + pieces])
    ids = model.generate(case["n"], settings)
    first = len(case["prompt"]) - 1
    return dict(ids=ids, logits_hash=hash_of_rows(model.rows[p]["logits"] for p in range(first, first + case["n"])))


def cpu_flags():
    try:
        text = open("/proc/cpuinfo").read()
    except OSError:
        return set()
    return set(next((line for line in text.splitlines() if line.startswith("flags")), "").split())


def combinations(rng, case):
    """Options that must not change the text."""
    experts = case["config"]["n_routed_experts"]
    out = [[], ["--isa", "scalar", "--threads", "1"], ["--chunk", "1"],
           ["--chunk", str(int(rng.integers(2, 9))), "--threads", str(int(rng.integers(2, 6)))],
           ["--slots", str(max(2, case["config"]["num_experts_per_tok"] + int(rng.integers(0, experts))))], ["--slots", "all"]]
    flags = cpu_flags()
    if {"avx2", "fma", "f16c"} <= flags:
        out.append(["--isa", "avx2"])
    if "avx_vnni" in flags:
        out.append(["--isa", "avxvnni"])
    if "avx512_vnni" in flags:
        out.append(["--isa", "avx512"])
    if case["mtp"]:
        out.append(["--draft", str(int(rng.integers(1, 4)))])
        out.append(["--draft", "2", "--chunk", "3", "--isa", "scalar", "--slots", str(experts)])
    return out


def run_cli(cli, folder, case, options, context):
    command = [cli, "run", folder, "--ids", ",".join(map(str, case["prompt"])), "--n", str(case["n"]), "--ignore-eos", "--json",
               "--context", str(context)] + options
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        return command, -1, dict(error="no answer after 300 s")
    try:
        return command, done.returncode, json.loads(done.stdout)
    except json.JSONDecodeError:
        return command, done.returncode, dict(error=f"no JSON on stdout: {done.stdout[:200]!r} {done.stderr[-600:]!r}")


def check_run(t, cli, folder, case, options, want, context):
    command, code, got = run_cli(cli, folder, case, options, context)
    name = " ".join(options) or "default"
    if code != 0:
        t.same(f"{name}: exit status, error {json.dumps(got.get('error'))[:600]}\n    {' '.join(command)[:1500]}", code, 0)
        return
    good = t.same(f"{name}: ids", got.get("ids"), want["ids"])
    good &= t.same(f"{name}: logits_hash", got.get("logits_hash"), want["logits_hash"])
    t.same(f"{name}: arith_version", got.get("arith_version"), C.ARITH_VERSION)
    if not good:
        print("    " + " ".join(command)[:1500])


def read_arrays(path):
    kinds = dict(F32="<f4", I32="<i4", U8="u1", I64="<i8", BF16="<u2", F16="<u2", I8="i1", F8_E4M3="u1", F8_E8M0="u1")
    data = open(path, "rb").read()
    size = int.from_bytes(data[:8], "little")
    out = {}
    for name, e in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + o for o in e["data_offsets"])
            out[name] = np.frombuffer(data[begin:end], kinds[e["dtype"]]).reshape(e["shape"])
    return out


def expected_dump(model, case, ids, length):
    """The arrays of --dump for the first `length` positions of prompt and answer."""
    tokens = (case["prompt"] + ids)[:length]
    while len(model.tokens) < length:
        model.forward([tokens[len(model.tokens)]])
    rows = [model.rows[p] for p in range(length)]
    sparse = [i for i, l in enumerate(model.layers) if l.sparse]
    full = [i for i, l in enumerate(model.layers) if l.full]
    selected = np.zeros((len(full), length, length), np.uint8)
    for p, row in enumerate(rows):
        for at, i in enumerate(full):
            selected[at, p, row["selected"][i]] = 1
    return dict(input_ids=np.array(tokens, np.int32), logits=np.stack([r["logits"] for r in rows]),
                hidden=np.stack([np.stack([r["embedding"]] + r["residual"]) for r in rows], 1),
                final_norm=np.stack([r["final_norm"] for r in rows]),
                router_ids=np.stack([[r["experts"][i] for i in sparse] for r in rows], 1).astype(np.int32),
                router_weights=np.stack([[r["gates"][i] for i in sparse] for r in rows], 1).astype(f32), selected=selected)


def check_dump(t, cli, folder, case, model, ids, context):
    with tempfile.TemporaryDirectory() as temporary:
        path = os.path.join(temporary, "dump.safetensors")
        command, code, got = run_cli(cli, folder, case, ["--temperature", "0", "--dump", path], context)
        if not t.same(f"dump: exit status, error {json.dumps(got.get('error'))[:600]}", code, 0):
            return
        arrays = read_arrays(path)
    total = len(case["prompt"]) + len(ids)
    length = len(arrays.get("input_ids", []))
    if not t.same(f"dump: T is {length}, prompt and answer {total}", length in (total - 1, total), True):
        return
    for name, want in expected_dump(model, case, ids, length).items():
        have = arrays.get(name)
        if have is None or have.shape != want.shape:
            t.same(f"dump: shape of {name}", None if have is None else have.shape, want.shape)
            continue
        want = want.astype(have.dtype) if have.dtype.kind != "f" else want
        same = have.view(np.uint32) == want.view(np.uint32) if have.dtype == f32 else have == want
        t.same(f"dump: {name}: values that differ", int((~same).sum()), 0)
    if case["mtp"] and "mtp_logits" in arrays:
        check_dumped_drafts(t, model, arrays["mtp_logits"], (case["prompt"] + ids)[:length])


def check_dumped_drafts(t, model, have, tokens):
    """mtp_logits: row p was fed token p+1 and the hidden of row p; rows whose next token is known."""
    known = len(tokens) - 1
    if known < 1:
        return
    hidden = np.stack([model.rows[p]["final_norm"] for p in range(known)])
    want = model.mtp_rows(tokens[1:], hidden, list(range(known)))["logits"]
    same = have[:known].view(np.uint32) == want.view(np.uint32)
    t.same("dump: mtp_logits: values that differ", int((~same).sum()), 0)


def check_twin(t, model, case, settings, want, rng):
    """Chunks must not matter to the twin either (one row at a time for short prompts)."""
    pieces = int(rng.integers(1, 6)) if len(case["prompt"]) < 64 else int(rng.integers(40, 200))
    got = answer(model, case, settings, pieces)
    t.same(f"twin in pieces of {pieces}", got, want)


def check_speculation(t, model, case, settings, ids):
    """Drafts of a chain are repeated by feeding the same rows one at a time."""
    tokens = case["prompt"] + ids
    together = model.speculate(tokens, len(case["prompt"]), settings, DRAFTS)
    model.tokens = tokens[:-1]
    known = len(case["prompt"])
    z = None
    for p in range(known):  # row p eats token p+1
        z = model.mtp_rows([tokens[p + 1]], model.rows[p]["final_norm"][None], [p])
    t.same("drafts, rows one at a time", C.sample(z["logits"][0], tokens[:known + 1], settings), together[0]["drafts"][0])


def check_fault(t, cli, seed, out, case, context):
    """One token's embedding meets a huge norm weight: the program must name the smallest (row, layer, site)."""
    rng = np.random.default_rng([seed, 2])
    random_model.draw(seed, out, fault_token=case["prompt"][int(rng.integers(len(case["prompt"])))])
    model = Model(out, False, None, context)
    model.forward(case["prompt"])
    row, layer, site = min(model.faults)
    t.same("fault: the twin meets it in layer 0", (layer, SITES[site]), (0, "quantise"))
    for chunk in ("1", "4", "64") if cli else ():
        command, code, got = run_cli(cli, out, case, ["--temperature", "0", "--chunk", chunk], context)
        error = got.get("error") or {}
        text = json.dumps(error) if isinstance(error, dict) else str(error)
        numbers = {int(v) for v in re.findall(r"\b\d+\b", text)}
        t.same(f"fault, chunk {chunk}: status, names row {row}, layer {layer}, site {SITES[site]} in {text[:400]}",
               [code, row in numbers, layer in numbers, SITES[site] in text], [1, True, True, True])


def check_seed(t, seed, a):
    rng = np.random.default_rng([seed, 1])
    with tempfile.TemporaryDirectory() as temporary:
        out = os.path.join(a.keep, str(seed)) if a.keep else os.path.join(temporary, "model")
        case = random_model.draw(seed, out)
        c = case["config"]
        print(f"seed {seed}: {case['kind']}{', some float' if case['some_float'] else ''}, hidden {c['hidden_size']}, "
              f"{c['num_hidden_layers']} layers, {c['n_routed_experts']} experts top-{c['num_experts_per_tok']}, "
              f"index_topk {c['index_topk']}, {'MTP' if case['mtp'] else 'no MTP'}"
              f"{'' if case['mtp_indexer'] else ' without indexer'}, {len(case['prompt'])} + {case['n']} tokens", flush=True)
        begin = time.time()
        context = len(case["prompt"]) + case["n"] + 8
        greedy = C.Settings(defined=np.arange(random_model.DEFINED))
        sampled = C.Settings(temperature=0.9, top_p=0.93, top_k=40, seed=case["sampling_seed"], defined=greedy.defined)
        drawn = ["--temperature", "0.9", "--top-p", "0.93", "--top-k", "40", "--min-p", "0", "--seed",
                 str(case["sampling_seed"])]
        model = Model(out, False, None, context)
        random_answer = answer(model, case, sampled, 128)
        wanted = answer(model, case, greedy, 128)
        if a.cli:
            check_dump(t, a.cli, out, case, model, wanted["ids"], context)
            for options in combinations(rng, case):
                check_run(t, a.cli, out, case, ["--temperature", "0"] + options, wanted, context)
            check_run(t, a.cli, out, case, drawn, random_answer, context)
            if case["mtp"]:
                check_run(t, a.cli, out, case, drawn + ["--draft", "2", "--chunk", "7"], random_answer, context)
            if len(case["prompt"]) < 64:
                real = Model(out, True, None, context)
                check_run(t, a.cli, out, case, ["--temperature", "0", "--float"], answer(real, case, greedy, 128), context)
        else:
            if case["mtp"]:
                check_speculation(t, model, case, greedy, wanted["ids"])
            check_twin(t, model, case, greedy, wanted, rng)
        t.same("no numeric fault in the twin", model.faults, [])
        check_fault(t, a.cli, seed, out + " with a fault", case, context)
        if a.verbose:
            print(f"  {time.time() - begin:.1f} s", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cli")
    parser.add_argument("--count", type=int, default=4)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--keep")
    parser.add_argument("--verbose", action="store_true")
    a = parser.parse_args()
    first = a.seed if a.seed is not None else secrets.randbelow(10 ** 9)
    print(f"random_check.py --seed {first} --count {a.count} repeats this run", flush=True)
    t = Tally()
    for seed in range(first, first + a.count):
        check_seed(t, seed, a)
    print(f"{t.equal} comparisons equal, {t.different} different")
    return 1 if t.different or not t.equal else 0


if __name__ == "__main__":
    sys.exit(main())
