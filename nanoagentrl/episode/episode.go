// Package episode holds the Episode, the one record that rollouts, rewards, the loss, checkpoints, evaluation and
// viewers share: what the policy wrote, what the environment answered, and what it was worth.
package episode

import "fmt"

// Source says who wrote a token.
type Source uint8

// The three writers of tokens. Only Policy tokens carry mask 1.
const (
	Prompt Source = iota
	Policy
	Environment
)

// StopReason says why an episode ended.
type StopReason string

// The reasons an episode ends.
const (
	// StopAnswer: the policy closed an <answer> block.
	StopAnswer StopReason = "answer"
	// StopTurns: the policy asked for another search, or acted invalidly, with no turn left.
	StopTurns StopReason = "out_of_turns"
	// StopLength: the policy used up its token budget.
	StopLength StopReason = "length"
	// StopContext: the model's context is full.
	StopContext StopReason = "context_full"
	// StopEOS: a single-turn episode ended with the end token.
	StopEOS StopReason = "eos"
	// StopRetriever: the search engine failed; the episode is left out of the loss.
	StopRetriever StopReason = "retriever_error"
)

// Action is what one turn of the policy amounts to.
type Action string

// The actions a turn can end in.
const (
	ActionSearch  Action = "search"
	ActionAnswer  Action = "answer"
	ActionInvalid Action = "invalid"
	// ActionNone marks the one turn of a single-turn episode, where no action is expected.
	ActionNone Action = "none"
)

// Passage is one retrieved document as the policy saw it.
type Passage struct {
	ID       string  `json:"id"`
	Contents string  `json:"contents"`
	Score    float64 `json:"score"`
}

// Turn is one stretch of policy tokens and what the environment answered.
type Turn struct {
	// Text is what the policy wrote in this turn.
	Text string `json:"text"`
	// Action is the parsed action; Content is the query or the answer inside its tags.
	Action  Action `json:"action"`
	Content string `json:"content,omitempty"`
	// Passages are what the search returned, cut to what was shown to the policy.
	Passages []Passage `json:"passages,omitempty"`
	// Observation is the text appended by the environment after this turn.
	Observation string `json:"observation,omitempty"`
	// Begin and End delimit the policy's tokens of this turn in Episode.IDs.
	Begin int `json:"begin"`
	End   int `json:"end"`
}

// Episode is one attempt of the policy at one question. IDs, Sources and LogProbs are parallel: they grow only
// through Append, so that their lengths cannot differ, and are never rebuilt from text.
type Episode struct {
	// QuestionID, Question, Answers and DataSource are copied from the data row.
	QuestionID string   `json:"question_id"`
	Question   string   `json:"question"`
	Answers    []string `json:"golden_answers"`
	DataSource string   `json:"data_source"`
	// Group numbers the prompt within its step; Sample numbers the episode within its group.
	Group  int `json:"group"`
	Sample int `json:"sample"`
	// Seed is the seed of this episode's sampling.
	Seed uint64 `json:"seed"`
	// PromptText is the prompt as it was encoded.
	PromptText string `json:"prompt_text,omitempty"`

	// IDs are all tokens: prompt, policy and environment, in the order in which they were appended.
	IDs []int `json:"ids"`
	// Sources says who wrote each token. In JSON it is a base64 string of one byte a token.
	Sources []Source `json:"sources"`
	// LogProbs holds, at policy tokens, the log-probability under the distribution they were sampled from, in nats;
	// at all other tokens it is 0 and must not be read.
	LogProbs []float32 `json:"log_probs"`

	Turns []Turn     `json:"turns"`
	Stop  StopReason `json:"stop_reason"`

	// Parts are the reward parts by name ("em", "f1", "format" …); Reward is their weighted sum.
	Parts  map[string]float64 `json:"reward_parts,omitempty"`
	Reward float64            `json:"reward"`
	// Advantage is how much better the episode is than what it is compared with: that of each trained token, or their
	// mean where Advantages is not nil. SetAdvantages sets both.
	Advantage float64 `json:"advantage"`
	// Advantages are parallel to IDs, 0 at tokens that are not trained; nil if all trained tokens have Advantage.
	Advantages []float32 `json:"advantages,omitempty"`
}

// SetAdvantages gives each token at which mask is true its advantage. Both slices are parallel to IDs; it panics if they
// are not, which is a programming error.
func (e *Episode) SetAdvantages(advantages []float64, mask []bool) {
	if len(advantages) != len(e.IDs) || len(mask) != len(e.IDs) {
		panic(fmt.Sprintf("episode: %d advantages and a mask of %d for %d tokens", len(advantages), len(mask), len(e.IDs)))
	}
	e.Advantage, e.Advantages = 0, nil
	first, sum, n, differ := 0.0, 0.0, 0, false
	for t, trained := range mask {
		if !trained {
			continue
		}
		if n == 0 {
			first = advantages[t]
		}
		differ = differ || advantages[t] != first
		sum, n = sum+advantages[t], n+1
	}
	if !differ {
		e.Advantage = first
		return
	}
	e.Advantage, e.Advantages = sum/float64(n), make([]float32, len(mask))
	for t, trained := range mask {
		if trained {
			e.Advantages[t] = float32(advantages[t])
		}
	}
}

// AdvantageAt returns the advantage of token t, which must be one that is trained.
func (e *Episode) AdvantageAt(t int) float32 {
	if e.Advantages == nil {
		return float32(e.Advantage)
	}
	return e.Advantages[t]
}

// Append adds tokens written by source. Policy tokens need one log-probability each; for other sources logProbs must
// be nil. It panics on a length mismatch, which is a programming error.
func (e *Episode) Append(source Source, ids []int, logProbs []float32) {
	if source == Policy && len(logProbs) != len(ids) {
		panic(fmt.Sprintf("episode: %d policy tokens with %d log-probabilities", len(ids), len(logProbs)))
	}
	if source != Policy && logProbs != nil {
		panic("episode: log-probabilities given for tokens the policy did not write")
	}
	e.IDs = append(e.IDs, ids...)
	for i := range ids {
		e.Sources = append(e.Sources, source)
		if source == Policy {
			e.LogProbs = append(e.LogProbs, logProbs[i])
		} else {
			e.LogProbs = append(e.LogProbs, 0)
		}
	}
}

// Mask returns 1 for each token the policy sampled and 0 for prompt and environment tokens; len(Mask()) == len(IDs).
func (e *Episode) Mask() []uint8 {
	mask := make([]uint8, len(e.Sources))
	for i, s := range e.Sources {
		if s == Policy {
			mask[i] = 1
		}
	}
	return mask
}

// CountTokens returns how many tokens source wrote.
func (e *Episode) CountTokens(source Source) int {
	n := 0
	for _, s := range e.Sources {
		if s == source {
			n++
		}
	}
	return n
}

// CountActions returns the number of turns that ended in the given action.
func (e *Episode) CountActions(action Action) int {
	n := 0
	for _, t := range e.Turns {
		if t.Action == action {
			n++
		}
	}
	return n
}

// FinalAnswer returns the content of the answer that ended the episode, and whether there is one.
func (e *Episode) FinalAnswer() (string, bool) {
	if len(e.Turns) == 0 || e.Turns[len(e.Turns)-1].Action != ActionAnswer {
		return "", false
	}
	return e.Turns[len(e.Turns)-1].Content, true
}

// Trainable reports whether the episode may enter the loss: an episode whose search failed says nothing about the
// policy.
func (e *Episode) Trainable() bool {
	return e.Stop != StopRetriever && e.CountTokens(Policy) > 0
}
