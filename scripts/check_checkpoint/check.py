#!/usr/bin/env python3
"""Compares checkpoints with what the Go program that made them says about them.

  check.py DIR           opens each with transformers: weights, log-probabilities, likeliest next tokens, end tokens,
                         token ids and rendered chats (needs torch, transformers and jinja2)
  check.py DIR tensors   compares the weights only (needs numpy and safetensors)

DIR is what "go run ./scripts/check_checkpoint --out DIR" wrote. The exit status is 1 if anything differs, 2 for bad
input.
"""

import argparse
import hashlib
import json
import os
import pathlib
import sys
import unicodedata

# Log-probabilities may differ by this much, in nats. Measured were 4e-5 for SmolLM2-135M on XLA, 1.5e-4 for a
# vocabulary of 152,000 on pure Go, and 1e-5 for the other tiny models.
TOLERANCE = 5e-4


class Different(Exception):
    """A checkpoint is not what it should be."""


def require(condition, message):
    if not condition:
        raise Different(message)


def require_equal(got, want, what):
    require(got == want, f"{what}: Python has {got!r}, Go {want!r}")


def check_tensors(folder, expected):
    """Compares the bytes of every tensor, and that there are no others. A checkpoint may have several shards."""
    import numpy
    from safetensors import safe_open

    found = {}
    for path in sorted(folder.glob("model*.safetensors")):
        with safe_open(path, framework="numpy") as file:
            for name in file.keys():
                require(name not in found, f"tensor {name} is in two files")
                found[name] = values = file.get_tensor(name)
                want = expected.get(name)
                require(want is not None, f"tensor {name} does not belong to the model")
                require_equal(str(values.dtype), "float32", f"type of {name}")
                require_equal(list(values.shape), want["shape"], f"shape of {name}")
                rms = float(numpy.sqrt(numpy.mean(numpy.square(values, dtype=numpy.float64))))
                digest = hashlib.sha256(values.astype("<f4", copy=False).tobytes()).hexdigest()
                require(digest == want["sha256"],
                        f"values of {name} differ; root mean square {rms:.9g} in the file, {want['rms']:.9g} in Go")
                found[name] = None
    missing = [name for name in expected if name not in found]
    require(not missing, f"tensors are missing: {', '.join(missing)}")
    return f"{len(found)} tensors equal"


def load_model(folder, expected):
    """Opens the model as users do; transformers only warns about weights that it has to make up."""
    import torch
    from transformers import AutoModelForCausalLM

    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        require(not info[kind], f"transformers reports {kind}: {sorted(info[kind])}")
    require_equal(model.dtype, torch.float32, "type of the weights")
    require_equal(model.config.tie_word_embeddings, expected["tied"], "tie_word_embeddings")
    end = model.generation_config.eos_token_id
    require_equal(end if isinstance(end, list) else [end], expected["eos_token_ids"], "end tokens of generation_config")
    return model.eval()


def check_logits(model, sequences):
    """Compares each sequence by itself; in Go they were rows of one padded batch."""
    import torch

    worst, tokens = 0.0, 0
    for number, sequence in enumerate(sequences):
        where = f"sequence {number} of {len(sequence['ids'])} tokens"
        ids = torch.tensor([sequence["ids"]])
        with torch.no_grad():
            scores = torch.log_softmax(model(ids).logits[0].double(), dim=-1)
        logprobs = scores[:-1].gather(1, ids[0, 1:, None])[:, 0]
        difference = (logprobs - torch.tensor(sequence["logprobs"], dtype=torch.double)).abs()
        largest, token = float(difference.max()), int(difference.argmax()) + 1
        require(largest < TOLERANCE, f"{where}: log-probability of token {token} differs by {largest:.3g}")
        worst, tokens = max(worst, largest, check_top(scores[-1], sequence, where)), tokens + len(difference)
    return (f"{tokens} log-probabilities within {worst:.1e} (limit {TOLERANCE:g}), likeliest tokens after "
            f"{len(sequences)} sequences equal")


