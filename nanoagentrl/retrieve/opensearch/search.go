package opensearch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/opensearch-project/opensearch-go/v4/opensearchapi"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/analysis"
)

// maxClauses is the number of terms that a query may have, OpenSearch's indices.query.bool.max_clause_count.
const maxClauses = 1024

// Search implements retrieve.Searcher: the queries of a turn go out together, in msearch requests of at most
// MaxBatch. A query that a busy or restarting node refuses is asked again; one that fails for good fails alone.
// Passages are the whole answer or none: one that lacks a shard is a failure. A query of more than 1,024 different
// terms is refused.
func (x *Index) Search(ctx context.Context, queries []string, topk int) []retrieve.Result {
	results := make([]retrieve.Result, len(queries))
	if topk < 1 || topk > MaxTopK && x.Len() > MaxTopK {
		failure := &retrieve.Error{Kind: retrieve.KindRequest,
			Err: fmt.Errorf("topk is %d, but must be from 1 to %d", topk, MaxTopK)}
		for i := range results {
			results[i].Err = x.named(failure)
		}
		return results
	}
	topk = min(topk, x.Len())
	x.patience.InBatches(len(queries), func(begin, end int) {
		x.searchBatch(ctx, queries[begin:end], topk, results[begin:end])
	})
	return results
}

// searchBatch answers the queries of one request, and asks again for those that a further attempt may answer.
func (x *Index) searchBatch(ctx context.Context, queries []string, topk int, results []retrieve.Result) {
	bodies := x.bodies(queries, topk, results)
	var open []int // the queries without an answer
	for i := range queries {
		if results[i].Err == nil {
			open = append(open, i)
		}
	}
	if len(open) == 0 {
		return
	}
	failure := x.patience.Retry(ctx, temporary, func() (failure *retrieve.Error) {
		open, failure = x.attempt(ctx, bodies, open, results)
		return failure
	})
	if failure != nil {
		for _, i := range open {
			results[i] = retrieve.Result{Err: x.named(failure)}
		}
	}
}

// header is the line before each query of an msearch request.
var header = []byte(`{"search_type":"dfs_query_then_fetch","allow_partial_search_results":false}` + "\n")

// attempt sends the open queries, fills in their results and returns those still open, with the reason. A failure that
// another attempt would not mend is the query's result.
func (x *Index) attempt(ctx context.Context, bodies [][]byte, open []int, results []retrieve.Result) (
	[]int, *retrieve.Error) {
	var body bytes.Buffer
	for _, i := range open {
		body.Write(header)
		body.Write(bodies[i])
		body.WriteByte('\n')
	}
	var answer opensearchapi.MSearchResp
	request := opensearchapi.MSearchReq{Indices: []string{x.index}, Body: &body}
	if failure := call(ctx, x.connection, http.MethodPost, request, &answer); failure != nil {
		return open, failure
	}
	if len(answer.Responses) != len(open) {
		return open, x.named(&retrieve.Error{Kind: retrieve.KindCount,
			Err: fmt.Errorf("%d results for %d queries", len(answer.Responses), len(open))})
	}
	var left []int
	var last *retrieve.Error
	for n, i := range open {
		r := &answer.Responses[n]
		failure := &retrieve.Error{Kind: retrieve.KindStatus, Status: r.Status}
		switch {
		case r.Error != nil:
			failure.Err = fmt.Errorf("the server says: %s: %s", r.Error.Type, excerpt(r.Error.Reason))
		case r.Timeout || r.Shards.Failed > 0:
			failure.Status = http.StatusServiceUnavailable
			failure.Err = fmt.Errorf("%d of %d shards did not answer", r.Shards.Failed, r.Shards.Total)
		default:
			passages, err := x.passages(r.Hits.Hits)
			if err == nil {
				results[i] = retrieve.Result{Passages: passages}
				continue
			}
			failure = &retrieve.Error{Kind: retrieve.KindDecode, Err: err}
		}
		if temporary(x.named(failure)) {
			left, last = append(left, i), failure
			continue
		}
		failure.Attempts = 1
		results[i] = retrieve.Result{Err: failure}
	}
	return left, last
}

// passages returns what was found, with scores as BM25 in process gives them.
func (x *Index) passages(hits []opensearchapi.SearchHit) ([]episode.Passage, error) {
	passages := make([]episode.Passage, len(hits))
	for i, hit := range hits {
		var source struct {
			ID       *string `json:"id"`
			Contents *string `json:"contents"`
		}
		if err := json.Unmarshal(hit.Source, &source); err != nil {
			return nil, fmt.Errorf("passage %q: %w", hit.ID, err)
		}
		if source.ID == nil || source.Contents == nil {
			return nil, fmt.Errorf("passage %q has no id or no contents", hit.ID)
		}
		score := float64(float32(float64(hit.Score) / x.factor)) // as exact as it came
		if x.embed != nil {
			score = innerProduct(float64(hit.Score))
		}
		passages[i] = episode.Passage{ID: *source.ID, Contents: *source.Contents, Score: score}
	}
	return passages, nil
}

// bodies returns the search of each query in OpenSearch's language. A query that cannot be asked gets its error.
func (x *Index) bodies(queries []string, topk int, results []retrieve.Result) [][]byte {
	var vectors [][]float32
	if x.embed != nil {
		var err error
		if vectors, err = embedAll(x.embed, queries, x.manifest.Dimension); err != nil {
			for i := range results {
				results[i].Err = x.named(&retrieve.Error{Kind: retrieve.KindRequest, Err: err})
			}
			return nil
		}
	}
	bodies := make([][]byte, len(queries))
	for i, text := range queries {
		var query any
		var err error
		if x.embed != nil {
			query = nearest(vectors[i], topk)
		} else {
			query, err = match(text)
		}
		if err == nil {
			bodies[i], err = json.Marshal(map[string]any{
				"query": query, "size": topk, "_source": []string{"id", "contents"}, "track_total_hits": false,
				"sort": []any{"_score", map[string]string{"place": "asc"}},
			})
		}
		if err != nil {
			results[i].Err = x.named(&retrieve.Error{Kind: retrieve.KindRequest, Err: err})
		}
	}
	return bodies
}

var errTooManyTerms = errors.New("the query has more different terms than OpenSearch takes")

// match is the query for passages that hold any term of a text. The server makes the terms of it, each occurrence a
// clause. A text that may have too many is taken apart here, so that repeated terms count only once against the
// limit.
func match(text string) (any, error) {
	if len(text) < 2*maxClauses { // a term takes a byte, and the space after it another
		return map[string]any{"match": map[string]any{"contents": text}}, nil
	}
	counts := map[string]int{}
	var clauses []any
	terms := analysis.Analyzer{}.Terms(text)
	for _, term := range terms {
		counts[term]++
	}
	if len(counts) > maxClauses {
		return nil, fmt.Errorf("%w: %d, the limit is %d", errTooManyTerms, len(counts), maxClauses)
	}
	for _, term := range terms {
		if n := counts[term]; n > 0 {
			weighted := map[string]any{"value": term, "boost": n}
			clauses = append(clauses, map[string]any{"term": map[string]any{"contents": weighted}})
			counts[term] = 0
		}
	}
	if len(clauses) == 0 {
		return map[string]any{"match_none": map[string]any{}}, nil
	}
	return map[string]any{"bool": map[string]any{"should": clauses}}, nil
}
