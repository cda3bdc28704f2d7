package reward

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
)

// The names of the reward parts in Episode.Parts. Each part lies between 0 and 1. Question answering has PartEM,
// PartEMLenient, PartF1 and, if asked for, PartEMFolded; maths has PartEMNumber and PartEMNumberStrict; both have
// PartFormat.
const (
	// PartEM: the final answer equals a gold answer (ExactMatch).
	PartEM = "em"
	// PartEMLenient: a gold answer stands in the final answer (Contains).
	PartEMLenient = "em_lenient"
	// PartEMFolded: ExactMatchFolded; reported, never part of the reward.
	PartEMFolded = "em_folded"
	// PartF1: word overlap of the final answer with a gold answer (F1).
	PartF1 = "f1"
	// PartEMNumber: the number of the final answer is the gold number; without a tagged or "####" answer, the last
	// number of the text counts.
	PartEMNumber = "em_number"
	// PartEMNumberStrict: the same, but only a tagged or "####" answer counts.
	PartEMNumberStrict = "em_number_strict"
	// PartFormat: the policy kept to the protocol (FormatScore).
	PartFormat = "format"
	// PartValidTurns: the share of turns that ended in a search or an answer. It tells apart episodes of a weak policy
	// that never gets a whole one right.
	PartValidTurns = "valid_turns"
	// PartOverlong: how far the episode reaches into the last tokens of its budget (Overlong); it is taken off the
	// reward. Only scorers with a penalty for it have this part.
	PartOverlong = "overlong"
)

// Weights are what each part adds to the reward at its best. A part that an episode does not have adds nothing, so one
// set of weights serves mixed data.
type Weights struct {
	EM, EMLenient, F1, EMNumber, EMNumberStrict, Format, ValidTurns float64
}

// DefaultWeights reward exact match alone, as published for Search-R1 and for GSM8K.
func DefaultWeights() Weights { return Weights{EM: 1, EMNumber: 1} }

func (w Weights) byPart() map[string]float64 {
	return map[string]float64{PartEM: w.EM, PartEMLenient: w.EMLenient, PartF1: w.F1, PartEMNumber: w.EMNumber,
		PartEMNumberStrict: w.EMNumberStrict, PartFormat: w.Format, PartValidTurns: w.ValidTurns}
}

// Scorer scores episodes. It is safe for concurrent use on different episodes.
type Scorer struct {
	weights  map[string]float64
	fold     bool
	overlong Overlong
}

// NewScorer returns a scorer. fold adds the part PartEMFolded. It fails if a weight is not finite or all are 0.
func NewScorer(weights Weights, fold bool) (*Scorer, error) {
	s := &Scorer{weights: weights.byPart(), fold: fold}
	useful := false
	for part, weight := range s.weights {
		if math.IsNaN(weight) || math.IsInf(weight, 0) {
			return nil, fmt.Errorf("reward: the weight of %q is %g, but must be a finite number", part, weight)
		}
		useful = useful || weight != 0
	}
	if !useful {
		return nil, errors.New("reward: all weights are 0, so nothing could be learned; give em or em_number a weight")
	}
	return s, nil
}

// Score sets Parts and Reward of each episode. Only what the policy wrote is looked at. Episodes whose search failed
// are scored like all others; Episode.Trainable keeps them out of the loss.
func (s *Scorer) Score(episodes []*episode.Episode) {
	for _, e := range episodes {
		s.ScoreOne(e)
	}
}

// ScoreOne sets Parts and Reward of one episode.
func (s *Scorer) ScoreOne(e *episode.Episode) {
	if IsMath(e.DataSource) {
		e.Parts = mathParts(e)
	} else {
		e.Parts = s.answerParts(e)
	}
	e.Parts[PartFormat] = FormatScore(e)
	if share, ok := validTurns(e); ok {
		e.Parts[PartValidTurns] = share
	}
	e.Reward = 0
	for _, part := range summed {
		e.Reward += s.weights[part] * e.Parts[part]
	}
	if s.overlong.Weight > 0 {
		e.Parts[PartOverlong] = s.overlong.Share(e.CountTokens(episode.Policy))
		e.Reward -= s.overlong.Weight * e.Parts[PartOverlong]
	}
}

