#!/usr/bin/python3
"""Makes known mistakes in a copy of the committed tree, one at a time, and asks whether a test sees each of them.

usage: check.py [--work DIR] [--only NAME ...] [--suites NAME ...] [--list] [--jobs N] [--oracle DIR]
The working tree is never touched: the copy and its build live in --work, which a later run may use again. A mistake that no test
sees is printed as SURVIVED and makes the exit status 1.
"""
import argparse
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time

from patches import PATCHES

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PROGRAM = "program"
TESTS = ["cpu_row_ops_test", "cpu_matmul_test", "cpu_attention_test", "engine_device_test", "engine_generate_test",
         "contract_models_test"]
RANDOM_MODELS = ["--seed", "1", "--count", "4"]
TEST_SECONDS = 900


def run(command, **more):
    return subprocess.run(command, capture_output=True, text=True, errors="replace", **more)


def copy_tree(work):
    """The committed tree in work/tree; files that are already as committed keep their time stamps."""
    tree = os.path.join(work, "tree")
    packed = subprocess.run(["git", "-C", ROOT, "archive", "HEAD"], stdout=subprocess.PIPE, check=True).stdout
    wanted = set()
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for entry in archive:
            path = os.path.join(tree, entry.name)
            if entry.isfile():
                wanted.add(path)
                data = archive.extractfile(entry).read()
                if not os.path.exists(path) or open(path, "rb").read() != data:
                    archive.extract(entry, tree)
    for folder, _, files in os.walk(tree):
        for path in (os.path.join(folder, name) for name in files):
            if path not in wanted:
                os.remove(path)
    return tree


class Build:
    """The build folder of the copy and what can be run from it."""

    def __init__(self, tree, work, jobs, oracle):
        self.tree, self.folder, self.jobs, self.oracle = tree, os.path.join(work, "build"), jobs, oracle

    def configure(self, only):
        options = ["-DCMAKE_BUILD_TYPE=Release"] + ([f"-DTERRACE_ORACLE_DIR={self.oracle}"] if self.oracle else [])
        done = run(["cmake", "-G", "Ninja", "-S", self.tree, "-B", self.folder, *options])
        if done.returncode != 0:
            sys.exit(f"the copy cannot be configured:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        known = run(["ninja", "-C", self.folder, "-t", "targets", "all"]).stdout
        self.suites = [t for t in TESTS if re.search(rf"^{t}: phony", known, re.M)] + [PROGRAM]
        self.suites = [t for t in self.suites if not only or t in only]

    def make(self, suite):
        """None, or the end of what the compiler said."""
        target = "terrace-cli" if suite == PROGRAM else suite
        done = run(["ninja", "-C", self.folder, f"-j{self.jobs}", target])
        return None if done.returncode == 0 else done.stdout[-1500:]

    def binary(self, name):
        return next(os.path.join(folder, name) for folder, _, files in os.walk(self.folder) if name in files)

    def fails(self, suite):
        """The first test of a suite that fails, or None."""
        if suite == PROGRAM:
            command = [sys.executable, "-B", os.path.join(self.tree, "tests/oracle/random_check.py"), "--cli", self.binary("terrace-cli"),
                       *RANDOM_MODELS]
        else:
            command = [self.binary(suite), "--gtest_brief=1", "--gtest_fail_fast"]
        try:
            done = run(command, timeout=TEST_SECONDS, cwd=self.folder)
        except subprocess.TimeoutExpired:
            return f"{suite} (no end after {TEST_SECONDS} s)"
        if done.returncode == 0:
            return None
        if suite == PROGRAM:
            found = re.search(r"DIFFERENT (.*)", done.stdout)
            return "random_check.py: " + (found.group(1)[:100] if found else f"status {done.returncode}")
        found = re.search(r"\[  FAILED  \] (\S+)", done.stdout)
        return f"{suite}: {found.group(1).rstrip(',') if found else f'status {done.returncode}'}"


def apply(tree, patch):
    """Makes the mistake; returns the texts before it, to be put back."""
    before = {}
    for file, old, new in patch.edits:
        path = os.path.join(tree, file)
        text = open(path, encoding="utf-8").read()
        before.setdefault(path, text)
        if text.count(old) != 1:
            restore(before)
            raise ValueError(f"{file} has {text.count(old)} times: {old}")
        with open(path, "w", encoding="utf-8") as out:
            out.write(text.replace(old, new))
    return before


def restore(before):
    for path, text in before.items():
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)


def try_patch(build, patch):
    """(seen, sentence about it)."""
    first = [s for s in patch.suites if s in build.suites]
    for suite in first + [s for s in build.suites if s not in first]:
        broken = build.make(suite)
        if broken:
            return False, "does not compile, so it says nothing:\n" + broken
        caught = build.fails(suite)
        if caught:
            return True, caught
    return False, "no test fails"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", default=os.path.join(tempfile.gettempdir(), "terrace-mutation"))
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--suites", nargs="+", metavar="NAME", help=f"only these of {', '.join(TESTS)}, {PROGRAM}")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--oracle", help="TERRACE_ORACLE_DIR of the copy")
    a = parser.parse_args()
    if a.list:
        print("\n".join(f"{p.name}: {p.sentence}" for p in PATCHES))
        return 0
    unknown = set(a.only or []) - {p.name for p in PATCHES}
    if unknown:
        sys.exit(f"no such patch: {', '.join(sorted(unknown))}")
    os.makedirs(a.work, exist_ok=True)
    build = Build(copy_tree(a.work), a.work, a.jobs, a.oracle)
    build.configure(a.suites)
    for suite in build.suites:
        broken = build.make(suite) or build.fails(suite)
        if broken:
            sys.exit(f"without any mistake, {suite} already fails: {broken}")
    print(f"without any mistake, all pass: {', '.join(build.suites)}", flush=True)
    missed = 0
    for patch in [p for p in PATCHES if not a.only or p.name in a.only]:
        begin, before = time.time(), {}
        try:
            before = apply(build.tree, patch)
            seen, what = try_patch(build, patch)
        except ValueError as error:
            seen, what = False, f"the patch no longer fits: {error}"
        finally:
            restore(before)
        missed += not seen
        print(f"{'seen    ' if seen else 'SURVIVED'} {patch.name}: {patch.sentence}\n         {what} ({time.time() - begin:.0f} s)", flush=True)
    print(f"{missed} mistakes not seen" if missed else "every mistake was seen")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
