#!/usr/bin/python3
"""Fails when clang-format would change a source file.

usage: format_test.py SOURCE_DIR CLANG_FORMAT
"""
import os
import subprocess
import sys


def main():
    root, tool = sys.argv[1:3]
    files = []
    for top in ("engine", "app", "gpu", "tests", "bench"):
        for here, folders, names in os.walk(os.path.join(root, top)):
            folders[:] = [f for f in folders if f != "data"]
            files += [os.path.join(here, n) for n in names if n.endswith((".h", ".cpp", ".cu"))]
    run = subprocess.run([tool, "--dry-run", "--Werror", "-style=file", *sorted(files)],
                         capture_output=True, text=True, cwd=root)
    bad = sorted({line.split(":")[0] for line in run.stderr.splitlines() if "error:" in line})
    for path in bad:
        print("not formatted:", os.path.relpath(path, root))
    print(f"{len(files)} files, {len(bad)} not formatted")
    return 1 if bad or run.returncode or not files else 0


if __name__ == "__main__":
    sys.exit(main())
