#!/usr/bin/env bash
# Times our sentence encoder and sentence-transformers in turn, in f32 and in bf16, on the same passages and two cores each, and
# prints the ratios of passages a second. Nothing else should run meanwhile.
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
  for dtype in f32 bf16; do
    taskset -c "$cores" "$work/bench" --model "$model" --corpus "$corpus" --n "$n" --reps "$reps" --dtype "$dtype" |
      tee -a "$work/lines"
    taskset -c "$cores" "$python" scripts/bench_dense/peer_sbert.py "$model" "$corpus" "$n" "$reps" "$dtype" 2>/dev/null |
      tee -a "$work/lines"
  done
done
python3 - "$work/lines" <<'PYTHON'
import json, sys
best = {}
for line in open(sys.argv[1]):
    row = json.loads(line)
    key = row["engine"], row["dtype"]
    best[key] = max(best.get(key, 0), row["passages_s"])
for dtype in ("f32", "bf16"):
    print("%s: ours / sentence-transformers %.2f" % (dtype, best["ours", dtype] / best["sentence-transformers", dtype]))
print("ours in bf16 / sentence-transformers in f32 %.2f" % (best["ours", "bf16"] / best["sentence-transformers", "f32"]))
PYTHON
