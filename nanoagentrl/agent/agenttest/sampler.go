package agenttest

import (
	"context"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/generate"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
)

// Sampler is a policy that follows a script. It keeps the rules of generate.Sampler: stop strings may straddle tokens,
// all sampled tokens are kept, and the length and context limits hold.
type Sampler struct {
	// Tok and EOS turn the script into tokens; a script that runs out is followed by EOS.
	Tok tokenizer.Tokenizer
	EOS int
	// Script returns what the policy wants to write in a turn. Episodes are numbered in the order in which they are
	// first seen, which is the order in which Rollout returns them; turns count from 0.
	Script func(episode, turn int) string
	// Err, if not nil, is called before each call's work.
	Err func(ctx context.Context) error

	// Calls holds the options, and Live the number of sequences, of each call so far.
	Calls []generate.Options
	Live  []int

	episodes map[*generate.Sequence]int
	turns    map[*generate.Sequence]int
	released map[*generate.Sequence]int
}

// NewSampler returns a policy that writes turns[episode][turn]; episodes and turns beyond the script write nothing but
// the end token.
func NewSampler(tok *Tokenizer, turns ...[]string) *Sampler {
	return &Sampler{Tok: tok, EOS: EOS, Script: func(episode, turn int) string {
		if episode < len(turns) && turn < len(turns[episode]) {
			return turns[episode][turn]
		}
		return ""
	}}
}

// LogProb is the log-probability that a Sampler reports for its n-th token of a sequence.
func LogProb(n int) float32 { return -0.5 - 0.001*float32(n) }

// Generate implements generate.Sampler.
func (s *Sampler) Generate(ctx context.Context, seqs []*generate.Sequence, opts generate.Options) error {
	s.meet(seqs)
	s.Calls, s.Live = append(s.Calls, opts), append(s.Live, len(seqs))
	if s.Err != nil {
		if err := s.Err(ctx); err != nil {
			return err
		}
	}
	for _, seq := range seqs {
		s.write(seq, s.Tok.Encode(s.Script(s.episodes[seq], s.turns[seq])), opts)
		s.turns[seq]++
	}
	return ctx.Err()
}

// meet numbers the sequences that are new.
func (s *Sampler) meet(seqs []*generate.Sequence) {
	if s.episodes == nil {
		s.episodes, s.turns = map[*generate.Sequence]int{}, map[*generate.Sequence]int{}
		s.released = map[*generate.Sequence]int{}
	}
	for _, seq := range seqs {
		if _, seen := s.episodes[seq]; !seen {
			s.episodes[seq] = len(s.episodes)
		}
	}
}

func (s *Sampler) write(seq *generate.Sequence, script []int, opts generate.Options) {
	most := opts.MaxNew
	if seq.MaxNew > 0 {
		most = seq.MaxNew
	}
	seq.NewIDs, seq.LogProbs, seq.Text, seq.Stop, seq.Reason = nil, nil, "", "", ""
	for seq.Reason == "" {
		switch {
		case opts.MaxContext > 0 && len(seq.IDs) >= opts.MaxContext:
			seq.Reason = generate.ReasonContext
			return
		case len(seq.NewIDs) >= most:
			seq.Reason = generate.ReasonLength
			return
		}
		id := s.EOS
		if n := len(seq.NewIDs); n < len(script) {
			id = script[n]
		}
		seq.IDs, seq.NewIDs = append(seq.IDs, id), append(seq.NewIDs, id)
		seq.LogProbs = append(seq.LogProbs, LogProb(seq.Drawn))
		seq.Drawn++
		if id == s.EOS {
			seq.Reason = generate.ReasonEOS
			return
		}
		seq.Text = s.Tok.Decode(seq.NewIDs)
		for _, stop := range opts.Stops {
			if at := strings.Index(seq.Text, stop); at >= 0 {
				seq.Text, seq.Stop, seq.Reason = seq.Text[:at+len(stop)], stop, generate.ReasonStop
			}
		}
	}
}

// Release implements generate.Sampler.
func (s *Sampler) Release(seqs []*generate.Sequence) {
	s.meet(seqs)
	for _, seq := range seqs {
		s.released[seq]++
	}
}

// Unreleased returns how many sequences were not released exactly once.
func (s *Sampler) Unreleased() int {
	n := 0
	for seq := range s.episodes {
		if s.released[seq] != 1 {
			n++
		}
	}
	return n
}
