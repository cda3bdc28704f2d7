#!/usr/bin/env bash
# Times our index beside bleve, bm25s and rank_bm25 on the same passages and queries, one after the other, each in a process
# of its own, and prints a line of JSON for each, then a Markdown table of all. Nothing else should run meanwhile.
#
#   scripts/bench_retrieval/compare.sh --data_dir DIR --n 200000 [--text passages|zipf] [--out DIR] [--python PYTHON]
#       [--peers "ours bleve bm25s bm25s_numba rank"] [--load SECONDS]
#
# PYTHON needs numpy, bm25s, numba and rank-bm25. --load also puts 64 connections on our server for that long.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
data='' n=200000 text=passages out='' python=python3 peers='ours bleve bm25s bm25s_numba rank' load=0
while [ $# -gt 0 ]; do
  case $1 in
    --data_dir) data=$2 ;; --n) n=$2 ;; --text) text=$2 ;; --out) out=$2 ;; --python) python=$2 ;; --peers) peers=$2 ;;
    --load) load=$2 ;;
    *) sed -n '2,9p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
  shift 2
done
server='' temporary=''
clean() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  [ -z "$temporary" ] || rm -rf "$temporary"
}
trap clean EXIT
[ -n "$out" ] || { temporary=$(mktemp -d); out=$temporary; }
mkdir -p "$out"
out=$(cd "$out" && pwd)
go build -o "$out/bench" ./scripts/bench_retrieval
: >"$out/results.jsonl"
note() { tee -a "$out/results.jsonl"; }
"$out/bench" corpus --data_dir "$data" --n "$n" --text "$text" --out "$out" --terms
for peer in $peers; do
  case $peer in
    ours)
      "$out/bench" index --dir "$out" | note
      "$out/bench" search --dir "$out" | note ;;
    bleve) (cd scripts/bench_retrieval/bleve && go build -o "$out/bleve_bench" . && "$out/bleve_bench" "$out") | note ;;
    *) "$python" scripts/bench_retrieval/peer_bm25.py "$peer" "$out" | note ;;
  esac
done
if [ "$load" -gt 0 ]; then
  go build -o "$out/retriever" ./scripts/retriever
  "$out/retriever" serve --index "$out/index" --port 18431 2>"$out/server.log" &
  server=$!
  for _ in $(seq 100); do
    curl -sf 127.0.0.1:18431/healthz >/dev/null && break
    sleep 0.1
  done
  "$out/bench" load --dir "$out" --url http://127.0.0.1:18431 --seconds "$load" | note
  kill "$server"
  wait "$server"
  server=''
fi
"$out/bench" table --dir "$out"
