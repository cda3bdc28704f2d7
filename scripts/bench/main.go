// Command bench times the work that decides how fast a run is, on the same sizes as the Python peers are timed with:
// decoding, scoring, a training step, and one GRPO step.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/generate"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/learn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/policy"
)

const usage = `Time decoding, scoring, training or a GRPO step of a model, and print one JSON line.

Usage:
  go run ./scripts/bench --model FILE|DIR|HUB_NAME [--dtype f32|bf16] decode|score|train|grpo

  decode  greedy decoding, prompts of 256 random tokens, 128 new tokens each, --batch rows
  score   log-probabilities of all tokens of 8 x 512, or of --batch x --length
  train   forward, backward and AdamW on all tokens of 4 x 512, or of --batch x --length
  grpo    one GRPO step: 4 prompts x 8 samples of at most 64 new tokens

Examples:
  go run ./scripts/bench --model SmolLM2-135M-Instruct.Q4_1.gguf --batch 32 decode
  go run ./scripts/bench --model HuggingFaceTB/SmolLM2-135M-Instruct --dtype bf16 train

Flags:
`

type bench struct {
	policy *policy.Policy
	// batch is the number of rows, 0 for that of the published comparison; length is that of a row of score and train.
	batch, length int
	reps          int
	rng           *rand.Rand
}

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(2)
	}
}

func run(args []string) error {
	flags := pflag.NewFlagSet("bench", pflag.ContinueOnError)
	flags.SetNormalizeFunc(config.NormalizeFlag)
	flags.Usage = func() { fmt.Fprintf(os.Stderr, "%s%s", usage, flags.FlagUsages()) }
	model := flags.String("model", "", "model folder, GGUF file or hub name")
	backend := flags.String("backend", "auto", "auto, xla, cuda or go")
	dtype := flags.String("dtype", "f32", "f32 or bf16")
	batch := flags.Int("batch", 0, "rows; 0 takes 32 for decode, 8 for score, 4 for train")
	length := flags.Int("length", 512, "tokens of a row of score and train")
	reps := flags.Int("reps", 2, "timed repetitions; the best counts")
	profile := flags.Bool("profile", false, "also write to standard error where the time went")
	if err := flags.Parse(args); err != nil {
		return err
	}
	work := map[string]func(*bench) (map[string]any, error){
		"decode": decode, "score": score, "train": train, "grpo": grpoStep}[flags.Arg(0)]
	if work == nil || flags.NArg() != 1 {
		return fmt.Errorf("what to time is %q; want one of decode, score, train, grpo", flags.Args())
	}
	t, err := policy.ParseDType(*dtype)
	if err != nil {
		return err
	}
	dev, err := device.Open(*backend)
	if err != nil {
		return err
	}
	p, err := policy.Load(context.Background(), dev, *model, policy.Options{DType: t})
	if err != nil {
		return err
	}
	b := &bench{policy: p, batch: *batch, length: *length, reps: *reps, rng: rand.New(rand.NewPCG(0, 0))}
	result, err := work(b)
	if err != nil {
		return err
	}
	if *profile {
		dev.WriteProfile(os.Stderr)
	}
	result["what"], result["dtype"], result["device"] = flags.Arg(0), *dtype, dev.Kind
	result["peak_rss_gb"] = learn.PeakMemoryGB()
	return json.NewEncoder(os.Stdout).Encode(result)
}

// ids returns random token ids that are not special.
func (b *bench) ids(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = 20 + b.rng.IntN(b.policy.Tokenizer.VocabSize()-40)
	}
	return list
}

// best runs f once to compile and warm up, then reps times, and returns the shortest time in seconds.
func (b *bench) best(f func() error) (float64, error) {
	if err := f(); err != nil {
		return 0, err
	}
	best := 0.0
	for range b.reps {
		start := time.Now()
		if err := f(); err != nil {
			return 0, err
		}
		if t := time.Since(start).Seconds(); best == 0 || t < best {
			best = t
		}
	}
	return best, nil
}

func decode(b *bench) (map[string]any, error) {
	const prompt, fresh = 256, 128
	b.batch = cmp.Or(b.batch, 32)
	var prompts [][]int
	for range b.batch {
		prompts = append(prompts, b.ids(prompt))
	}
	b.policy.Program.Config().EOS = nil // every row samples all its tokens
	timed := func(n int) (float64, error) {
		return b.best(func() error {
			g := b.policy.Generator(b.batch)
			var seqs []*generate.Sequence
			for _, p := range prompts {
				seqs = append(seqs, generate.NewSequence(p, 0))
			}
			defer g.Release(seqs)
			return g.Generate(context.Background(), seqs, generate.Options{MaxNew: n})
		})
	}
	all, err := timed(fresh)
	if err != nil {
		return nil, err
	}
	first, err := timed(1)
	if err != nil {
		return nil, err
	}
	n := float64(b.batch)
	return map[string]any{"batch": b.batch, "tok_s": n * fresh / all, "prefill_tok_s": n * prompt / first,
		"decode_only_tok_s": n * (fresh - 1) / (all - first)}, nil
}

// whole returns a batch of random rows in which every token but the first is wanted.
func (b *bench) whole(rows int) (*nn.Batch, error) {
	width := b.length
	b.batch = cmp.Or(b.batch, rows)
	rows = b.batch
	list := make([]nn.Row, rows)
	for i := range list {
		list[i] = nn.Row{IDs: b.ids(width), Mask: make([]uint8, width)}
		for t := 1; t < width; t++ {
			list[i].Mask[t] = 1
		}
	}
	return nn.NewBatch(list, 0, false)
}

func score(b *bench) (map[string]any, error) {
	batch, err := b.whole(8)
	if err != nil {
		return nil, err
	}
	t, err := b.best(func() error {
		_, _, err := b.policy.Program.LogProbs(b.policy.Params, batch, 1)
		return err
	})
	return map[string]any{"shape": []int{b.batch, b.length}, "tok_s": float64(b.batch*b.length) / t}, err
}

func train(b *bench) (map[string]any, error) {
	batch, err := b.whole(4)
	if err != nil {
		return nil, err
	}
	weights := make([]float32, batch.Wanted)
	for i := range weights {
		weights[i] = 1 / float32(batch.Wanted)
	}
	p := b.policy
	optimizer := newOptimizer(p)
	defer optimizer.Free()
	grads := nn.NewGradients(p.Program.Config())
	t, err := b.best(func() error {
		defer grads.Free()
		if _, err := p.Program.Backward(p.Params, batch, 1, nn.NegativeLogLikelihood(weights), grads); err != nil {
			return err
		}
		_, err := optimizer.Apply(p.Params, grads, 1e-6)
		return err
	})
	return map[string]any{"shape": []int{b.batch, b.length}, "tok_s": float64(b.batch*b.length) / t, "step_s": t}, err
}

func newOptimizer(p *policy.Policy) *learn.AdamW {
	return learn.NewAdamW(p.Program.Device(), len(p.Params.Names()),
		learn.AdamWOptions{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.01, MaxGradNorm: 1})
}
