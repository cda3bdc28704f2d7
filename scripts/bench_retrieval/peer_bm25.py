"""BM25 of Python libraries on the terms that `bench_retrieval corpus --terms` wrote, printed as one line of JSON.

  python peer_bm25.py {rank|bm25s|bm25s_numba} DIR [--queries N]

Needs: pip install numpy rank-bm25 bm25s numba
"""
import argparse
import gc
import json
import pathlib
import resource
import time

parser = argparse.ArgumentParser()
parser.add_argument("what", choices=["rank", "bm25s", "bm25s_numba"])
parser.add_argument("dir", type=pathlib.Path)
parser.add_argument("--queries", type=int, default=0, help="only the first; rank_bm25 takes 20 if it is not given")
args = parser.parse_args()


def read(name):
    with open(args.dir / name, encoding="utf-8") as file:
        return [line.split() for line in file]


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**30


docs, queries = read("corpus_terms.txt"), read("query_terms.txt")
count = args.queries or (20 if args.what == "rank" else len(queries))
queries = queries[:count]
gc.collect()
base = resident()
out = {"what": args.what, "n": len(docs), "queries": len(queries), "topk": 3}
start = time.perf_counter()
if args.what == "rank":
    from rank_bm25 import BM25Okapi
    import numpy as np

    index = BM25Okapi(docs, k1=0.9, b=0.4)
    out["index_s"] = round(time.perf_counter() - start, 2)
    start = time.perf_counter()
    hits = []
    for query in queries:
        scores = index.get_scores(query)
        top = np.argpartition(scores, -3)[-3:]
        hits.append(top[np.argsort(-scores[top])].tolist())
    out["q_s"] = round(len(queries) / (time.perf_counter() - start), 2)
else:
    import bm25s

    out["version"] = bm25s.__version__
    numba = args.what == "bm25s_numba"
    index = bm25s.BM25(method="lucene", k1=0.9, b=0.4, backend="numba" if numba else "numpy")
    index.index(docs, show_progress=False)
    out["index_s"] = round(time.perf_counter() - start, 2)
    threads = 2 if numba else 1
    if numba:  # compiles
        index.retrieve(queries, k=3, show_progress=False, n_threads=threads)
    best = 1e9
    for _ in range(3):
        start = time.perf_counter()
        hits = index.retrieve(queries, k=3, show_progress=False, n_threads=threads).documents.tolist()
        best = min(best, time.perf_counter() - start)
    out["q_s"] = round(len(queries) / best, 1)
    alone = queries[:200]
    start = time.perf_counter()
    for query in alone:
        index.retrieve([query], k=3, show_progress=False, n_threads=0)
    out["single_q_s"] = round(len(alone) / (time.perf_counter() - start), 1)
    out["index_mib"] = round(sum(v.nbytes for v in index.scores.values() if hasattr(v, "nbytes")) / 2**20, 1)
ours = args.dir / "hits.txt"
if ours.exists() and args.what != "rank":  # rank_bm25 has another idf
    with open(ours) as file:
        expected = [[int(hit.split(":")[0]) for hit in line.split()] for line in file][: len(hits)]
    out["same_first_as_ours"] = round(sum(e[:1] == h[: len(e[:1])] for e, h in zip(expected, hits)) / len(hits), 4)
    out["same_top3_as_ours"] = round(sum(e == h[: len(e)] for e, h in zip(expected, hits)) / len(hits), 4)
out["memory_gib"] = round(resident() - base, 2)
out["peak_gib"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)
print(json.dumps(out), flush=True)
