package retrieve

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
)

// script answers searches one after the other: nil is a hit for every query, an error a failure of every query; "half"
// fails the first query only. After the last the last comes again.
type script struct {
	answers []error
	asked   int
}

var errHalf = errors.New("half")

func (s *script) Search(_ context.Context, queries []string, _ int) []Result {
	err := s.answers[min(s.asked, len(s.answers)-1)]
	s.asked++
	results := make([]Result, len(queries))
	for i := range results {
		if err == nil || err == errHalf && i > 0 {
			results[i].Passages = []episode.Passage{{ID: "hit"}}
		} else {
			results[i].Err = &Error{Kind: KindStatus, Status: 500, Err: err}
			if failed := (*Error)(nil); errors.As(err, &failed) {
				results[i].Err = failed
			}
		}
	}
	return results
}

func outlast(s *script, failures int) (o *Outlast, gaveUp *[]error) {
	gaveUp = new([]error)
	return &Outlast{Searcher: s, Failures: failures, Pause: time.Millisecond, MaxPause: 4 * time.Millisecond,
		GiveUp: func(err error) { *gaveUp = append(*gaveUp, err) }}, gaveUp
}

var errDown = errors.New("down")

func TestRestartedServerCostsNoEpisode(t *testing.T) {
	s := &script{answers: []error{errDown, errDown, errDown, nil}}
	o, gaveUp := outlast(s, 4)
	for _, result := range o.Search(t.Context(), []string{"a", "b"}, 3) {
		assert.NoError(t, result.Err)
		assert.Len(t, result.Passages, 1)
	}
	assert.Equal(t, 4, s.asked)
	assert.Empty(t, *gaveUp)
}

func TestFailuresInARowEndTheRun(t *testing.T) {
	s := &script{answers: []error{errDown}}
	o, gaveUp := outlast(s, 3)
	for _, result := range o.Search(t.Context(), []string{"a", "b"}, 3) {
		assert.Error(t, result.Err)
		assert.Empty(t, result.Passages)
	}
	assert.Equal(t, 3, s.asked)
	require.Len(t, *gaveUp, 1)
	assert.ErrorIs(t, (*gaveUp)[0], ErrGaveUp)
	assert.ErrorIs(t, (*gaveUp)[0], errDown)
	assert.ErrorContains(t, (*gaveUp)[0], "3 searches in a row failed")
}

func TestSuccessSetsTheCountBack(t *testing.T) {
	s := &script{answers: []error{errDown, nil, errDown, nil, errDown, errHalf}}
	o, gaveUp := outlast(s, 2)
	for range 3 {
		results := o.Search(t.Context(), []string{"a", "b"}, 3)
		assert.NoError(t, results[1].Err)
	}
	results := o.Search(t.Context(), []string{"a", "b"}, 3)
	assert.Error(t, results[0].Err, "a failure of some queries is handed on")
	assert.Empty(t, *gaveUp)
}

func TestFailureThatWouldOnlyRepeatItselfIsNotWaitedFor(t *testing.T) {
	for _, kind := range []Kind{KindTimeout, KindDecode, KindCount, KindTooLarge, KindIndex} {
		s := &script{answers: []error{&Error{Kind: kind, Err: errDown}}}
		o, gaveUp := outlast(s, 2)
		assert.Error(t, o.Search(t.Context(), []string{"a"}, 3)[0].Err)
		assert.Equal(t, 1, s.asked, kind)
		assert.Empty(t, *gaveUp)
		o.Search(t.Context(), []string{"a"}, 3)
		assert.Len(t, *gaveUp, 1, "but it counts")
	}
	for _, kind := range []Kind{KindCanceled, KindRequest} {
		s := &script{answers: []error{&Error{Kind: kind, Err: errDown}}}
		o, gaveUp := outlast(s, 1)
		o.Search(t.Context(), []string{"a"}, 3)
		assert.Empty(t, *gaveUp, "the caller's own doing")
	}
	o, _ := outlast(&script{answers: []error{nil}}, 1)
	assert.Empty(t, o.Search(t.Context(), nil, 3))
}

func TestWaitEndsWithTheContext(t *testing.T) {
	o, gaveUp := outlast(&script{answers: []error{errDown}}, 9)
	o.Pause, o.MaxPause = time.Hour, time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	o.Note = func(message string) {
		assert.Contains(t, message, "1 of at most 9")
		cancel()
	}
	results := o.Search(ctx, []string{"a"}, 3)
	var failed *Error
	require.ErrorAs(t, results[0].Err, &failed)
	assert.Equal(t, KindCanceled, failed.Kind)
	assert.Empty(t, *gaveUp)
	assert.Equal(t, []time.Duration{1, 2, 4, 4}, []time.Duration{(&Outlast{Pause: 1, MaxPause: 4}).pause(1),
		(&Outlast{Pause: 1, MaxPause: 4}).pause(2), (&Outlast{Pause: 1, MaxPause: 4}).pause(3), (&Outlast{Pause: 1, MaxPause: 4}).pause(4)})
}
