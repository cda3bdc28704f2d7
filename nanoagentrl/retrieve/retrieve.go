// Package retrieve searches corpora: BM25 in process, and an HTTP client for servers that speak the Search-R1
// contract.
package retrieve

import (
	"context"
	"fmt"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
)

// Searcher finds passages for queries. Implementations are safe for concurrent use.
type Searcher interface {
	// Search returns one Result for each query, in the same order. A Result holds at most topk passages, by
	// descending score; those of equal score stand in the order of the corpus. A topk below 1 is an error.
	Search(ctx context.Context, queries []string, topk int) []Result
}

// Result is what one query found, or why nothing could be searched. A query that matches nothing has no passages and
// no error.
type Result struct {
	Passages []episode.Passage
	Err      error
}

// Kind says in what way a search failed.
type Kind string

// The ways a search fails.
const (
	// KindRequest: the caller asked for something impossible, such as topk 0.
	KindRequest Kind = "bad_request"
	// KindCanceled: the caller's context ended; errors.Is finds its error.
	KindCanceled Kind = "canceled"
	// KindConnection: no connection, or it broke before the whole answer was there.
	KindConnection Kind = "connection"
	// KindTimeout: no answer within the time of one attempt.
	KindTimeout Kind = "timeout"
	// KindStatus: an answer with another status than 200; see Error.Status.
	KindStatus Kind = "status"
	// KindDecode: an answer that does not follow the contract.
	KindDecode Kind = "decode"
	// KindCount: results for another number of queries than were asked.
	KindCount Kind = "count"
	// KindTooLarge: an answer over the size limit.
	KindTooLarge Kind = "too_large"
	// KindIndex: an index in process that is damaged or closed.
	KindIndex Kind = "index"
)

// Error is the error of every failed search; errors.As finds it.
type Error struct {
	Kind Kind
	// URL is the server's address without a password; empty for a search in process.
	URL string
	// Status is the HTTP status, if there was one.
	Status int
	// Attempts counts the requests made.
	Attempts int
	// Err says what went wrong.
	Err error
}

// Error names the server, the failure and the number of attempts.
func (e *Error) Error() string {
	text := "retrieve"
	if e.URL != "" {
		text += ": " + e.URL
	}
	text += ": " + string(e.Kind)
	if e.Status != 0 {
		text += fmt.Sprintf(" %d", e.Status)
	}
	if e.Attempts > 1 {
		text += fmt.Sprintf(" after %d attempts", e.Attempts)
	}
	return text + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// failAll gives every query the same error.
func failAll(results []Result, err error) {
	for i := range results {
		results[i] = Result{Err: err}
	}
}

func checkTopK(topk int) error {
	if topk < 1 {
		return fmt.Errorf("topk is %d, but must be at least 1", topk)
	}
	return nil
}
