package retrieve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// ErrGaveUp is the error of an Outlast whose engine failed too often in a row.
var ErrGaveUp = errors.New("the search engine is gone")

// Outlast is a Searcher that outlives an outage of the one below it. A search of which every query failed counts as a
// failure; any other sets the count back. After a failure that another attempt may mend (no connection, a status of 429,
// or of 500 and above) it waits and asks again, so that a server that is restarted costs no episode; other failures are handed on
// at once. With the last of Failures in a row it calls GiveUp and hands on the failure. It is safe for concurrent use.
type Outlast struct {
	Searcher Searcher
	// Failures is the number of failures in a row that end it; at least 1.
	Failures int
	// Pause is the wait after the first failure; it doubles with each, up to MaxPause.
	Pause, MaxPause time.Duration
	// GiveUp is told why, as an error that wraps ErrGaveUp; it should end what is searching. Note is told, in a sentence,
	// of each wait. Either may be nil.
	GiveUp func(error)
	Note   func(message string)

	inARow atomic.Int64
}

var _ Searcher = (*Outlast)(nil)

// Search implements Searcher.
func (o *Outlast) Search(ctx context.Context, queries []string, topk int) []Result {
	for {
		results := o.Searcher.Search(ctx, queries, topk)
		failed := wholeFailure(results)
		if failed == nil {
			o.inARow.Store(0)
			return results
		}
		if failed.Kind == KindCanceled || failed.Kind == KindRequest {
			return results
		}
		n := o.inARow.Add(1)
		if n >= int64(o.Failures) {
			if o.GiveUp != nil {
				o.GiveUp(fmt.Errorf("%w: %d searches in a row failed, the last with: %w", ErrGaveUp, n, failed))
			}
			return results
		}
		if !failed.temporary() && failed.Status != http.StatusTooManyRequests {
			return results
		}
		pause := o.pause(n)
		if o.Note != nil {
			o.Note(fmt.Sprintf("the search engine failed (%d of at most %d times in a row), asking again in %v: %v", n,
				o.Failures, pause, failed))
		}
		if err := sleep(ctx, pause); err != nil {
			failAll(results, &Error{Kind: KindCanceled, Err: err})
			return results
		}
	}
}

// wholeFailure returns the failure of the first query if all of them failed, else nil.
func wholeFailure(results []Result) *Error {
	for _, result := range results {
		if result.Err == nil {
			return nil
		}
	}
	if len(results) == 0 {
		return nil
	}
	var failed *Error
	if !errors.As(results[0].Err, &failed) {
		failed = &Error{Kind: KindIndex, Err: results[0].Err}
	}
	return failed
}

func (o *Outlast) pause(failures int64) time.Duration {
	pause := o.Pause
	for range failures - 1 {
		pause = min(2*pause, o.MaxPause)
	}
	return min(pause, o.MaxPause)
}
