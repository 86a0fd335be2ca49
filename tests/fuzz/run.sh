#!/usr/bin/env bash
# Runs every fuzz target for a while from the committed seeds.
# usage: tests/fuzz/run.sh BIN_FOLDER SECONDS
set -euo pipefail
bin=$1
seconds=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for target in folder tokenizer template; do
    mkdir -p "$work/$target"
    echo "fuzz_$target for $seconds s"
    "$bin/fuzz_$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$work/" "$work/$target" "$here/seeds/$target" 2>&1 | tail -n 12
done
