// Command bench_dense times the sentence encoder on the first passages of a corpus.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/policy"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/embed"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/weights"
	"github.com/nano-agentrl/nano-agentrl/scripts/internal/cli"
)

const usage = `Time the sentence encoder on the first passages of a corpus and print a line of JSON: passages a second of the best
pass, and of the first, in which graphs are compiled.

Usage: go run ./scripts/bench_dense --model DIR --corpus FILE [--n 2000] [--reps 2]

compare.sh beside this command runs it and sentence-transformers in turn and prints the ratio.

Examples:
  go run ./scripts/bench_dense --model models/all-MiniLM-L6-v2 --corpus data/squad
  scripts/bench_dense/compare.sh --model models/all-MiniLM-L6-v2 --corpus data/squad/corpus.jsonl --python VENV/bin/python

Options:
`

func main() {
	cli.Main(func(ctx context.Context, args []string, out, errOut io.Writer) int {
		return cli.Code("bench_dense", run(ctx, args, out), "", errOut)
	})
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := cli.Flags("bench_dense", usage, out)
	model := flags.String("model", "", "folder of the encoder or its name on the hub")
	corpus := flags.String("corpus", "", "JSONL file of passages, or a folder with a corpus.jsonl")
	backend := flags.String("backend", "auto", "where the encoder runs: auto, xla, cuda or go")
	dtype := flags.String("dtype", "f32", "type of the matrix products: f32 or bf16")
	n := flags.Int("n", 2000, "passages that are encoded")
	reps := flags.Int("reps", 2, "times that all are encoded; the best counts")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *model == "" || *corpus == "" || *n < 1 || *reps < 1 || flags.NArg() > 0 {
		return errors.New("give --model DIR and --corpus FILE, and numbers of at least 1; see --help")
	}
	products, err := policy.ParseDType(*dtype)
	if err != nil {
		return err
	}
	passages, err := data.ReadCorpus(*corpus)
	if err != nil {
		return err
	}
	texts := make([]string, min(*n, len(passages)))
	for i := range texts {
		texts[i] = passages[i].Contents
	}
	dev, err := device.Open(*backend)
	if err != nil {
		return err
	}
	defer dev.Close()
	encoder, err := embed.Open(ctx, dev, *model, weights.HubOptions{}, embed.Options{DType: products})
	if err != nil {
		return err
	}
	defer encoder.Close()
	var first, best float64
	for range *reps {
		start := time.Now()
		if _, err := encoder.Passages(ctx, texts, nil); err != nil {
			return err
		}
		rate := float64(len(texts)) / time.Since(start).Seconds()
		best = max(best, rate)
		if first == 0 {
			first = rate
		}
	}
	compiled, took := dev.Compilations()
	return json.NewEncoder(out).Encode(map[string]any{"engine": "ours", "device": dev.Kind, "dtype": *dtype, "model": encoder.Model().Name,
		"passages": len(texts), "passages_s": best, "first_passages_s": first, "compiled": compiled,
		"compile_s": took.Seconds()})
}
