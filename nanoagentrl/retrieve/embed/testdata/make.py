"""Writes minilm.json beside it: what sentence-transformers makes of texts with all-MiniLM-L6-v2.

  python make.py FOLDER_OF_DATA_SETS FOLDER_OF_ALL_MINILM_L6_V2   (needs: pip install sentence-transformers==6.2.0 torch==2.15.0)

FOLDER_OF_DATA_SETS has a folder with a corpus.jsonl for each data set. Vectors are kept as base64 of little-endian float16;
passages by data set and line, since their texts are in the data set, other texts with the vector.
"""

import base64
import json
import pathlib
import random
import sys

import numpy
import torch
from sentence_transformers import SentenceTransformer

TEXTS = [
    "", " ", "a", "who wrote the prodigal son", "What is the capital of France?", "C++ \"x\" (y)", "órgãos Beyoncé naïve façade",
    "e\u0301 and é are alike", "东京 is 東京都", "日本語のテキスト", "한국어", "مرحبا بالعالم", "हिन्दी पाठ", "😀👍🏽", "1939–1945 vs 1939-1945",
    "[SEP] inside [MASK]", "x" * 120, "tab\tnul\x00bell\x07soft\u00adhyphen\u200b", "!!!", "\"Title\"\nA text with a title.",
    "\"Hamlet\"\nThe Tragedy of Hamlet, Prince of Denmark, is a tragedy written by William Shakespeare.",
    "the quick brown fox " * 90, "word " * 253 + "one two three", "word " * 254 + "one two three",
]


def main():
    data, model = sys.argv[1:]
    torch.manual_seed(0)
    random.seed(3)
    corpora = {}
    for path in sorted(pathlib.Path(data).glob("*/corpus.jsonl")):
        corpora[path.parent.name] = [json.loads(line)["contents"] for line in path.open(encoding="utf-8") if line.strip()]
    encoder = SentenceTransformer(model, device="cpu")
    chosen = []
    corpora = {name: rows for name, rows in corpora.items() if len(rows) > 300}
    for name, rows in corpora.items():
        by_length = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        odd = [i for i, row in enumerate(rows) if not row.isascii()]
        picked = by_length[:4] + by_length[-4:] + random.sample(odd, min(8, len(odd))) + random.sample(range(len(rows)), 30)
        chosen += [(name, i) for i in dict.fromkeys(picked[:46])]
    chosen = chosen[:230]
    vectors = encoder.encode([corpora[n][i] for n, i in chosen] + TEXTS, normalize_embeddings=True)
    packed = [base64.b64encode(v.astype("<f2").tobytes()).decode() for v in vectors.astype(numpy.float32)]
    cut = sum(len(ids) > encoder.max_seq_length for ids in encoder.tokenizer([corpora[n][i] for n, i in chosen])["input_ids"])
    print(len(chosen), "passages,", cut, "of them cut off")
    with (pathlib.Path(__file__).parent / "minilm.json").open("w", encoding="ascii") as out:
        json.dump({
            "passages": [{"set": n, "line": i + 1, "v": v} for (n, i), v in zip(chosen, packed)],
            "texts": [{"text": t, "v": v} for t, v in zip(TEXTS, packed[len(chosen):])],
        }, out, indent=0)
        out.write("\n")


if __name__ == "__main__":
    main()
