"""The same work as `bench decode|score|train`, done by PyTorch and transformers, on the same sizes.

    python peer_torch.py --model DIR [--dtype f32|bf16] [--batch 32] [--reps 2] decode|score|train

DIR is a Hugging Face folder. Prints one JSON line with the same keys as bench.
"""
import argparse
import json
import resource
import time

import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging

logging.set_verbosity_error()


def best(work, reps):
    work()  # warm-up
    times = []
    for _ in range(reps):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def decode(model, vocab, args):
    prompt, new = 256, 128
    ids = torch.randint(20, vocab - 20, (args.batch, prompt))
    mask = torch.ones_like(ids)

    @torch.inference_mode()
    def generate(n):
        out = model.generate(input_ids=ids, attention_mask=mask, do_sample=False, min_new_tokens=n, max_new_tokens=n,
                             pad_token_id=0, use_cache=True)
        assert out.shape[1] == prompt + n

    whole = best(lambda: generate(new), args.reps)
    first = best(lambda: generate(1), args.reps)
    return {"batch": args.batch, "tok_s": args.batch * new / whole, "prefill_tok_s": args.batch * prompt / first,
            "decode_only_tok_s": args.batch * (new - 1) / (whole - first)}


def score(model, vocab, args):
    ids = torch.randint(20, vocab - 20, (8, 512))

    @torch.inference_mode()
    def work():
        logits = model(input_ids=ids, use_cache=False).logits[:, :-1].float()
        return logits.gather(-1, ids[:, 1:, None])[..., 0] - logits.logsumexp(-1)

    return {"shape": [8, 512], "tok_s": ids.numel() / best(work, args.reps)}


def train(model, vocab, args):
    ids = torch.randint(20, vocab - 20, (4, 512))
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)

    def work():
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    seconds = best(work, args.reps)
    return {"shape": [4, 512], "tok_s": ids.numel() / seconds, "step_s": seconds}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["decode", "score", "train"])
    parser.add_argument("--model", required=True)
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--reps", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[args.dtype]
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=dtype).eval()
    result = globals()[args.what](model, model.config.vocab_size, args)
    result |= {"what": args.what, "dtype": args.dtype, "device": "torch " + torch.__version__,
               "peak_rss_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9}
    print(json.dumps(result))


main()
