#!/usr/bin/python3
"""Compares a float session of the twin with models computed by another library (Hugging Face transformers): does it
compute the right function? Tolerances and exact arrays are those of each model's golden.json.

usage: check_float.py --models DIR [--only TEXT]     DIR holds one folder a model; absent: says so and ends with 77
"""
import argparse
import json
import os
import sys

import numpy as np

from model_twin import Model
from random_check import expected_dump, read_arrays


def compare(name, array, got, want, rules):
    if got.shape != want.shape:
        print(f"  DIFFERENT {name} {array}: shape {got.shape}, expected {want.shape}")
        return False
    if want.dtype.kind != "f":
        wrong = int((got != want).sum())
        if wrong:
            print(f"  DIFFERENT {name} {array}: {wrong} values")
        return not wrong
    distance = float(np.abs(got - want).max())
    allowed = rules["max_abs_difference_float32"].get(array.replace("mtp_router", "router"))
    if allowed is None or not distance <= allowed:
        print(f"  DIFFERENT {name} {array}: distance {distance}, allowed {allowed}")
        return False
    return True


def check(path, name):
    golden = json.load(open(os.path.join(path, "golden.json")))
    arrays = read_arrays(os.path.join(path, "golden.safetensors"))
    ids = arrays["input_ids"].tolist()
    model = Model(path, True, None, len(ids) + 8)
    model.forward(ids)
    got = expected_dump(model, dict(prompt=ids), [], len(ids))
    if "mtp_logits" in arrays and model.mtp:
        tokens = ids[1:] + [int(arrays["greedy_ids"][0])]
        hidden = np.stack([model.rows[p]["final_norm"] for p in range(len(ids))])
        out = model.mtp_rows(tokens, hidden, list(range(len(ids))))
        got.update(mtp_logits=out["logits"], mtp_hidden=out["z"], mtp_router_ids=out["experts"],
                   mtp_router_weights=out["gates"])
    shared = [k for k in got if k in arrays]
    good = [compare(name, k, got[k], arrays[k], golden["test"]) for k in shared]
    print(f"{name}: {sum(good)} of {len(good)} arrays agree", flush=True)
    return all(good) and len(good) > 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", required=True)
    parser.add_argument("--only", default="")
    a = parser.parse_args()
    if not os.path.isdir(a.models):
        print(f"skipped: every model of the float path ({a.models} is not there)")
        return 77
    good = []
    for name in sorted(os.listdir(a.models)):
        path = os.path.join(a.models, name)
        if a.only in name and os.path.exists(os.path.join(path, "golden.safetensors")):
            good.append(check(path, name))
    print(f"{sum(good)} of {len(good)} models agree")
    return 0 if good and all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
