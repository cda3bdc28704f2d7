// Command retrieval_recall measures what a search engine finds for the questions of a data set: as they stand, and for the
// queries that an agent wrote.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/recall"
	"github.com/nano-agentrl/nano-agentrl/scripts/internal/cli"
)

const usage = `Was it the retriever or the policy? Prints, for the questions of a data set, how often a search finds a gold passage
or one that holds an answer among its first k: for the question as it stands and, with records of episodes, for the
queries that the agent wrote; over all questions and by hop, with 95 % intervals. Writes a figure, the figures as JSON
lines, and the questions on which the two disagree.

Usage: go run ./scripts/retrieval_recall --split DATA [--records FILE] [--corpus FILE | --index DIR | --retriever_url URL]
       go run ./scripts/retrieval_recall --all --data_dir DIR

Examples:
  go run ./scripts/retrieval_recall --data_dir data --split hotpotqa
  go run ./scripts/retrieval_recall --data_dir data --all                 # one table of every data set with a corpus
  go run ./scripts/retrieval_recall --data_dir data --split hotpotqa --kind bm25,dense,hybrid --model models/all-MiniLM-L6-v2
  go run ./scripts/retrieval_recall --split data/search/test.jsonl --corpus data/search/corpus.jsonl \
      --records runs/search_smollm2_cpu/samples.jsonl --k 1,3,5,10
  go run ./scripts/retrieval_recall --split nq:test --retriever_url http://127.0.0.1:8000 --max_questions 500

Options:
`

func main() {
	cli.Main(run)
}

// settings are the options of the command.
type settings struct {
	split, dataDir, corpus, index, url, records, out string
	step, at, most, resamples                        int
	seed                                             uint64
	k                                                []int
	k1, b                                            float64
	json, all                                        bool
	encoder                                          encoderSettings
}

// run returns the exit status: 0, 2 for a fault, 130 when interrupted.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, flags := new(settings), cli.Flags("retrieval_recall", usage, stdout)
	s.add(flags)
	err := flags.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	if err == nil {
		err = s.check(flags)
	}
	if err != nil {
		fmt.Fprintf(stderr, "retrieval_recall: %v; see --help\n", err)
		return 2
	}
	if s.all {
		err = s.measureAll(ctx, stdout, stderr)
	} else {
		err = s.measure(ctx, stdout, stderr)
	}
	return cli.Code("retrieval_recall", err, "", stderr)
}

func (s *settings) add(flags *pflag.FlagSet) {
	flags.StringVar(&s.split, "split", "", "file of questions, or a data set by its name (hotpotqa, nq:dev)")
	flags.BoolVar(&s.all, "all", false, "every data set of --data_dir that has a corpus, in one table")
	flags.StringVar(&s.dataDir, "data_dir", "", "folder of data sets that can be named")
	flags.StringVar(&s.corpus, "corpus", "", "passages to search; without it those of the data set, or beside the file of questions")
	flags.StringVar(&s.index, "index", "", "folder of an index to search instead")
	flags.StringVar(&s.url, "retriever_url", "", "address of a search server to ask instead")
	flags.StringVar(&s.records, "records", "", "samples.jsonl of a run, or a file of Episodes, whose queries are compared")
	flags.IntVar(&s.step, "step", recall.AnyStep, "take only the records of this step (-1: of all)")
	flags.IntSliceVar(&s.k, "k", []int{1, 3, 5, 10}, "numbers of passages a query")
	flags.IntVar(&s.at, "at", 3, "the k at which disagreements are written; the first of --k if it is not one of them")
	flags.IntVar(&s.most, "max_questions", 0, "only the first questions; 0 is all")
	flags.IntVar(&s.resamples, "resamples", 2000, "resamples of an interval")
	flags.Uint64Var(&s.seed, "seed", 1, "seed of the resamples")
	flags.Float64Var(&s.k1, "k1", retrieve.DefaultBM25().K1, "BM25's saturation of the term frequency")
	flags.Float64Var(&s.b, "b", retrieve.DefaultBM25().B, "BM25's normalisation by length")
	s.encoder.add(flags)
	flags.StringVar(&s.out, "out", "", "folder of figure and files (default runs/retrieval_recall/SPLIT)")
	flags.BoolVar(&s.json, "json", false, "print the figures as JSON lines instead of a table")
}

func (s *settings) check(flags *pflag.FlagSet) error {
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if s.all {
		if err := s.checkAll(); err != nil {
			return err
		}
	} else if s.split == "" {
		return errors.New("give --split DATA, a file of questions or a data set's name")
	}
	engines := 0
	for _, name := range []string{"corpus", "index", "retriever_url"} {
		if flags.Changed(name) {
			engines++
		}
	}
	if engines > 1 {
		return errors.New("--corpus, --index and --retriever_url exclude each other")
	}
	if err := s.encoder.check(flags); err != nil {
		return err
	}
	slices.Sort(s.k)
	s.k = slices.Compact(s.k)
	if len(s.k) == 0 || s.k[0] < 1 || s.k[len(s.k)-1] > 1000 {
		return fmt.Errorf("--k is %v; want numbers from 1 to 1000", s.k)
	}
	if s.resamples < 100 {
		return fmt.Errorf("--resamples is %d, must be at least 100", s.resamples)
	}
	if !slices.Contains(s.k, s.at) {
		s.at = s.k[0]
	}
	if s.out == "" {
		s.out = filepath.Join("runs", "retrieval_recall", nameOf(s.split))
	}
	return nil
}

