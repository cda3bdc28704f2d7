package agent

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent/agenttest"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/generate"
)

// brokenSampler breaks one rule of generate.Sampler.
type brokenSampler struct {
	*agenttest.Sampler
	spoil func(s *generate.Sequence)
}

func (b brokenSampler) Generate(ctx context.Context, seqs []*generate.Sequence, opts generate.Options) error {
	err := b.Sampler.Generate(ctx, seqs, opts)
	b.spoil(seqs[0])
	return err
}

func TestABrokenSamplerIsFoundOut(t *testing.T) {
	for message, spoil := range map[string]func(s *generate.Sequence){
		"18 tokens with 17 log-probabilities":     func(s *generate.Sequence) { s.LogProbs = s.LogProbs[1:] },
		"is not the 4 before and the 18 sampled":  func(s *generate.Sequence) { s.IDs = s.IDs[1:] },
		"is not the 4 before and the 18 sampled ": func(s *generate.Sequence) { s.IDs[5]++ },
		"18 tokens where 17 were allowed":         func(s *generate.Sequence) { s.MaxNew = 17 },
		"log-probability NaN":                     func(s *generate.Sequence) { s.LogProbs[2] = float32(nan()) },
	} {
		w := newWorld([]string{"<answer>a</answer>"})
		r := w.rollouter(t)
		r.sampler = brokenSampler{w.sampler, spoil}
		_, err := r.Rollout(context.Background(), rows("?"), 1, Seeds(1, "train", 0))
		require.Error(t, err)
		assert.ErrorContains(t, err, strings.TrimSpace(message))
		assert.ErrorContains(t, err, "id_?")
	}
}

func nan() float64 { zero := 0.0; return zero / zero }

func TestOptionsAreChecked(t *testing.T) {
	for message, change := range map[string]func(o *Options){
		"unknown task":                    func(o *Options) { o.Task = "chess" },
		"max_new_tokens (0)":              func(o *Options) { o.MaxNewTokens = 0 },
		"max_context (0)":                 func(o *Options) { o.MaxContext = 0 },
		"max_turns (0)":                   func(o *Options) { o.MaxTurns = 0 },
		"topk (0)":                        func(o *Options) { o.TopK = 0 },
		"max_obs_tokens (20) cannot hold": func(o *Options) { o.MaxObsTokens = 20 },
		"temperature (-1)":                func(o *Options) { o.Temperature = -1 },
	} {
		w := newWorld()
		change(&w.opts)
		_, err := New(w.tok, w.sampler, w.searcher, &Prompter{User: "{question}"}, w.opts)
		require.ErrorContains(t, err, message)
	}
	w := newWorld()
	_, err := New(w.tok, w.sampler, nil, &Prompter{User: "{question}"}, w.opts)
	require.ErrorContains(t, err, "needs a search engine")
	_, err = w.rollouter(t).Rollout(context.Background(), rows("?"), 0, Seeds(1, "train", 0))
	require.ErrorContains(t, err, "group size")
}

func TestCheckFindsContradictions(t *testing.T) {
	for _, spoil := range []func(e *episode.Episode){
		func(e *episode.Episode) { e.LogProbs = e.LogProbs[1:] },
		func(e *episode.Episode) { e.Sources = e.Sources[1:] },
		func(e *episode.Episode) { e.Turns[0].Begin++ },
		func(e *episode.Episode) { e.Turns[0].End++ },
		func(e *episode.Episode) { e.Turns[1].End-- },
		func(e *episode.Episode) { e.Turns = e.Turns[:1] },
		func(e *episode.Episode) { e.Turns[1].End = 1 << 30 },
	} {
		w := newWorld([]string{"<search>q</search>", "<answer>a</answer>"})
		e := w.play(t, 1, "?")[0]
		spoil(e)
		assert.Error(t, Check(e))
	}
}
