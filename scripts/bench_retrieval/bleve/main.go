// Command bleve times the bleve library on the corpus that bench_retrieval wrote. It is a module of its own, so that bleve
// is no dependency of the project: cd scripts/bench_retrieval/bleve && go run . DIR
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/analysis/lang/en"
	"github.com/blevesearch/bleve/v2/index/scorch"
	"github.com/blevesearch/bleve/v2/mapping"
	index "github.com/blevesearch/bleve_index_api"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run . DIR")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "bleve: %v\n", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	out := map[string]any{"what": "bleve", "topk": 3, "cores": runtime.GOMAXPROCS(0)}
	path := filepath.Join(dir, "bleve")
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	start := time.Now()
	x, n, err := build(filepath.Join(dir, "corpus.jsonl"), path)
	if err != nil {
		return err
	}
	if err := x.Close(); err != nil {
		return err
	}
	out["n"], out["index_s"], out["peak_build_gib"] = n, time.Since(start).Seconds(), peakGiB()
	size := int64(0)
	err = filepath.WalkDir(path, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			info, infoErr := entry.Info()
			if infoErr != nil {
				return infoErr
			}
			size += info.Size()
		}
		return err
	})
	if err != nil {
		return err
	}
	out["index_mib"] = float64(size) / (1 << 20) // the texts are not stored in it
	start = time.Now()
	if x, err = bleve.Open(path); err != nil {
		return err
	}
	out["open_ms"] = time.Since(start).Seconds() * 1000
	queries, err := lines(filepath.Join(dir, "queries.txt"))
	if err != nil {
		return err
	}
	best := time.Duration(1<<63 - 1)
	for range 3 {
		start = time.Now()
		if err := searchAll(x, queries); err != nil {
			return err
		}
		best = min(best, time.Since(start))
	}
	out["queries"], out["q_s"] = len(queries), float64(len(queries))/best.Seconds()
	start = time.Now()
	alone := queries[:min(200, len(queries))]
	for _, q := range alone {
		if _, err := search(x, q); err != nil {
			return err
		}
	}
	out["single_q_s"], out["peak_gib"] = float64(len(alone))/time.Since(start).Seconds(), peakGiB()
	text, err := json.Marshal(out)
	if err != nil {
		return err
	}
	fmt.Println(string(text))
	return x.Close()
}

// build indexes the contents with bleve's English analyser, without storing them, and with BM25 scores.
func build(corpus, path string) (bleve.Index, int, error) {
	field := bleve.NewTextFieldMapping()
	field.Analyzer, field.Store, field.IncludeTermVectors, field.DocValues = en.AnalyzerName, false, false, false
	field.IncludeInAll = false
	document := bleve.NewDocumentStaticMapping()
	document.AddFieldMappingsAt("contents", field)
	var m *mapping.IndexMappingImpl = bleve.NewIndexMapping()
	m.DefaultMapping, m.DefaultAnalyzer, m.ScoringModel = document, en.AnalyzerName, index.BM25Scoring
	x, err := bleve.NewUsing(path, m, scorch.Name, scorch.Name, nil)
	if err != nil {
		return nil, 0, err
	}
	file, err := os.Open(corpus)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	n, batch := 0, x.NewBatch()
	in := bufio.NewScanner(file)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		var p struct{ ID, Contents string }
		if err := json.Unmarshal(in.Bytes(), &p); err != nil {
			return nil, 0, err
		}
		if err := batch.Index(p.ID, map[string]any{"contents": p.Contents}); err != nil {
			return nil, 0, err
		}
		if n++; batch.Size() >= 4000 {
			if err := x.Batch(batch); err != nil {
				return nil, 0, err
			}
			batch = x.NewBatch()
		}
	}
	if err := in.Err(); err != nil {
		return nil, 0, err
	}
	return x, n, x.Batch(batch)
}

func search(x bleve.Index, query string) (*bleve.SearchResult, error) {
	match := bleve.NewMatchQuery(query)
	match.SetField("contents")
	return x.Search(bleve.NewSearchRequestOptions(match, 3, 0, false))
}

func searchAll(x bleve.Index, queries []string) error {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(queries); i = next.Add(1) - 1 {
				if _, err := search(x, queries[i]); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	group.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

func lines(path string) (all []string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	for in := bufio.NewScanner(file); in.Scan(); {
		all = append(all, in.Text())
	}
	return all, nil
}

func peakGiB() float64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for row := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(row, "VmHWM:"); ok {
			kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib / (1 << 20)
		}
	}
	return 0
}
