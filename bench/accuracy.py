#!/usr/bin/python3
"""How much accuracy the arithmetic of version 1 and the container cost, measured with the program itself (docs/accuracy.md).

Three sessions read the same held-out text: the container as it is shipped ("quantised"), the same container with --float
("float weights of the container": what the weights alone cost) and the checkpoint it was made from with --float ("reference").
usage: accuracy.py --cli terrace-cli --model FOLDER [--checkpoint FOLDER] --heldout FILE.jsonl [FILE.jsonl ...]
A line of a held-out file is an object with "text": a conversation as the chat template writes it.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

TRIMMED_SHARE = 0.01  # the worst rows left out of the trimmed mean
DEPTHS = (1, 2, 3)
ANSWER_TOKENS = 96
GREEDY = ["--temperature", "0"]
DRAWN = ["--temperature", "1", "--top-p", "1", "--top-k", "0", "--min-p", "0"]


def read_arrays(path):
    """The arrays of a safetensors file, by name."""
    kinds = dict(F32="<f4", I32="<i4", U8="u1")
    data = open(path, "rb").read()
    size = int.from_bytes(data[:8], "little")
    out = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            out[name] = np.frombuffer(data[begin:end], kinds[entry["dtype"]]).reshape(entry["shape"])
    return out


class Session:
    """One model folder and the options it is opened with."""

    def __init__(self, cli, name, folder, options):
        self.cli, self.name, self.folder, self.options = cli, name, folder, options

    def run(self, ids, options):
        command = [self.cli, "run", self.folder, "--ids", ",".join(map(str, ids)), "--json", "--context", "2048", "--threads", "1",
                   *self.options, *options]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)[:400]}\nfailed with status {done.returncode}: {done.stdout[:800]} {done.stderr[-800:]}")
        return json.loads(done.stdout)

    def rows(self, ids):
        """What the session computes for every position of the text."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "dump.safetensors")
            self.run(ids, ["--n", "0", "--draft", "1", "--dump", path, *GREEDY])
            return Rows(read_arrays(path))


class Rows:
    """Log probabilities, choices and routes of every position of one text."""

    def __init__(self, arrays):
        z = arrays["logits"].astype(np.float64)
        z = z - z.max(1, keepdims=True)
        self.log_p = z - np.log(np.exp(z).sum(1, keepdims=True))
        self.top = arrays["logits"].argmax(1)
        self.routes = np.sort(arrays["router_ids"], 2)  # [layers, positions, k]
        ids = arrays["input_ids"]
        self.loss = -self.log_p[np.arange(len(ids) - 1), ids[1:]]
        # Row p of the draft layer was fed token p+1 and says what comes at p+2; the model's own word on that is row p+1.
        self.draft_agrees = arrays["mtp_logits"][:-1].argmax(1) == self.top[1:] if "mtp_logits" in arrays else np.zeros(0, bool)


class Comparison:
    """Rows of a tested session beside those of a truer one, over all texts."""

    def __init__(self):
        self.kl, self.flips, self.routes = [], [], []

    def add(self, true, tested):
        self.kl.append((np.exp(true.log_p) * (true.log_p - tested.log_p)).sum(1))
        self.flips.append(true.top != tested.top)
        self.routes.append((true.routes != tested.routes).any((0, 2)))

    def figures(self):
        kl = np.sort(np.concatenate(self.kl))
        kept = kl[:len(kl) - int(round(TRIMMED_SHARE * len(kl)))]
        return dict(rows=len(kl), mean_kl=float(kl.mean()), trimmed_kl=float(kept.mean()),
                    flips_percent=100 * float(np.concatenate(self.flips).mean()),
                    routes_percent=100 * float(np.concatenate(self.routes).mean()))


def read_texts(files, count):
    out = []
    for name in files:
        texts = [json.loads(line)["text"] for line in open(name, encoding="utf-8")]
        out.append((os.path.basename(name), texts[:count] if count else texts))
    return out


def tokenize(cli, folder, texts):
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    done = subprocess.run([cli, "tokenize", folder, "--mode", "special", "--jsonl"], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def measure_rows(sessions, rows_of_ids, workers):
    """Every pair of sessions compared, and the loss of each: {"A against B": figures}, {name: loss}."""
    pairs = [(a, b) for i, b in enumerate(sessions) for a in sessions[:i]]
    compared = {f"{a.name} against {b.name}": Comparison() for a, b in pairs}
    losses, drafts = {s.name: [] for s in sessions}, {s.name: [] for s in sessions}

    def one(ids):
        rows = {s.name: s.rows(ids) for s in sessions}
        for a, b in pairs:
            compared[f"{a.name} against {b.name}"].add(rows[b.name], rows[a.name])
        for name, row in rows.items():
            losses[name].append(row.loss)
            drafts[name].append(row.draft_agrees)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(one, rows_of_ids))
    loss = {name: float(np.concatenate(values).mean()) for name, values in losses.items()}
    agree = {name: 100 * float(np.concatenate(values).mean()) for name, values in drafts.items() if sum(map(len, values))}
    return dict(comparisons={name: c.figures() for name, c in compared.items()}, loss_per_token=loss,
                draft_equals_own_choice_percent=agree)


def prompts_of(texts):
    """The first question of each conversation, without thinking."""
    return [text.split("<think>")[0] + "<think></think>" for text in texts if "Reasoning Effort" not in text]


