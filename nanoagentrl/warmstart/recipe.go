// Package warmstart teaches an untrained model the protocol of episodes, and to copy an answer out of passages or to do
// small sums, by supervised training on made-up sequences: the start from which reinforcement learning can go on. The
// demonstrations mix good and bad habits, so that the model knows the tags but acts badly.
//
// A Recipe is data: a YAML file names the model's shape and the stages. The worlds are those of package world, training
// splits only; the facts of each sequence are drawn anew, so that none can be memorised.
//
// All sequences are Episodes, and only the tokens that a policy would write are trained on. Demonstrations are played
// by a scripted policy through the real agent.Rollouter and BM25.
package warmstart

import (
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/world"
)

// The tasks.
const (
	// Facts searches a world.Facts.
	Facts = "facts"
	// Sums solves the problems of a world.Sums.
	Sums = "sums"
)

// Recipe says how a warm start is made.
type Recipe struct {
	// Task is facts (search) or sums (single-turn maths).
	Task string `yaml:"task" oneof:"facts sums"`
	// Seed fixes weights, worlds and sequences.
	Seed uint64 `yaml:"seed"`
	// Backend is where the maths runs: auto, xla, cuda or go.
	Backend string `yaml:"backend" oneof:"auto xla cuda go"`
	// SaveDType is the number format of the saved weights: f16, bf16 or f32.
	SaveDType string `yaml:"save_dtype" oneof:"f16 bf16 f32"`
	// MaxBytes bounds the size of the saved weights, in bytes.
	MaxBytes int `yaml:"max_bytes" min:"1"`

	Model     Model     `yaml:"model"`
	Optimizer Optimizer `yaml:"optimizer"`
	// World describes the worlds that demonstrations are played in, and the one for the evaluation.
	World World `yaml:"world"`
	// OneHop, TwoHop and Sum are the mixes of habits in demonstrations that are not all good.
	OneHop OneHopHabits `yaml:"one_hop"`
	TwoHop TwoHopHabits `yaml:"two_hop"`
	Sum    SumHabits    `yaml:"sum"`
	// Stages follow one another.
	Stages []Stage `yaml:"stages"`
	Eval   Eval    `yaml:"eval"`
}

// Model is the shape of the model, a Qwen2 with a tied embedding, and its first weights.
type Model struct {
	// Layers is the number of blocks, Hidden the width, Heads and KVHeads the numbers of query heads and of key and
	// value heads, Intermediate the width of the feed-forward layers.
	Layers  int `yaml:"layers" min:"1"`
	Hidden  int `yaml:"hidden" min:"2"`
	Heads   int `yaml:"heads" min:"1"`
	KVHeads int `yaml:"kv_heads" min:"1"`
	// HeadDim is the width of a head; 0 takes Hidden / Heads.
	HeadDim      int `yaml:"head_dim" min:"0"`
	Intermediate int `yaml:"intermediate" min:"1"`
	// MaxPositions is the longest episode in tokens; RopeTheta the base of the rotary frequencies.
	MaxPositions int     `yaml:"max_positions" min:"32"`
	RopeTheta    float64 `yaml:"rope_theta" above:"1"`
	// InitStd is the standard deviation of the first weights.
	InitStd float64 `yaml:"init_std" above:"0"`
	// PreviousHeads is the number of heads of the first layer that look back 1, 2, 3 … tokens from the start, by their
	// biases alone; 0 leaves all heads as they are drawn.
	PreviousHeads int `yaml:"previous_heads" min:"0"`
	// MatchHeads is the number of heads of the last layer that look, from the start, for a place that follows the same
	// tokens as the next one will; it needs heads that look back. 0 leaves all heads as they are drawn.
	MatchHeads int `yaml:"match_heads" min:"0"`
}

func (m *Model) headDim() int {
	if m.HeadDim > 0 {
		return m.HeadDim
	}
	return m.Hidden / m.Heads
}