var odd = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// nameOf makes the name of a folder of a split.
func nameOf(split string) string {
	base := strings.TrimSuffix(filepath.ToSlash(split), filepath.Ext(split))
	parts := strings.Split(base, "/")
	return strings.Trim(odd.ReplaceAllString(strings.Join(parts[max(0, len(parts)-2):], "_"), "_"), "_")
}

func (s *settings) measure(ctx context.Context, stdout, stderr io.Writer) (err error) {
	places := data.Places{Dir: s.dataDir, Hub: data.HubOptions{Note: func(m string) { fmt.Fprintln(stderr, m) }}}
	path, opts, err := places.Questions(ctx, s.split, "test")
	if err != nil {
		return err
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		opts.Split = ""
	}
	questions, err := data.ReadQuestions(path, opts)
	if err != nil {
		return err
	}
	if s.most > 0 {
		questions = questions[:min(s.most, len(questions))]
	}
	records := &recall.Records{ByQuestion: map[string][]*episode.Episode{}}
	if s.records != "" {
		if records, err = recall.ReadRecords(s.records, questions, s.step); err != nil {
			return err
		}
		fmt.Fprintf(stderr, "%d episodes of %d questions; left out: %d of other questions, %d whose search engine failed\n",
			records.Episodes, len(records.ByQuestion), records.Others, records.Failed)
	}
	engines, closeAll, err := s.searchers(ctx, places, path, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	all := map[string][]recall.Row{}
	for i, kind := range s.encoder.kinds {
		outcomes, err := recall.Search(ctx, engines[i], questions, records.ByQuestion, s.k[len(s.k)-1], nil)
		if err != nil {
			return err
		}
		rows := recall.Summarize(outcomes, recall.SummaryOptions{K: s.k, Resamples: s.resamples, Seed: s.seed})
		if len(rows) == 0 {
			return fmt.Errorf("the questions of %s tell neither gold passages nor answers to look for", s.split)
		}
		if err := s.write(s.folder(kind), rows, recall.Disagreements(outcomes, s.at)); err != nil {
			return err
		}
		all[kind] = rows
	}
	return s.print(stdout, len(questions), all)
}

// print prints the figures of each kind.
func (s *settings) print(stdout io.Writer, questions int, all map[string][]recall.Row) error {
	if !s.json {
		fmt.Fprintf(stdout, "%s: %d questions\n\n", s.split, questions)
	}
	for _, kind := range s.encoder.kinds {
		var err error
		switch {
		case s.json:
			err = recall.WriteJSONL(stdout, all[kind])
		case len(s.encoder.kinds) == 1:
			err = table(stdout, all[kind])
		}
		if err != nil {
			return err
		}
	}
	if s.json {
		return nil
	}
	if len(s.encoder.kinds) > 1 {
		if err := s.comparison(stdout, all); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(stdout, "\nfigure and files are in %s\n", s.out)
	return err
}

// searcher opens what is searched.
func (s *settings) searcher(ctx context.Context, places data.Places, questions string, stderr io.Writer) (retrieve.Searcher, error) {
	options := retrieve.BM25Options{K1: s.k1, B: s.b}
	switch {
	case s.url != "":
		client, err := retrieve.NewClient(s.url, retrieve.DefaultClient())
		if err != nil {
			return nil, err
		}
		return client, client.Ping(ctx)
	case s.index != "":
		return retrieve.OpenBM25(s.index, options)
	}
	path, err := s.corpusFile(places, questions)
	if err != nil {
		return nil, err
	}
	passages, err := data.ReadCorpus(path)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(stderr, "BM25 over %d passages of %s\n", len(passages), path)
	return retrieve.NewBM25(passages, options)
}

// corpusFile returns the file of the passages: without --corpus those that lie beside the questions.
func (s *settings) corpusFile(places data.Places, questions string) (string, error) {
	corpus := s.corpus
	if corpus == "" {
		corpus = questions
		if info, err := os.Stat(questions); err == nil && !info.IsDir() {
			corpus = filepath.Dir(questions)
		}
	}
	path, err := places.Corpus(corpus)
	if err != nil {
		return "", fmt.Errorf("%w; name what to search with --corpus, --index or --retriever_url", err)
	}
	return path, nil
}

// The files of the folder.
const (
	figureName        = "recall.png"
	rowsName          = "recall.jsonl"
	disagreementsName = "disagreements.jsonl"
)

func (s *settings) write(out string, rows []recall.Row, disagreements []recall.Disagreement) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	figure, err := recall.Figure("What the search finds: "+s.split, rows)
	if err != nil {
		return err
	}
	if err := figure.Save(filepath.Join(out, figureName)); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(out, rowsName), rows); err != nil || s.records == "" {
		return err
	}
	return writeFile(filepath.Join(out, disagreementsName), disagreements)
}

func writeFile[T any](path string, values []T) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(recall.WriteJSONL(file, values), file.Close())
}

func table(out io.Writer, rows []recall.Row) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	head := "group\tfound\tk\tquestions\tas they stand, %\t"
	if rows[0].Paired != nil {
		head += "recorded\tthese as they stand, %\tagent, %\tdifference (95 %)\t"
	}
	fmt.Fprintln(w, head)
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%.1f (%.1f to %.1f)\t", r.Group, r.Metric, r.K, r.Questions, 100*r.Raw, 100*r.RawLow,
			100*r.RawHigh)
		if p := r.Paired; p != nil {
			fmt.Fprintf(w, "%d\t%.1f\t%.1f\t%+.1f (%+.1f to %+.1f)\t", p.Questions, 100*p.Raw, 100*p.Agent, 100*p.Difference,
				100*p.Low, 100*p.High)
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}