// AnnealFormat returns a scorer in which the parts that reward form alone, PartFormat and PartValidTurns, have factor
// times their weight. All weights may become 0.
func (s *Scorer) AnnealFormat(factor float64) *Scorer {
	annealed := *s
	annealed.weights = maps.Clone(s.weights)
	annealed.weights[PartFormat] *= factor
	annealed.weights[PartValidTurns] *= factor
	return &annealed
}

// summed fixes the order in which the parts are added up, so that equal episodes get equal rewards to the last bit.
var summed = []string{PartEM, PartEMLenient, PartF1, PartEMNumber, PartEMNumberStrict, PartFormat, PartValidTurns}

// IsMath reports whether a data source is scored by number equality: "gsm8k", with or without an owner ("openai/gsm8k")
// or an addition ("gsm8k_socratic").
func IsMath(source string) bool {
	name := source[strings.LastIndex(source, "/")+1:]
	return strings.HasPrefix(strings.ToLower(name), "gsm8k")
}

// Correct returns the exact match of a scored episode, whichever part its data source has for it.
func Correct(e *episode.Episode) float64 {
	if IsMath(e.DataSource) {
		return e.Parts[PartEMNumber]
	}
	return e.Parts[PartEM]
}

// answerParts scores question answering. An episode without a final answer, or with a blank one, has 0 everywhere.
func (s *Scorer) answerParts(e *episode.Episode) map[string]float64 {
	parts := map[string]float64{PartEM: 0, PartEMLenient: 0, PartF1: 0}
	if s.fold {
		parts[PartEMFolded] = 0
	}
	answer, ok := finalAnswer(e)
	if !ok || strings.TrimSpace(answer) == "" {
		return parts
	}
	parts[PartEM] = ExactMatch(answer, e.Answers)
	parts[PartEMLenient] = Contains(answer, e.Answers)
	parts[PartF1] = F1(answer, e.Answers)
	if s.fold {
		parts[PartEMFolded] = ExactMatchFolded(answer, e.Answers)
	}
	return parts
}

// finalAnswer returns the answer that ended the episode, or, of a single turn without actions, its last <answer> block.
func finalAnswer(e *episode.Episode) (answer string, ok bool) {
	if text, plain := plainText(e); plain {
		return taggedAnswer(text)
	}
	return e.FinalAnswer()
}

// plainText returns the policy's text of an episode that ended in a turn where no action was expected.
func plainText(e *episode.Episode) (text string, plain bool) {
	if len(e.Turns) == 0 || e.Turns[len(e.Turns)-1].Action != episode.ActionNone {
		return "", false
	}
	return e.Turns[len(e.Turns)-1].Text, true
}

// mathParts scores by number equality. An episode of the tag protocol is scored by its final answer alone. In a single
// turn without actions a "####" answer comes before an <answer> block, and that before the last number in the text.
func mathParts(e *episode.Episode) map[string]float64 {
	parts := map[string]float64{PartEMNumber: 0, PartEMNumberStrict: 0}
	text, plain := plainText(e)
	if answer, ok := finalAnswer(e); ok && (!plain || markedNumber(text) == nil) {
		equal := anyNumberEqual(answer, e.Answers)
		parts[PartEMNumber], parts[PartEMNumberStrict] = equal, equal
	} else if plain {
		parts[PartEMNumber] = anyNumberEqual(text, e.Answers)
		if markedNumber(text) != nil {
			parts[PartEMNumberStrict] = parts[PartEMNumber]
		}
	}
	return parts
}

func anyNumberEqual(text string, golds []string) float64 {
	for _, gold := range golds {
		if NumberEqual(text, gold) {
			return 1
		}
	}
	return 0
}
