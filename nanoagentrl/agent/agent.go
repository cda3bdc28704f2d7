// Package agent lets a policy act: it writes the prompt, samples turn by turn, reads the action out of each turn, asks
// the search engine, and records everything in Episodes.
//
// A search episode is
//
//	prompt, (policy turn, observation)*, policy turn
//
// and every policy turn amounts to one action: a search, an answer, or neither (ParseAction). Tokens enter an Episode
// as they were sampled, in order, and are never made again from text. What the environment writes, passages and
// correction messages, never counts as the policy's.
//
// It leaves out tools other than search, and parallel calls within one turn.
package agent

import (
	"errors"
	"fmt"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/generate"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
)

// Task says what an episode looks like.
type Task string

// The tasks.
const (
	// TaskSearch answers a question with a search engine over several turns.
	TaskSearch Task = "search"
	// TaskGSM8K solves a maths problem in one turn, which the end token or the token budget ends.
	TaskGSM8K Task = "gsm8k"
)

// Options bound an episode. Lengths are in tokens.
type Options struct {
	Task Task
	// Temperature divides the logits; 0 takes the most likely token. There is no top-k or top-p: the recorded
	// log-probabilities are those of the full distribution.
	Temperature float64
	// MaxTurns bounds the actions of an episode, searches, invalid ones and the answer together. In the last turn only
	// an answer helps: a search there is not run, and the episode ends with StopTurns.
	MaxTurns int
	// MaxNewTokens bounds the policy's tokens in the whole episode, MaxTurnTokens those of one search turn; 0 means
	// MaxNewTokens. A turn that is cut by MaxTurnTokens is an invalid action, one that is cut by MaxNewTokens ends the
	// episode with StopLength.
	MaxNewTokens, MaxTurnTokens int
	// TopK is the number of passages a search returns; MaxObsTokens bounds what is shown of them.
	TopK, MaxObsTokens int
	// ShufflePassages shows the passages of a search result in an order drawn from the episode's seed instead of by
	// rank. If not all of them fit into MaxObsTokens, those that come last in that order are left out.
	ShufflePassages bool
	// MaxContext bounds the whole episode. When it is full the episode ends with StopContext; nothing is ever dropped
	// from the front.
	MaxContext int
	// Batch is the number of episodes that are played at the same time; 0 means all.
	Batch int
	// SkipLong leaves out a question whose prompt has no room for one full turn in MaxContext, and counts it; if
	// false, such a prompt is an error.
	SkipLong bool
}

// Rollouter plays episodes. It is not safe for concurrent use.
type Rollouter struct {
	tok      tokenizer.Tokenizer
	sampler  generate.Sampler
	searcher retrieve.Searcher
	prompter *Prompter
	opts     Options

	correction []int
	skipped    int
	searchErr  error
}

// New returns a Rollouter. searcher may be nil if the task is not search.
func New(tok tokenizer.Tokenizer, sampler generate.Sampler, searcher retrieve.Searcher, prompter *Prompter,
	opts Options) (*Rollouter, error) {
	r := &Rollouter{tok: tok, sampler: sampler, searcher: searcher, prompter: prompter, opts: opts}
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	r.correction = tok.EncodePlain(Correction)
	return r, nil
}

func (r *Rollouter) check() error {
	o := r.opts
	if o.Task != TaskSearch && o.Task != TaskGSM8K {
		return fmt.Errorf("unknown task %q; want %s or %s", o.Task, TaskSearch, TaskGSM8K)
	}
	if o.MaxNewTokens < 1 || o.MaxTurnTokens < 0 || o.MaxContext < 1 || o.Batch < 0 || o.Temperature < 0 {
		return fmt.Errorf("max_new_tokens (%d) and max_context (%d) must be at least 1; max_turn_tokens (%d), "+
			"rollout_batch (%d) and the temperature (%g) at least 0",
			o.MaxNewTokens, o.MaxContext, o.MaxTurnTokens, o.Batch, o.Temperature)
	}
	if o.Task != TaskSearch {
		return nil
	}
	if o.MaxTurns < 1 || o.TopK < 1 {
		return fmt.Errorf("max_turns (%d) and topk (%d) must be at least 1", o.MaxTurns, o.TopK)
	}
	if r.searcher == nil {
		return errors.New("task search needs a search engine")
	}
	for _, smallest := range []string{Observation(nil), Observation([]episode.Passage{{Contents: "\"T\"\nt"}})} {
		if n := len(r.tok.EncodePlain(smallest)); n > o.MaxObsTokens {
			return fmt.Errorf("max_obs_tokens (%d) cannot hold the shortest search result, which takes %d tokens",
				o.MaxObsTokens, n)
		}
	}
	return nil
}

// Skipped returns how many questions have been left out so far because their prompts were too long.
func (r *Rollouter) Skipped() int { return r.skipped }

// SearchError returns the last error of the search engine in the latest Rollout, or nil. The policy never sees it.
func (r *Rollouter) SearchError() error { return r.searchErr }

// turnTokens returns how many tokens the policy may write in its next turn, having written used in the episode.
func (o *Options) turnTokens(used int) int {
	left := o.MaxNewTokens - used
	if o.Task == TaskSearch && o.MaxTurnTokens > 0 {
		return min(left, o.MaxTurnTokens)
	}
	return left
}