def acceptance(session, prompts, options, workers):
    """Answers with 1, 2 and 3 drafts a round: the share of drafts kept."""
    out = {}
    for depth in DEPTHS:
        with ThreadPoolExecutor(workers) as pool:
            stats = list(pool.map(lambda at: session.run(prompts[at], ["--n", str(ANSWER_TOKENS), "--draft", str(depth), "--seed", str(at + 1),
                                                                      *options])["speculation"], range(len(prompts))))
        drafted, accepted = (sum(s[key] for s in stats) for key in ("drafted", "accepted"))
        out[depth] = dict(drafted=drafted, accepted=accepted, share_percent=100 * accepted / max(drafted, 1))
    return out


def speculation_keeps_text(session, prompts, workers):
    """Prompts whose ids or logits change when the draft layer is used; greedy and drawn."""
    def one(job):
        at, options = job
        answers = [session.run(prompts[at], ["--n", str(ANSWER_TOKENS), "--draft", depth, "--seed", str(at + 1), *options])
                   for depth in ("off", "3")]
        return sum(len(a["ids"]) for a in answers[:1]), (answers[0]["ids"], answers[0]["logits_hash"]) == (answers[1]["ids"], answers[1]["logits_hash"])

    jobs = [(at, options) for options in (GREEDY, DRAWN) for at in range(len(prompts))]
    with ThreadPoolExecutor(workers) as pool:
        results = list(pool.map(one, jobs))
    return dict(answers=len(jobs), tokens=sum(n for n, _ in results), different=sum(not same for _, same in results))


def print_report(report):
    for name, part in report["texts"].items():
        print(f"\n{name}\n\n| | rows | mean KL | trimmed KL | top-1 flips % | rows that change a route % |\n|---|---|---|---|---|---|")
        for pair, c in part["comparisons"].items():
            print(f"| {pair} | {c['rows']:,} | {c['mean_kl']:.5f} | {c['trimmed_kl']:.5f} | {c['flips_percent']:.2f} | {c['routes_percent']:.1f} |")
        print("loss per token: " + ", ".join(f"{n} {v:.5f}" for n, v in part["loss_per_token"].items()))
        print("first draft equals the session's own choice, %: " +
              ", ".join(f"{n} {v:.2f}" for n, v in part["draft_equals_own_choice_percent"].items()))
    for way, by_session in report.get("acceptance", {}).items():
        print(f"\nacceptance, {way}\n\n| | " + " | ".join(f"{d} draft{'s' * (d > 1)}" for d in DEPTHS) + " |\n|---|---|---|---|")
        for name, by_depth in by_session.items():
            print(f"| {name} | " + " | ".join(f"{by_depth[d]['share_percent']:.2f} % of {by_depth[d]['drafted']}" for d in DEPTHS) + " |")
    if "speculation" in report:
        s = report["speculation"]
        print(f"\nspeculation against none: {s['answers']} answers, {s['tokens']} tokens, {s['different']} different")


def failures(report, a):
    """Sentences about limits that were given and not kept."""
    out = []
    for text, part in report["texts"].items():
        for pair, c in part["comparisons"].items():
            weights_too = pair == "quantised against reference"
            if pair != "quantised against float" and not weights_too:
                continue
            most_kl, most_flips = (a.max_kl_reference, 100 - a.min_agreement_reference) if weights_too else (a.max_kl, a.max_flips)
            if c["mean_kl"] > most_kl:
                out.append(f"{text}: {pair}: mean KL {c['mean_kl']:.5f}, at most {most_kl}")
            if c["flips_percent"] > most_flips:
                out.append(f"{text}: {pair}: {c['flips_percent']:.2f} % top-1 flips, at most {most_flips:.2f}")
    if report.get("speculation", {}).get("different"):
        out.append("speculation changed an answer")
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cli", required=True)
    parser.add_argument("--model", required=True, help="the container")
    parser.add_argument("--checkpoint", help="the checkpoint it was converted from")
    parser.add_argument("--heldout", required=True, nargs="+")
    parser.add_argument("--count", type=int, default=0, help="texts of each file; 0: all")
    parser.add_argument("--drafts", type=int, default=0, metavar="PROMPTS", help="also measure acceptance on so many prompts")
    parser.add_argument("--same-text", type=int, default=0, metavar="PROMPTS", help="also compare answers with and without speculation")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--max-kl", type=float, default=np.inf, help="fail above; quantised against float")
    parser.add_argument("--max-flips", type=float, default=100.0, help="fail above, in percent")
    parser.add_argument("--max-kl-reference", type=float, default=np.inf)
    parser.add_argument("--min-agreement-reference", type=float, default=0.0, help="fail below, in percent")
    a = parser.parse_args()

    begin = time.time()
    quantised = Session(a.cli, "quantised", a.model, [])
    sessions = [quantised, Session(a.cli, "float", a.model, ["--float"])]
    if a.checkpoint:
        sessions.append(Session(a.cli, "reference", a.checkpoint, ["--float"]))
    files = read_texts(a.heldout, a.count)
    report = dict(texts={name: measure_rows(sessions, tokenize(a.cli, a.model, texts), a.workers) for name, texts in files})
    if a.drafts:
        prompts = tokenize(a.cli, a.model, prompts_of(files[0][1]))
        prompts = prompts[::max(1, len(prompts) // a.drafts)][:a.drafts]
        judged = [s for s in sessions if s.name != "float"]
        report["acceptance"] = {way: {s.name: acceptance(s, prompts, options, a.workers) for s in judged}
                                for way, options in (("greedy", GREEDY), ("temperature 1", DRAWN))}
    if a.same_text:
        prompts = tokenize(a.cli, a.model, prompts_of(files[0][1]))[:a.same_text]
        report["speculation"] = speculation_keeps_text(quantised, prompts, a.workers)
    report["seconds"] = time.time() - begin
    print_report(report)
    if a.json:
        json.dump(report, open(a.json, "w"), indent=1)
    broken = failures(report, a)
    for sentence in broken:
        print("FAILED " + sentence)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
