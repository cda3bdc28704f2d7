"""Times sentence-transformers on the first passages of a corpus, as bench_dense does ours, and prints a line of JSON.

  python peer_sbert.py MODEL CORPUS N REPS [f32|bf16]      (needs: pip install sentence-transformers torch)
"""

import json
import os
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from sentence_transformers import SentenceTransformer


def main():
    model, corpus, n, reps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    with open(corpus, encoding="utf-8") as file:
        texts = [json.loads(line)["contents"] for line in file if line.strip()][:n]
    dtype = sys.argv[5] if len(sys.argv) > 5 else "f32"
    kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    encoder = SentenceTransformer(model, device="cpu", model_kwargs={"torch_dtype": kind})
    encoder.encode(texts[:32], show_progress_bar=False)
    rates = {}
    for batch in (32, 8):
        for _ in range(reps):
            start = time.perf_counter()
            encoder.encode(texts, batch_size=batch, show_progress_bar=False)
            rates[batch] = max(rates.get(batch, 0), len(texts) / (time.perf_counter() - start))
    best = max(rates, key=rates.get)
    print(json.dumps({"engine": "sentence-transformers", "dtype": dtype, "threads": torch.get_num_threads(), "passages": len(texts),
                      "passages_s": rates[best], "batch_size": best}))


if __name__ == "__main__":
    main()