// Optimizer holds AdamW's settings; the learning rate belongs to the stages.
type Optimizer struct {
	Beta1       float64 `yaml:"beta1" min:"0" max:"0.9999"`
	Beta2       float64 `yaml:"beta2" min:"0" max:"0.99999"`
	WeightDecay float64 `yaml:"weight_decay" min:"0"`
	// MaxGradNorm is the norm that gradients are cut to; 0 leaves them.
	MaxGradNorm float64 `yaml:"max_grad_norm" min:"0"`
	// WarmupSteps is the number of batches over which the learning rate rises at the very beginning.
	WarmupSteps int `yaml:"warmup_steps" min:"0"`
}

// World describes the worlds of demonstrations, in the words of the configuration's world_ keys.
type World struct {
	// People is the number of people of a world for demonstrations, EvalPeople that of the validation world.
	People     int `yaml:"people" min:"16"`
	EvalPeople int `yaml:"eval_people" min:"8"`
	// Facts is the number of facts in a passage.
	Facts int `yaml:"facts" min:"1" max:"4"`
	// Noise is the share of facts that a good query misses.
	Noise float64 `yaml:"noise" min:"0" max:"1"`
	// TopK is the number of passages that a search shows.
	TopK int `yaml:"topk" min:"1" max:"10"`
	// Shuffle is the share of demonstrations whose passages are shown in random order instead of by rank.
	Shuffle float64 `yaml:"shuffle" min:"0" max:"1"`
	// Fresh is the number of batches after which demonstrations come from a new world.
	Fresh int `yaml:"fresh" min:"1"`
	// Largest is the largest number of sums; mistakes may go beyond it by 3.
	Largest int `yaml:"largest" min:"24" max:"96"`
}

// OneHopHabits are the shares of what a demonstration of one hop does; they add up to 1.
type OneHopHabits struct {
	// AtOnce answers without a search, with a random value of the right kind.
	AtOnce float64 `yaml:"at_once" min:"0" max:"1"`
	// PoorQuery searches for the relation alone, for the first name and the relation, or for somebody else, and
	// answers what stands there.
	PoorQuery float64 `yaml:"poor_query" min:"0" max:"1"`
	// WrongPassage searches well and answers with the value of another passage.
	WrongPassage float64 `yaml:"wrong_passage" min:"0" max:"1"`
	// Right searches for name and relation, repeats the fact in its thought, and answers right.
	Right float64 `yaml:"right" min:"0" max:"1"`
}

// TwoHopHabits are the shares of what a demonstration of two hops does; they add up to 1.
type TwoHopHabits struct {
	// AtOnce and PoorQuery are as with one hop; PoorQuery takes the question's last relation.
	AtOnce    float64 `yaml:"at_once" min:"0" max:"1"`
	PoorQuery float64 `yaml:"poor_query" min:"0" max:"1"`
	// OneSearch stops after one search: it answers with the entity's own fact or, where it has none of that kind, with
	// where the first hop leads.
	OneSearch float64 `yaml:"one_search" min:"0" max:"1"`
	// Right makes both searches.
	Right float64 `yaml:"right" min:"0" max:"1"`
}

// SumHabits are the shares of what a demonstration of a sum does; they add up to 1.
type SumHabits struct {
	// AtOnce writes a random result without a calculation.
	AtOnce float64 `yaml:"at_once" min:"0" max:"1"`
	// Slip makes a mistake of 1 to 3 in one step and goes on from there.
	Slip float64 `yaml:"slip" min:"0" max:"1"`
	// Forget leaves the last step out; with a single step it is a slip.
	Forget float64 `yaml:"forget" min:"0" max:"1"`
	// Right calculates step by step.
	Right float64 `yaml:"right" min:"0" max:"1"`
}

