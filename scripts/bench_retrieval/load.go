package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
)

// warmBatch is the number of queries of a request before the measurement.
const warmBatch = 64

// load asks a server all queries once, and then over many connections at once, each as soon as the
// answer before is there.
func load(ctx context.Context, o *options, out io.Writer) error {
	queries, err := readLines(o.dir, "queries.txt")
	if err != nil {
		return err
	}
	x, err := retrieve.OpenBM25(filepath.Join(o.dir, "index"), retrieve.DefaultBM25())
	if err != nil {
		return err
	}
	want := x.Search(ctx, queries, o.topk)
	if err := x.Close(); err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: o.connections}}
	for part := range slices.Chunk(queries, warmBatch) { // What a server keeps of an index grows once.
		if _, err := request(ctx, client, o, part); err != nil {
			return err
		}
	}
	before, err := residentMiB(ctx, o.url)
	if err != nil {
		return err
	}
	until := time.Now().Add(time.Duration(o.seconds) * time.Second)
	workers := make([]loader, o.connections)
	var group sync.WaitGroup
	for i := range workers {
		w := &workers[i]
		group.Go(func() {
			for at := i * o.batch; time.Now().Before(until) && ctx.Err() == nil; at += o.connections * o.batch {
				w.ask(ctx, client, o, queries, want, at)
			}
		})
	}
	half := 0.0
	select {
	case <-time.After(time.Until(until) / 2):
		half, err = residentMiB(ctx, o.url)
	case <-ctx.Done():
	}
	group.Wait()
	if err := errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	after, err := residentMiB(ctx, o.url)
	if err != nil {
		return err
	}
	var all loader
	for _, w := range workers {
		all.times = append(all.times, w.times...)
		all.failed += w.failed
		all.different += w.different
	}
	return line(out, map[string]any{"what": "load", "connections": o.connections, "seconds": o.seconds, "batch": o.batch,
		"requests": len(all.times), "failed": all.failed, "different": all.different,
		"requests_s": round(float64(len(all.times)) / float64(o.seconds)), "p50_ms": percentile(all.times, 0.5),
		"p99_ms": percentile(all.times, 0.99), "max_ms": percentile(all.times, 1),
		"server_mib": []float64{before, half, after}})
}

// loader is one connection.
type loader struct {
	times             []time.Duration
	failed, different int
}

// ask makes one request for the queries from at on and compares the answer.
func (l *loader) ask(ctx context.Context, client *http.Client, o *options, queries []string, want []retrieve.Result, at int) {
	var asked []string
	var expected [][]episode.Passage
	for i := range o.batch {
		k := (at + i) % len(queries)
		asked, expected = append(asked, queries[k]), append(expected, want[k].Passages)
	}
	start := time.Now()
	got, err := request(ctx, client, o, asked)
	l.times = append(l.times, time.Since(start))
	switch {
	case err != nil:
		l.failed++
	case !reflect.DeepEqual(got, expected):
		l.different++
	}
}

func request(ctx context.Context, client *http.Client, o *options, queries []string) ([][]episode.Passage, error) {
	body, err := json.Marshal(map[string]any{"queries": queries, "topk": o.topk, "return_scores": true})
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, o.url+"/retrieve", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var answer struct {
		Result [][]struct {
			Document episode.Passage `json:"document"`
			Score    float64         `json:"score"`
		} `json:"result"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK || len(answer.Result) != len(queries) {
		return nil, fmt.Errorf("status %d, %d results", response.StatusCode, len(answer.Result))
	}
	_, _ = io.Copy(io.Discard, response.Body) // so that the connection is used again
	got := make([][]episode.Passage, len(queries))
	for i, hits := range answer.Result {
		got[i] = []episode.Passage{}
		for _, hit := range hits {
			hit.Document.Score = hit.Score
			got[i] = append(got[i], hit.Document)
		}
	}
	return got, nil
}

// residentMiB returns the memory of the server, as its metrics have it.
func residentMiB(ctx context.Context, url string) (float64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	for rows := bufio.NewScanner(response.Body); rows.Scan(); {
		if value, ok := strings.CutPrefix(rows.Text(), "process_resident_memory_bytes "); ok {
			bytes, err := strconv.ParseFloat(value, 64)
			return round(bytes / (1 << 20)), err
		}
	}
	return 0, nil
}
