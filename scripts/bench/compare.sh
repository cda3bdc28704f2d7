#!/usr/bin/env bash
# Times this project and its Python peers in turn, in one run, on an otherwise idle machine, and prints JSON lines.
#
#   scripts/bench/compare.sh GGUF HF_DIR PYTHON [ROUNDS]
#
# GGUF and HF_DIR hold the same model; PYTHON is the interpreter of a virtual environment with torch, transformers, trl
# and datasets. Every second line is a peer's; compare neighbours, since the speed of a machine drifts.
set -euo pipefail
gguf=$1 folder=$2 python=$3 rounds=${4:-1}
cd "$(dirname "$0")/../.."
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/bench" ./scripts/bench
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
for _ in $(seq "$rounds"); do
  for dtype in f32 bf16; do
    for what in decode score train; do
      "$bin/bench" --model "$gguf" --dtype "$dtype" "$what"
      "$python" scripts/bench/peer_torch.py --model "$folder" --dtype "$dtype" "$what"
    done
  done
  "$bin/bench" --model "$gguf" grpo
  "$python" scripts/bench/peer_trl.py --model "$folder" 2>/dev/null | tail -n 1
done