def check_top(scores, sequence, where):
    """Compares the likeliest next tokens. Two that are as good as equally likely may have changed places."""
    best, worst = scores.topk(len(sequence["top_ids"])), 0.0
    for rank, (want, logprob) in enumerate(zip(sequence["top_ids"], sequence["top_logprobs"])):
        got, difference = int(best.indices[rank]), abs(float(scores[want]) - logprob)
        require(got == want or float(best.values[rank] - scores[want]) < TOLERANCE,
                f"{where}: next token number {rank + 1}: Python has {got}, Go {want}")
        require(difference < TOLERANCE, f"{where}: log-probability of next token {want} differs by {difference:.3g}")
        worst = max(worst, difference)
    return worst


def check_tokenizer(folder, expected):
    """Compares with both classes that users take, where both can read the tokenizer."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    kinds = [PreTrainedTokenizerFast] + [AutoTokenizer] * expected["auto_tokenizer"]
    return ", ".join(compare_tokenizer(kind.from_pretrained(folder), expected) for kind in kinds)


def compare_tokenizer(tokenizer, expected):
    texts, name = expected["texts"], type(tokenizer).__name__
    if name == "Qwen2Tokenizer":  # It always brings text to NFC; a tokenizer that came from a GGUF file does not.
        texts = [item for item in texts if unicodedata.is_normalized("NFC", item["text"])]
    for item in texts:
        ids = tokenizer.encode(item["text"], add_special_tokens=False)
        require_equal(ids, item["ids"], f"{name}: ids of {item['text']!r}")
        text = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
        require_equal(text, item["decoded"], f"{name}: text of {ids}")
    for item in expected["chats"]:
        text = tokenizer.apply_chat_template(item["messages"], tokenize=False,
                                             add_generation_prompt=item["add_generation_prompt"])
        require_equal(text, item["text"], f"{name}: rendering of {item['messages']}")
    if not expected["chats"]:
        require_equal(tokenizer.chat_template, None, f"{name}: chat template")
    return f"{len(texts)} texts and {len(expected['chats'])} chats equal ({name})"


def check(path, mode):
    """Compares one checkpoint, prints a line for each part of it, and returns whether all are equal."""
    expected = json.loads(path.read_text(encoding="utf-8"))
    folder, equal = path.parent / expected["checkpoint"], True
    parts = [lambda: check_tensors(folder, {tensor["name"]: tensor for tensor in expected["tensors"]})]
    if mode == "full":
        parts.append(lambda: check_logits(load_model(folder, expected), expected["sequences"]))
        parts.append(lambda: check_tokenizer(folder, expected))
    print(path.parent.name)
    for part in parts:
        try:
            print(f"  {part()}", flush=True)
        except Exception as error:  # Whatever a library raises, the checkpoint is not what it should be.
            equal = False
            kind = "" if isinstance(error, Different) else f"{type(error).__name__}: "
            print(f"  DIFFERENT: {kind}{error}", flush=True)
    return equal


def quiet():
    """Keeps transformers from the network and from showing progress."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=pathlib.Path, help="folder that the Go program wrote")
    parser.add_argument("mode", nargs="?", choices=["full", "tensors"], default="full", help="default: full")
    options = parser.parse_args()
    paths = sorted(options.dir.glob("*/expected.json"))
    if not paths:
        parser.error(f"no checkpoints in {options.dir}: make some with go run ./scripts/check_checkpoint --out DIR")
    try:
        import numpy, safetensors  # noqa: E401, F401
        if options.mode == "full":
            import torch  # noqa: F401
            quiet()
    except ImportError as error:
        needed = "torch transformers jinja2" if options.mode == "full" else "numpy safetensors"
        parser.error(f"{error}; pip install {needed}")
    equal = [check(path, options.mode) for path in paths]
    print(f"{sum(equal)} of {len(equal)} checkpoints are what Go says they are")
    sys.exit(0 if all(equal) else 1)


if __name__ == "__main__":
    main()
