package warmstart

import (
	"context"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/generate"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
)

// Script is what a scripted policy does in one episode: it returns what to write in a turn, counted from 0, after the
// text that stands there so far. Writing that no stop string ends is followed by the end token.
type Script func(turn int, text string) string

// Scripted is a generate.Sampler that follows scripts instead of a model. Its log-probabilities are 0 and mean nothing:
// what it writes can be trained on with a likelihood, not with an importance ratio.
type Scripted struct {
	tok tokenizer.Tokenizer
	eos int
	// scripts finds the script of an episode by its seed.
	scripts func(seed uint64) Script
	turns   map[*generate.Sequence]int
}

var _ generate.Sampler = (*Scripted)(nil)

// NewScripted returns a sampler that ends sequences with the token eos.
func NewScripted(tok tokenizer.Tokenizer, eos int, scripts func(seed uint64) Script) *Scripted {
	return &Scripted{tok: tok, eos: eos, scripts: scripts, turns: map[*generate.Sequence]int{}}
}

// Generate implements generate.Sampler.
func (s *Scripted) Generate(ctx context.Context, seqs []*generate.Sequence, opts generate.Options) error {
	for _, seq := range seqs {
		ids := s.tok.Encode(s.scripts(seq.Seed)(s.turns[seq], s.tok.Decode(seq.IDs)))
		s.turns[seq]++
		s.write(seq, append(ids, s.eos), opts)
	}
	return ctx.Err()
}

// write appends ids to a sequence until something ends the turn.
func (s *Scripted) write(seq *generate.Sequence, ids []int, opts generate.Options) {
	most := opts.MaxNew
	if seq.MaxNew > 0 {
		most = seq.MaxNew
	}
	matcher := tokenizer.NewStopMatcher(opts.Stops)
	seq.NewIDs, seq.LogProbs, seq.Text, seq.Stop, seq.Reason = nil, nil, "", "", ""
	for _, id := range ids {
		if opts.MaxContext > 0 && len(seq.IDs) >= opts.MaxContext {
			seq.Reason = generate.ReasonContext
			break
		}
		seq.IDs, seq.NewIDs, seq.LogProbs = append(seq.IDs, id), append(seq.NewIDs, id), append(seq.LogProbs, 0)
		seq.Drawn++
		switch {
		case id == s.eos:
			seq.Reason = generate.ReasonEOS
		case matcher.Feed(s.tok.Bytes(id)):
			seq.Reason, seq.Stop = generate.ReasonStop, matcher.Stop()
		case len(seq.NewIDs) >= most:
			seq.Reason = generate.ReasonLength
		}
		if seq.Reason != "" {
			break
		}
	}
	seq.Text = matcher.Text()
}

// Release implements generate.Sampler.
func (s *Scripted) Release(seqs []*generate.Sequence) {
	for _, seq := range seqs {
		delete(s.turns, seq)
	}
}