// Stage is one part of the training.
type Stage struct {
	Name string `yaml:"name"`
	// Batch is the number of sequences of a weight update.
	Batch int `yaml:"batch" min:"1"`
	// Tokens ends the stage; all tokens of the sequences count, padding does not. Until ends it sooner, when the share
	// of values that are right, as a mean over ten batches before they are trained on, reaches it; 0 does not.
	Tokens int     `yaml:"tokens" min:"1"`
	Until  float64 `yaml:"until" min:"0" max:"1"`
	// LRFrom and LRTo are the learning rate at the beginning of the stage and after Tokens tokens; it goes from one to
	// the other in a straight line.
	LRFrom float64 `yaml:"lr_from" above:"0"`
	LRTo   float64 `yaml:"lr_to" min:"0"`

	// Copy is the share of copy sequences in a batch (task facts); the rest are demonstrations.
	Copy float64 `yaml:"copy" min:"0" max:"1"`
	// Passages, Facts and Questions are the numbers of passages of a copy sequence, of facts in each, and of questions
	// about them.
	Passages  int `yaml:"passages" min:"0" max:"10"`
	Facts     int `yaml:"facts" min:"0" max:"4"`
	Questions int `yaml:"questions" min:"0" max:"100"`
	// Hard is the share of passages after the first that are hard to tell from another one: about the same entity,
	// about a namesake, or with the other's name as a value.
	Hard float64 `yaml:"hard" min:"0" max:"1"`
	// QuestionFirst is the share of copy sequences that begin, as episodes do, with the first question and its query.
	QuestionFirst float64 `yaml:"question_first" min:"0" max:"1"`
	// CopyTwoHop is the share of questions of two hops in copy sequences, TwoHop that in demonstrations.
	CopyTwoHop float64 `yaml:"copy_two_hop" min:"0" max:"1"`
	TwoHop     float64 `yaml:"two_hop" min:"0" max:"1"`
	// Habits says how demonstrations act: good makes no mistakes, mixed follows one_hop, two_hop or sum.
	Habits string `yaml:"habits"`
	// Steps is the largest number of steps of a sum (task sums).
	Steps int `yaml:"steps" min:"0" max:"8"`
}

// The values of Stage.Habits.
const (
	Good  = "good"
	Mixed = "mixed"
)

// Eval says how the finished model is measured, on validation questions.
type Eval struct {
	// Questions is the number of questions of each kind of evaluation, Samples that of samples at temperature 1 of
	// each.
	Questions int `yaml:"questions" min:"0"`
	Samples   int `yaml:"samples" min:"1"`
}

// Default returns the settings that hold where a file says nothing. It has no stages.
func Default() *Recipe {
	return &Recipe{
		Task: Facts, Seed: 1, Backend: "auto", SaveDType: "f16", MaxBytes: 4 << 20,
		Model: Model{Layers: 2, Hidden: 128, Heads: 4, KVHeads: 4, Intermediate: 256, MaxPositions: 512,
			RopeTheta: 10000, InitStd: 0.06, PreviousHeads: 3},
		Optimizer: Optimizer{Beta1: 0.9, Beta2: 0.95, WeightDecay: 0.01, MaxGradNorm: 1, WarmupSteps: 50},
		World:     World{People: 200, EvalPeople: 100, Facts: 2, TopK: 3, Shuffle: 1, Fresh: 8, Largest: 40},
		OneHop:    OneHopHabits{AtOnce: 0.5, PoorQuery: 0.15, WrongPassage: 0.08, Right: 0.27},
		TwoHop:    TwoHopHabits{AtOnce: 0.5, PoorQuery: 0.1, OneSearch: 0.25, Right: 0.15},
		Sum:       SumHabits{AtOnce: 0.5, Slip: 0.2, Forget: 0.1, Right: 0.2},
		Eval:      Eval{Questions: 200, Samples: 1},
	}
}

// Open reads a recipe from a YAML file over the defaults, applies overrides ("stages.2.tokens=1000", see
// config.Override) and validates it. It returns what the overrides changed. The error holds every fault found.
func Open(path string, overrides []string) (*Recipe, []string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("warm start: %w", err)
	}
	r := Default()
	if err := config.Decode(path, text, r); err != nil {
		return nil, nil, err
	}
	changes, err := config.Override(r, overrides)
	if err != nil {
		return nil, nil, err
	}
	if err := r.Validate(); err != nil {
		return nil, nil, fmt.Errorf("%s:\n%w", path, err)
	}
	return r, changes, nil
}

