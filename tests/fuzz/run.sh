#!/usr/bin/env bash
# Runs every fuzz target for a while from the committed seeds. A finding stays as a file beside the targets.
# usage: tests/fuzz/run.sh BIN_FOLDER SECONDS
set -euo pipefail
bin=$1
seconds=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for target in folder tokenizer template; do
    mkdir -p "$work/$target"
    # The limit is wall time and must be far above what a busy machine makes of an innocent input.
    echo "fuzz_$target for $seconds s"
    "$bin/fuzz_$target" -max_total_time="$seconds" -timeout=60 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$bin/$target-" "$work/$target" "$here/seeds/$target" 2>&1 | tail -n 12
done
