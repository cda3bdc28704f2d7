// Command bench_retrieval makes large corpora, times the search index on them, and puts load on a search server.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nano-agentrl/nano-agentrl/scripts/internal/cli"
)

const usage = `Make large corpora, time the search index on them beside its peers, put load on a search server.

Usage:
  go run ./scripts/bench_retrieval corpus --data_dir DIR --n 200000 --out DIR [--text zipf] [--terms]
  go run ./scripts/bench_retrieval index  --dir DIR
  go run ./scripts/bench_retrieval search --dir DIR
  go run ./scripts/bench_retrieval load   --dir DIR --url http://127.0.0.1:8000 [--connections 64] [--seconds 60]
  go run ./scripts/bench_retrieval table  --dir DIR

  corpus  writes corpus.jsonl and queries.txt: passages of the data sets again and again with other words in them, and
          their questions; with --text zipf made-up words with Zipf frequencies, and queries of words of a passage;
          --terms adds passages and queries as index terms, for peers that do not analyse text
  index   builds the index of DIR/corpus.jsonl in DIR/index and prints time, memory and sizes as a line of JSON
  search  opens that index and prints the times of queries as a line of JSON
  load    asks a server that serves that index all queries once, and then over many connections, compares all answers,
          prints a line of JSON: times, and the server's memory at the start, in the middle and at the end
  table   prints the lines of JSON in DIR/results.jsonl, which compare.sh writes, as a Markdown table

compare.sh beside this command runs all of it and the peers, each in a process of its own.

Options:
`

func main() {
	cli.Main(func(ctx context.Context, args []string, out, errOut io.Writer) int {
		return cli.Code("bench_retrieval", run(ctx, args, out), "", errOut)
	})
}

// options are those of all commands.
type options struct {
	dataDir, out, dir, text, url string
	n, queries, topk, reps       int
	connections, seconds, batch  int
	seed                         uint64
	terms                        bool
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, flags := new(options), cli.Flags("bench_retrieval", usage, out)
	flags.StringVar(&o.dataDir, "data_dir", "", "corpus: folder of data sets with a corpus.jsonl each")
	flags.StringVar(&o.out, "out", "", "corpus: folder to write to")
	flags.IntVar(&o.n, "n", 200_000, "corpus: number of passages")
	flags.IntVar(&o.queries, "queries", 2000, "corpus: number of queries")
	flags.StringVar(&o.text, "text", "passages", "corpus: passages or zipf")
	flags.Uint64Var(&o.seed, "seed", 1, "corpus: seed of everything that is drawn")
	flags.BoolVar(&o.terms, "terms", false, "corpus: also write corpus_terms.txt and query_terms.txt")
	flags.StringVar(&o.dir, "dir", "", "index, search, load, table: folder that corpus wrote to")
	flags.IntVar(&o.topk, "topk", 3, "search, load: passages a query")
	flags.IntVar(&o.reps, "reps", 3, "search: times that all queries are searched; the best counts")
	flags.StringVar(&o.url, "url", "http://127.0.0.1:8000", "load: address of the server")
	flags.IntVar(&o.connections, "connections", 64, "load: connections at once")
	flags.IntVar(&o.seconds, "seconds", 60, "load: seconds of load")
	flags.IntVar(&o.batch, "batch", 1, "load: queries a request")
	if err := flags.Parse(args); err != nil {
		return err
	}
	commands := map[string]func(context.Context, *options, io.Writer) error{"corpus": makeCorpus, "index": timeIndex,
		"search": timeSearch, "load": load, "table": printTable}
	command := commands[flags.Arg(0)]
	if command == nil || flags.NArg() != 1 {
		return fmt.Errorf("what to do is %q; want one of corpus, index, search, load, table", flags.Args())
	}
	if min(o.n, o.queries, o.topk, o.reps, o.connections, o.seconds, o.batch) < 1 {
		return errors.New("all numbers must be at least 1")
	}
	if flags.Arg(0) != "corpus" && o.dir == "" {
		return errors.New("give --dir, the folder that the command corpus wrote to")
	}
	return command(ctx, o, out)
}

// line writes one measurement as a line of JSON.
func line(out io.Writer, values map[string]any) error {
	text, err := json.Marshal(values)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\n", text)
	return err
}

// peakGiB returns the largest resident size of this process so far, on Linux; else 0.
func peakGiB() float64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for row := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(row, "VmHWM:"); ok {
			kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return round(kib / (1 << 20))
		}
	}
	return 0
}

func round(v float64) float64 {
	short, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	return short
}

// readLines reads the lines of a small file of a folder.
func readLines(dir, name string) (lines []string, err error) {
	file, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, fmt.Errorf("%w; the command corpus makes it", err)
	}
	defer file.Close()
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		lines = append(lines, scanner.Text())
	}
	return lines, scanner.Err()
}

// percentile returns a percentile of durations in milliseconds.
func percentile(times []time.Duration, share float64) float64 {
	sorted := slices.Sorted(slices.Values(times))
	if len(sorted) == 0 {
		return 0
	}
	at := sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
	return round(at.Seconds() * 1000)
}