// Validate checks all values. The error has one line for each fault, which begins with the key.
func (r *Recipe) Validate() error {
	faults := config.Check(r)
	fault := func(key, format string, args ...any) {
		faults = append(faults, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
	}
	m := r.Model
	switch {
	case m.HeadDim%2 != 0:
		fault("model.head_dim", "%d is odd", m.HeadDim)
	case m.HeadDim == 0 && m.Heads > 0 && m.Hidden%(2*m.Heads) != 0:
		fault("model.hidden", "%d is not a multiple of 2 x heads (%d), and there is no head_dim", m.Hidden, 2*m.Heads)
	}
	if m.KVHeads > 0 && m.Heads%m.KVHeads != 0 {
		fault("model.kv_heads", "%d does not divide heads (%d)", m.KVHeads, m.Heads)
	}
	if m.PreviousHeads > m.Heads {
		fault("model.previous_heads", "%d of %d heads", m.PreviousHeads, m.Heads)
	}
	if m.MatchHeads > m.Heads {
		fault("model.match_heads", "%d of %d heads", m.MatchHeads, m.Heads)
	}
	if m.MatchHeads > 0 && (m.PreviousHeads == 0 || m.Layers < 2) {
		fault("model.match_heads", "needs previous_heads in a layer before the last")
	}
	for key, shares := range map[string][]float64{
		"one_hop": {r.OneHop.AtOnce, r.OneHop.PoorQuery, r.OneHop.WrongPassage, r.OneHop.Right},
		"two_hop": {r.TwoHop.AtOnce, r.TwoHop.PoorQuery, r.TwoHop.OneSearch, r.TwoHop.Right},
		"sum":     {r.Sum.AtOnce, r.Sum.Slip, r.Sum.Forget, r.Sum.Right},
	} {
		total := 0.0
		for _, share := range shares {
			total += share
		}
		if math.Abs(total-1) > 1e-9 {
			fault(key, "the shares add up to %g, want 1", total)
		}
	}
	if err := r.factsOptions(r.Seed).Validate(); err != nil {
		fault("world", "%v", err)
	}
	if len(r.Stages) == 0 {
		fault("stages", "there are none")
	}
	for i := range r.Stages {
		r.checkStage(&r.Stages[i], fmt.Sprintf("stages.%d", i+1), fault)
	}
	return errors.Join(faults...)
}

func (r *Recipe) checkStage(s *Stage, at string, fault func(key, format string, args ...any)) {
	if s.Name == "" {
		fault(at+".name", "is empty")
	}
	if s.copies() < s.Batch && s.Habits != Good && s.Habits != Mixed {
		fault(at+".habits", "got %q, want good or mixed", s.Habits)
	}
	if r.Task == Sums {
		if s.Copy > 0 {
			fault(at+".copy", "there is nothing to copy in sums; want 0")
		}
		if s.Steps == 0 {
			fault(at+".steps", "got 0, want at least 1")
		}
		return
	}
	if s.copies() == 0 {
		return
	}
	for key, n := range map[string]int{"passages": s.Passages, "facts": s.Facts, "questions": s.Questions} {
		if n == 0 {
			fault(at+"."+key, "got 0, want at least 1 for copy sequences")
		}
	}
	if s.CopyTwoHop > 0 && s.Passages < 2 {
		fault(at+".copy_two_hop", "two hops need 2 passages")
	}
}

// factsOptions are those of a world for the evaluation; one for demonstrations has only the training split.
func (r *Recipe) factsOptions(seed uint64) world.FactsOptions {
	return world.FactsOptions{Seed: seed, People: r.World.People, EvalPeople: r.World.EvalPeople, Hops: world.MixedHops,
		FactsPerPassage: r.World.Facts, Noise: r.World.Noise}
}

// copies is the number of copy sequences of a batch.
func (s *Stage) copies() int { return int(math.Round(s.Copy * float64(s.Batch))) }
