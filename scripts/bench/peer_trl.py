"""The same work as `bench grpo`, done by TRL's GRPOTrainer: 4 prompts x 8 samples of at most 64 new tokens, the number
of digits in the answer as the reward, no KL penalty.

    python peer_trl.py --model DIR [--steps 3]

Prints one JSON line: the shortest step but the first, and the completion tokens of each step.
"""
import argparse
import json
import resource
import tempfile
import time
import warnings

import torch
import trl
from datasets import Dataset
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback

warnings.filterwarnings("ignore")
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", required=True)
parser.add_argument("--steps", type=int, default=3)
args = parser.parse_args()

SAMPLES, LIMIT = 8, 64
lengths, times = [], []


def digits(completions, completion_ids=None, **_):
    lengths.extend(len(ids) for ids in completion_ids)
    return [sum(ch.isdigit() for ch in c[-1]["content"]) / 10 for c in completions]


class Clock(TrainerCallback):
    def on_step_begin(self, *_, **__):
        self.start = time.perf_counter()

    def on_step_end(self, *_, **__):
        times.append(time.perf_counter() - self.start)


prompts = [{"prompt": [{"role": "user", "content": f"What is {i} + {i + 3}? Think briefly, then answer with a number."}]}
           for i in range(16)]
config = trl.GRPOConfig(
    output_dir=tempfile.mkdtemp(), use_cpu=True, per_device_train_batch_size=4 * SAMPLES, num_generations=SAMPLES,
    max_completion_length=LIMIT, max_steps=args.steps, learning_rate=1e-6, save_strategy="no", report_to=[], bf16=False,
    gradient_checkpointing=False, disable_tqdm=True, seed=0, beta=0.0)
trainer = trl.GRPOTrainer(
    model=AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32),
    processing_class=PreTrainedTokenizerFast.from_pretrained(args.model), reward_funcs=digits, args=config,
    train_dataset=Dataset.from_list(prompts), callbacks=[Clock()])
trainer.train()
per_step = 4 * SAMPLES
print(json.dumps({
    "what": "grpo", "dtype": "f32", "device": "trl " + trl.__version__, "step_s": min(times[1:] or times),
    "steps_s": times, "completion_tokens": [sum(lengths[i:i + per_step]) for i in range(0, len(lengths), per_step)],
    "peak_rss_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9}))
