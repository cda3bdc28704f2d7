package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/analysis"
)

// maker makes passages and queries.
type maker interface {
	passage(i int) string
	query() string
}

func makeCorpus(ctx context.Context, o *options, out io.Writer) (err error) {
	if o.out == "" {
		return errors.New("give --out, a folder to write to")
	}
	random := rand.New(rand.NewPCG(o.seed, 1))
	var m maker
	switch o.text {
	case "passages":
		m, err = newVariations(o.dataDir, random)
	case "zipf":
		m = newZipf(random)
	default:
		err = fmt.Errorf("--text is %q; want passages or zipf", o.text)
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	passages := func(i int) string {
		text, _ := json.Marshal(data.Passage{ID: fmt.Sprint(i), Contents: m.passage(i)})
		return string(text)
	}
	if err := writeLines(ctx, filepath.Join(o.out, "corpus.jsonl"), o.n, passages); err != nil {
		return err
	}
	query := func(int) string { return strings.Join(strings.Fields(m.query()), " ") }
	if err := writeLines(ctx, filepath.Join(o.out, "queries.txt"), o.queries, query); err != nil {
		return err
	}
	if o.terms {
		if err := writeTerms(ctx, o.out); err != nil {
			return err
		}
	}
	return line(out, map[string]any{"what": "corpus", "n": o.n, "queries": o.queries, "text": o.text, "seed": o.seed})
}

// writeLines writes n lines to a file.
func writeLines(ctx context.Context, path string, n int, text func(i int) string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(file, 1<<20)
	for i := range n {
		if err := ctx.Err(); err != nil {
			return errors.Join(err, file.Close())
		}
		if _, err := out.WriteString(text(i) + "\n"); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	return errors.Join(out.Flush(), file.Close())
}

// writeTerms writes passages and queries as their index terms.
func writeTerms(ctx context.Context, dir string) error {
	var analyzer analysis.Analyzer
	corpus, err := data.OpenCorpus(filepath.Join(dir, "corpus.jsonl"))
	if err != nil {
		return err
	}
	defer corpus.Close()
	file, err := os.Create(filepath.Join(dir, "corpus_terms.txt"))
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(file, 1<<20)
	for {
		lines, err := corpus.Next(1024, 8<<20)
		if errors.Is(err, io.EOF) {
			break
		} else if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return errors.Join(err, file.Close())
		}
		passages, _, err := lines.Passages()
		if err != nil {
			return errors.Join(err, file.Close())
		}
		for _, p := range passages {
			if _, err := out.WriteString(strings.Join(analyzer.Terms(p.Contents), " ") + "\n"); err != nil {
				return errors.Join(err, file.Close())
			}
		}
	}
	if err := errors.Join(out.Flush(), file.Close()); err != nil {
		return err
	}
	queries, err := readLines(dir, "queries.txt")
	if err != nil {
		return err
	}
	terms := func(i int) string { return strings.Join(analyzer.Terms(queries[i]), " ") }
	return writeLines(ctx, filepath.Join(dir, "query_terms.txt"), len(queries), terms)
}

// variations are the passages of data sets, again and again: every fifth word of a copy is replaced by one from anywhere,
// and one in a hundred of these becomes a word of its own, as names and numbers are. Queries are the questions.
type variations struct {
	random    *rand.Rand
	passages  []data.Passage
	words     [][]string
	questions []string
}

func newVariations(dir string, random *rand.Rand) (*variations, error) {
	if dir == "" {
		return nil, errors.New("give --data_dir, a folder of data sets with a corpus.jsonl each")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*", "corpus.jsonl"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no folder with a corpus.jsonl", dir)
	}
	v := &variations{random: random}
	for _, file := range files {
		passages, err := data.ReadCorpus(file)
		if err != nil {
			return nil, err
		}
		v.passages = append(v.passages, passages...)
		if questions, err := data.ReadQuestions(filepath.Dir(file), data.QuestionOptions{}); err == nil {
			for _, q := range questions {
				v.questions = append(v.questions, q.Text)
			}
		}
	}
	if len(v.questions) == 0 {
		return nil, fmt.Errorf("%s has no questions", dir)
	}
	for _, p := range v.passages {
		v.words = append(v.words, strings.Fields(p.Text()))
	}
	return v, nil
}

func (v *variations) passage(i int) string {
	original := i % len(v.passages)
	title := v.passages[original].Title()
	if i < len(v.passages) {
		return v.passages[i].Contents
	}
	words := make([]string, len(v.words[original]))
	for k, word := range v.words[original] {
		if v.random.IntN(5) == 0 {
			word = v.anyWord()
			if v.random.IntN(100) == 0 {
				word = fmt.Sprintf("%s%d", word, v.random.IntN(1_000_000))
			}
		}
		words[k] = word
	}
	return fmt.Sprintf("\"%s %s\"\n%s", title, v.anyWord(), strings.Join(words, " "))
}

func (v *variations) anyWord() string {
	for {
		if words := v.words[v.random.IntN(len(v.words))]; len(words) > 0 {
			return words[v.random.IntN(len(words))]
		}
	}
}

func (v *variations) query() string { return v.questions[v.random.IntN(len(v.questions))] }

// zipf is made-up text: passages of 80 to 120 words out of 100,000 whose frequencies fall with their rank, and queries of
// eight words of a passage.
type zipf struct {
	random     *rand.Rand
	cumulative []float64
	kept       [][]string
}

func newZipf(random *rand.Rand) *zipf {
	const words = 100_000
	z := &zipf{random: random, cumulative: make([]float64, words)}
	sum := 0.0
	for i := range z.cumulative {
		sum += 1 / float64(i+1)
		z.cumulative[i] = sum
	}
	return z
}

func (z *zipf) passage(int) string {
	words := make([]string, 80+z.random.IntN(41))
	total := z.cumulative[len(z.cumulative)-1]
	for i := range words {
		words[i] = fmt.Sprint("w", sort.SearchFloat64s(z.cumulative, z.random.Float64()*total))
	}
	if len(z.kept) < 10_000 {
		z.kept = append(z.kept, words)
	} else if z.random.IntN(10) == 0 {
		z.kept[z.random.IntN(len(z.kept))] = words
	}
	return strings.Join(words, " ")
}

func (z *zipf) query() string {
	words := z.kept[z.random.IntN(len(z.kept))]
	picked := make([]string, 0, 8)
	for _, i := range z.random.Perm(len(words))[:8] {
		picked = append(picked, words[i])
	}
	return strings.Join(picked, " ")
}
