#!/usr/bin/env bash
# Times our sentence encoder and sentence-transformers in turn, on the same passages and two cores each, and prints the ratio of
# passages a second. Nothing else should run meanwhile.
#
#   scripts/bench_dense/compare.sh --model DIR --corpus FILE [--python PYTHON] [--n 2000] [--reps 2] [--cores 0,1]
#
# PYTHON needs sentence-transformers and torch. The peer gets the better of two batch sizes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
model='' corpus='' python=python3 n=2000 reps=2 cores=0,1
while [ $# -gt 0 ]; do
  case $1 in
    --model) model=$2 ;; --corpus) corpus=$2 ;; --python) python=$2 ;; --n) n=$2 ;; --reps) reps=$2 ;; --cores) cores=$2 ;;
    *) sed -n '2,8p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
  shift 2
done
[ -n "$model" ] && [ -n "$corpus" ] || { sed -n '2,8p' "${BASH_SOURCE[0]}" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go build -o "$work/bench" ./scripts/bench_dense
for turn in 1 2; do
  taskset -c "$cores" "$work/bench" --model "$model" --corpus "$corpus" --n "$n" --reps "$reps" | tee -a "$work/lines"
  taskset -c "$cores" "$python" scripts/bench_dense/peer_sbert.py "$model" "$corpus" "$n" "$reps" 2>/dev/null | tee -a "$work/lines"
done
python3 - "$work/lines" <<'PYTHON'
import json, sys
best = {}
for line in open(sys.argv[1]):
    row = json.loads(line)
    best[row["engine"]] = max(best.get(row["engine"], 0), row["passages_s"])
print("ours / sentence-transformers: %.2f" % (best["ours"] / best["sentence-transformers"]))
PYTHON
