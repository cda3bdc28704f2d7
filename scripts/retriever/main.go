// Command retriever makes a search index of a corpus, serves it in the Search-R1 protocol, and searches it.
package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"github.com/nano-agentrl/nano-agentrl/scripts/internal/cli"
)

const usage = `Make a search index of a corpus, serve it in the Search-R1 protocol, search it from the command line.

Usage:
  go run ./scripts/retriever index  --corpus FILE --out DIR
  go run ./scripts/retriever index  --corpus FILE[,FILE ...] --kind opensearch --url http://HOST:9200 --name INDEX
  go run ./scripts/retriever serve  --corpus FILE | --index DIR [--port 8000]
  go run ./scripts/retriever search --corpus FILE | --index DIR [--explain] QUERY ...
  go run ./scripts/retriever verify --index DIR [--corpus FILE]
  serve and search take --kind opensearch --url http://HOST:9200 --name INDEX as well

  index   writes an index into a folder or into OpenSearch; interrupted, the same command goes on
  serve   answers POST /retrieve, GET /healthz and GET /metrics until Ctrl-C
  search  prints the best passages of each query, with --explain what each term adds
  verify  reads an index whole and compares its checksums, and whether it was made from a corpus

Examples:
  go run ./scripts/retriever index --corpus data/wiki-18.jsonl --out data/wiki-18.index
  go run ./scripts/retriever serve --index data/wiki-18.index --port 8000
  go run ./scripts/retriever serve --corpus data/search/corpus.jsonl          # in memory, nothing is written
  go run ./scripts/retriever index --corpus data/wiki-18.jsonl --kind opensearch --url http://127.0.0.1:9200 --name wiki-18 --shards 4
  go run ./scripts/retriever search --index data/wiki-18.index --explain "who wrote the prodigal son"
  go run ./scripts/retriever index --kind hybrid --model sentence-transformers/all-MiniLM-L6-v2 \
      --corpus data/search/corpus.jsonl --out data/search.hybrid
  go run ./scripts/retriever serve --kind hybrid --model sentence-transformers/all-MiniLM-L6-v2 --index data/search.hybrid
  curl -d '{"queries": ["who wrote the prodigal son"], "topk": 3, "return_scores": true}' 127.0.0.1:8000/retrieve

"retriever COMMAND --help" lists the options of a command. A corpus is JSON lines of {"id", "contents"}, contents being
the title in double quotes, a newline, and the text.
`

func main() {
	cli.Main(run)
}

// command is one of the program's commands. It adds its options to a flag set and returns what runs it.
type command func(flags *pflag.FlagSet) func(ctx context.Context, args []string, out, log io.Writer) error

var commands = map[string]command{"index": indexCommand, "serve": serveCommand, "search": searchCommand, "verify": verifyCommand}

func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	if len(args) == 0 || args[0] == "--help" || args[0] == "-h" || args[0] == "help" {
		fmt.Fprint(out, usage)
		if len(args) == 0 {
			return cli.Fault
		}
		return cli.OK
	}
	build, known := commands[args[0]]
	if !known {
		fmt.Fprintf(errOut, "retriever: there is no command %q; want index, serve, search or verify, or see --help\n", args[0])
		return cli.Fault
	}
	name := "retriever " + args[0]
	flags := cli.Flags(name, fmt.Sprintf("%s\nOptions of %s:\n", usage, args[0]), out)
	perform := build(flags)
	err := flags.Parse(args[1:])
	if err != nil {
		err = fmt.Errorf("%w; see --help", err)
	} else {
		err = perform(ctx, flags.Args(), out, errOut)
	}
	return cli.Code(name, err, "", errOut)
}

// noArguments refuses what stands behind the options.
func noArguments(args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q; see --help", args[0])
	}
	return nil
}
