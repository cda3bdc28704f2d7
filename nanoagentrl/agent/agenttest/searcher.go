package agenttest

import (
	"context"
	"fmt"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
)

// Searcher is a search engine that answers from a table.
type Searcher struct {
	// Passages are the results by query; a query that is not in the table finds nothing.
	Passages map[string][]episode.Passage
	// Errs are the queries that fail.
	Errs map[string]error
	// Before, if not nil, is called at the start of each search.
	Before func()

	// Queries holds the queries of each call so far.
	Queries [][]string
}

// Search implements retrieve.Searcher.
func (s *Searcher) Search(ctx context.Context, queries []string, topk int) []retrieve.Result {
	s.Queries = append(s.Queries, append([]string(nil), queries...))
	if s.Before != nil {
		s.Before()
	}
	results := make([]retrieve.Result, len(queries))
	for i, query := range queries {
		switch err := s.Errs[query]; {
		case ctx.Err() != nil:
			results[i].Err = ctx.Err()
		case err != nil:
			results[i].Err = err
		default:
			passages := s.Passages[query]
			results[i].Passages = passages[:min(topk, len(passages))]
		}
	}
	return results
}

// Passage returns a passage with the given id, title and text.
func Passage(id, title, text string) episode.Passage {
	return episode.Passage{ID: id, Contents: fmt.Sprintf("%q\n%s", title, text), Score: 1}
}
