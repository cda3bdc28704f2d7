// Command compare_anserini compares what our BM25 finds with what Anserini finds, the engine inside Pyserini.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/anserini"
	"github.com/nano-agentrl/nano-agentrl/scripts/internal/cli"
)

const usage = `Index corpora with Anserini (k1 0.9, b 0.4) and with ours, ask both all questions, and compare the first passages and
their scores. Prints a line for each data set, and writes each question on which the two differ, with the reason.

Usage: go run ./scripts/compare_anserini --data_dir DIR [--sets wiki18_pool,hotpotqa]

It needs Java 21 or newer, and Python with pip unless the jar is there already.

Examples:
  go run ./scripts/compare_anserini --data_dir data
  go run ./scripts/compare_anserini --data_dir data --sets xquad_en,musique --k 10 --jar anserini-2.3.0-fatjar.jar
  go run ./scripts/compare_anserini --data_dir data --sets xquad_en,wiki18_pool,hotpotqa,2wikimultihopqa,musique,squad \
      --vectors nanoagentrl/retrieve/testdata/anserini.json

Options:
`

func main() {
	cli.Main(run)
}

// settings are the options of the command.
type settings struct {
	dataDir, jar, out, vectors string
	sets                       []string
	k, perSet                  int
	atLeast                    float64
}

// errDiffer is the error of too many differences.
var errDiffer = errors.New("the two engines differ")

// run returns the exit status: 0, 1 if the comparison failed or the engines differ, 2 for bad input, 130 when
// interrupted.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, flags := new(settings), cli.Flags("compare_anserini", usage, stdout)
	flags.StringVar(&s.dataDir, "data_dir", "", "folder with a folder for each data set: corpus.jsonl and questions")
	flags.StringSliceVar(&s.sets, "sets", []string{"wiki18_pool", "hotpotqa"}, "data sets")
	flags.IntVar(&s.k, "k", 3, "passages that are compared")
	flags.Float64Var(&s.atLeast, "at_least", 0.99, "share of questions that must be equal, ties aside")
	flags.StringVar(&s.jar, "jar", "auto", "Anserini's jar; auto fetches it once into the cache folder")
	flags.StringVar(&s.out, "out", filepath.Join("runs", "compare_anserini"), "folder of the differences")
	flags.StringVar(&s.vectors, "vectors", "", "write what Anserini finds for some questions of each set to this file, for our tests")
	flags.IntVar(&s.perSet, "per_set", 4, "questions of each set in that file")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return 0
	case err != nil:
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case s.dataDir == "" || len(s.sets) == 0:
		err = errors.New("give --data_dir DIR and at least one of --sets")
	case s.k < 1 || s.k > 100:
		err = fmt.Errorf("--k is %d, must be from 1 to 100", s.k)
	}
	if err != nil {
		fmt.Fprintf(stderr, "compare_anserini: %v; see --help\n", err)
		return 2
	}
	err = s.compareAll(ctx, stdout, stderr)
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "compare_anserini: interrupted")
		return 130
	}
	fmt.Fprintf(stderr, "compare_anserini: %v\n", err)
	return 1
}

func (s *settings) compareAll(ctx context.Context, stdout, stderr io.Writer) error {
	engine, err := anserini.Find(ctx, s.jar)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.out, 0o755); err != nil {
		return err
	}
	var failed []error
	var vectors []anserini.Vector
	for _, set := range s.sets {
		fmt.Fprintf(stderr, "%s: indexing with Anserini\n", set)
		c, err := s.compareSet(ctx, engine, set)
		if err != nil {
			return fmt.Errorf("%s: %w", set, err)
		}
		file := filepath.Join(s.out, set+".jsonl")
		if err := c.Write(file); err != nil {
			return err
		}
		fmt.Fprintf(stdout, "%s: top %d of %d questions: %d equal, %d differ by ties only, %d differ; scores within %.1e; "+
			"%s\n", set, s.k, c.Questions, c.Equal, c.Ties, c.Other, c.Largest, file)
		if share := float64(c.Equal+c.Ties) / float64(c.Questions); share < s.atLeast {
			failed = append(failed, fmt.Errorf("%w on %s: %.2f %% equal, want %.2f", errDiffer, set, 100*share, 100*s.atLeast))
		}
		vectors = append(vectors, c.Vectors(set, s.perSet)...)
	}
	if s.vectors != "" {
		if err := writeVectors(s.vectors, vectors); err != nil {
			return err
		}
	}
	return errors.Join(failed...)
}

// compareSet indexes one corpus twice and asks both.
func (s *settings) compareSet(ctx context.Context, engine *anserini.Engine, set string) (*anserini.Comparison, error) {
	corpus, err := data.Places{Dir: s.dataDir}.Corpus(set)
	if err != nil {
		return nil, err
	}
	questions, err := data.ReadQuestions(filepath.Dir(corpus), data.QuestionOptions{})
	if err != nil {
		return nil, err
	}
	var texts []string
	for _, q := range questions {
		texts = append(texts, q.Text)
	}
	return engine.CompareCorpus(ctx, corpus, texts, s.k)
}

// writeVectors writes vectors as JSON, one a line, in a list.
func writeVectors(path string, vectors []anserini.Vector) error {
	text := []byte("[\n")
	for i, v := range vectors {
		line, err := json.Marshal(v)
		if err != nil {
			return err
		}
		text = append(append(text, "  "...), line...)
		if i < len(vectors)-1 {
			text = append(text, ',')
		}
		text = append(text, '\n')
	}
	return os.WriteFile(path, append(text, "]\n"...), 0o644)
}
