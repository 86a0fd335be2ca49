#!/usr/bin/python3
"""Compares model_twin.py with the recorded hashes of whole models (golden.json).

usage: check_models.py [--golden FILE] [--demo FOLDER] [--quick] [--only TEXT]
The models small, small-mixed and wide-tiny are generated; demo models need FOLDER. --quick takes the shortest prompt
of each model and, of its answers, the greedy one.
"""
import argparse
import json
import os
import sys
import tempfile
import time

import numpy as np

import contract as C
import wide_tiny
from model_twin import Model, bits_of, describe, hash_of, hash_of_rows, ranges

HERE = os.path.dirname(os.path.abspath(__file__))


class Tally:
    def __init__(self):
        self.equal, self.different = 0, 0

    def same(self, what, got, want):
        if got == want:
            self.equal += 1
        else:
            self.different += 1
            print(f"  DIFFERENT {what}\n    got      {str(got)[:300]}\n    expected {str(want)[:300]}", flush=True)


def check_row(t, what, got, want):
    for key in want:
        if isinstance(want[key], list) and len(want[key]) == len(got[key]):
            for i, (g, w) in enumerate(zip(got[key], want[key])):
                t.same(f"{what} {key} of layer {i}", g, w)
        else:
            t.same(f"{what} {key}", got[key], want[key])


def check_mtp_row(t, model, want, rounds):
    """The MTP row after the prompt, fed with the greedy token, is step 0 of the first greedy round."""
    first, r = rounds[0]["first"], rounds[0]
    got = dict(position=r["position"] - 1, draft=r["drafts"][0], token_fed=model.tokens[r["position"]],
               logits=hash_of(r["logits"][0]), second_step_logits=hash_of(r["logits"][1]),
               residual=[hash_of(first["y"][0])], selected=[ranges(first["selected"][0])],
               experts=[first["experts"][0].tolist()], gates=[bits_of(first["gates"][0])])
    for key in want:
        if key in got:
            t.same(f"mtp row {key}", got[key], want[key])
        else:
            t.same(f"mtp row: {key} is not computed", 0, 1)


def check_answer(t, model, name, prompt, want, settings):
    n = len(want["ids"])
    ids = model.generate(n, settings)
    t.same(f"{name} ids", ids, want["ids"])
    t.same(f"{name} logits_all", hash_of_rows(model.rows[p]["logits"] for p in range(len(prompt) + n - 1)), want["logits_all"])
    if "mtp_rounds" not in want:
        return None
    depth = len(want["accepted_of_tried_by_depth"])
    rounds = model.speculate(prompt + ids, len(prompt), settings, depth)
    for got, w in zip(rounds, want["mtp_rounds"]):
        t.same(f"{name} round at {w['position']}", [got["position"], got["drafts"], got["accepted"],
                                                   [hash_of(l) for l in got["logits"]]],
               [w["position"], w["drafts"], w["accepted"], w["draft_logits"]])
    t.same(f"{name} rounds", len(rounds), want["rounds"])
    tried = [[sum(r["accepted"] > d for r in rounds), sum(r["accepted"] >= d for r in rounds)] for d in range(depth)]
    t.same(f"{name} accepted of tried", tried, want["accepted_of_tried_by_depth"])
    return rounds


def check_prompt(t, model, want, quick):
    prompt = want["ids"]
    model.reset()
    model.forward(prompt)
    last = len(prompt) - 1
    t.same("logits_all", hash_of_rows(model.rows[p]["logits"] for p in range(last + 1)), want["logits_all"])
    t.same("last logits", bits_of(model.rows[last]["logits"][:8]), want["last_logits_first_8"])
    if "row_3" in want:
        check_row(t, "row 3", describe(3, model.rows[3]), want["row_3"])
    check_row(t, "last row", describe(last, model.rows[last]), want["last_row"])
    state = (list(model.tokens), dict(model.rows))
    rounds = check_answer(t, model, "greedy", prompt, want["greedy"], C.Settings())
    if "mtp_last_row" in want and rounds:
        check_mtp_row(t, model, want["mtp_last_row"], rounds)
    if quick:
        return
    model.tokens, model.rows = state
    sampled = want["sampled"]
    settings = C.Settings(temperature=1.0, top_p=0.95, seed=int(sampled["seed"]))
    check_answer(t, model, "sampled", prompt, sampled, settings)


def folder_of(entry, demo, temporary):
    """The folder of a recorded model, generated when it can be; None when it is not there."""
    name = os.path.basename(entry.get("folder", entry["name"]))
    if name.startswith("demo"):
        return demo
    kind, container = "small" if name.startswith("small") else "wide", "mixed" in name
    path = os.path.join(temporary, f"{kind}{'-mixed' if container else ''}")
    if not os.path.exists(path):
        wide_tiny.write(kind, path, container)
    return path


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--golden", default=os.path.join(HERE, "..", "data", "contract", "golden.json"))
    parser.add_argument("--demo")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    a = parser.parse_args()
    golden = json.load(open(a.golden))
    assert golden["arith_version"] == C.ARITH_VERSION
    t, skipped = Tally(), []
    with tempfile.TemporaryDirectory() as temporary:
        for entry in golden["models"]:
            if a.only not in entry["name"] or "prompts" not in entry:
                continue
            path = folder_of(entry, a.demo, temporary)
            if path is None or not os.path.exists(os.path.join(path, "config.json")):
                skipped.append(entry["name"])
                continue
            options = entry["options"]
            topk = int(options[options.index("--index-topk") + 1]) if "--index-topk" in options else None
            prompts = sorted(entry["prompts"], key=lambda p: len(p["ids"]))
            model = Model(path, "--float" in options, topk, len(prompts[-1]["ids"]) + 48)
            for want in prompts[:1] if a.quick else prompts:
                begin, before = time.time(), (t.equal, t.different)
                check_prompt(t, model, want, a.quick)
                print(f"{entry['name']}, {len(want['ids'])} tokens: {t.equal - before[0]} equal, "
                      f"{t.different - before[1]} different, {time.time() - begin:.1f} s", flush=True)
    for name in skipped:
        print(f"skipped: {name} (name the demo model's folder with --demo)")
    print(f"{t.equal} comparisons equal, {t.different} different, {len(skipped)} models skipped")
    return 1 if t.different or not t.equal else 0


if __name__ == "__main__":
    sys.exit(main())
