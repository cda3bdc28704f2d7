// Package generate samples continuations from a policy, many sequences at a time.
package generate

import "context"

// Reason says why sampling of one sequence stopped.
type Reason string

// The reasons sampling stops.
const (
	// ReasonStop: one of the stop strings was written.
	ReasonStop Reason = "stop"
	// ReasonEOS: an end token was sampled. It is the last of NewIDs and not part of Text.
	ReasonEOS Reason = "eos"
	// ReasonLength: MaxNew tokens were sampled.
	ReasonLength Reason = "length"
	// ReasonContext: the context is full.
	ReasonContext Reason = "context_full"
)

// Sequence is a growing row of tokens. A caller appends environment tokens with Append and asks a Sampler for more;
// the sampler keeps what it has computed for the tokens already seen.
type Sequence struct {
	// IDs are all tokens so far. Only Append and samplers change it.
	IDs []int
	// Seed fixes this sequence's draws: the same seed, tokens and weights give the same samples whatever else is in
	// the batch.
	Seed uint64
	// MaxNew bounds the tokens sampled in the next call; 0 means Options.MaxNew.
	MaxNew int

	// NewIDs and LogProbs are the tokens sampled in the last call and their log-probabilities, in nats, under the
	// distribution they were drawn from. All sampled tokens are kept whole, also when the last holds more than the
	// stop string.
	NewIDs   []int
	LogProbs []float32
	// Text is the text of NewIDs, cut right after the stop string that fired; an end token is not part of it.
	Text string
	// Reason and Stop say why sampling stopped, and which stop string fired.
	Reason Reason
	Stop   string

	// Drawn counts the tokens sampled so far; it numbers the draws of Seed.
	Drawn int
}

// NewSequence returns a sequence that starts with the given tokens.
func NewSequence(ids []int, seed uint64) *Sequence {
	return &Sequence{IDs: append([]int(nil), ids...), Seed: seed}
}

// Append adds tokens that the policy did not write.
func (s *Sequence) Append(ids []int) { s.IDs = append(s.IDs, ids...) }

// Options are the sampling options of one call.
type Options struct {
	// MaxNew bounds the tokens sampled for each sequence.
	MaxNew int
	// Temperature divides the logits; 0 takes the most likely token.
	Temperature float64
	// Stops are strings that end a sequence once they stand in the text sampled in this call; they may straddle
	// tokens.
	Stops []string
	// MaxContext bounds len(IDs); 0 means the model's own limit.
	MaxContext int
}

// Sampler continues sequences. Implementations are the Generator over a real model, and scripted policies in tests.
type Sampler interface {
	// Generate samples a continuation for each sequence and appends it to the sequence's IDs. On an error, a
	// cancelled context included, the sequences are in an undefined state.
	Generate(ctx context.Context, seqs []*Sequence, opts Options) error
	// Release frees what is kept for the sequences.
	Release(seqs []*Sequence)
}
