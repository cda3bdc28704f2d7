package warmstart

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/world"
)

// The bounds of an episode that demonstrations keep and evaluations use, in actions and tokens.
const (
	maxTurns      = 3
	maxNewTokens  = 96
	maxTurnTokens = 32
)

// rolloutOptions are the bounds of an episode of a recipe.
func (r *Recipe) rolloutOptions(temperature float64, shuffle bool) agent.Options {
	o := agent.Options{Task: agent.TaskSearch, Temperature: temperature, MaxTurns: maxTurns, MaxNewTokens: maxNewTokens,
		MaxTurnTokens: maxTurnTokens, TopK: r.World.TopK, MaxObsTokens: r.Model.MaxPositions,
		MaxContext: r.Model.MaxPositions, ShufflePassages: shuffle}
	if r.Task == Sums {
		o.Task = agent.TaskGSM8K
	}
	return o
}

// questionAlone is the prompt of all warm starts: the small vocabulary holds no instructions.
var questionAlone = &agent.Prompter{User: "{question}"}

// demonstrator plays demonstrations.
type demonstrator struct {
	recipe *Recipe
	tok    *tokenizer.Words
	reader reader
	eos    int
}

func newDemonstrator(r *Recipe, tok *tokenizer.Words) *demonstrator {
	return &demonstrator{r, tok, newReader(tok), tokenizer.EndIDs(tok)[0]}
}

// take is one demonstration to be played.
type take struct {
	question data.Question
	habit    habit
	shuffle  bool
	script   Script
	// failed says afterwards that it did not show what it should.
	failed func() bool
}

// play returns n demonstrations of a stage. What they show is fixed by the seed.
func (d *demonstrator) play(ctx context.Context, s *Stage, n int, seed uint64) ([]Example, error) {
	rng := rand.New(rand.NewPCG(seed, 0xde30))
	if d.recipe.Task == Facts {
		return d.playFacts(ctx, rng, s, n, seed)
	}
	takes := make([]*take, n)
	for i := range takes {
		takes[i] = d.sum(rng, s, i)
	}
	return d.perform(ctx, takes, nil, seed)
}

// patience is how often demonstrations of a habit are tried with other questions.
const patience = 50

// playFacts plays demonstrations in a new world. What a habit needs is not always there, such as a second passage with
// a value to take by mistake: it is then tried with another question.
func (d *demonstrator) playFacts(ctx context.Context, rng *rand.Rand, s *Stage, n int, seed uint64) ([]Example, error) {
	opts := d.recipe.factsOptions(seed)
	opts.EvalPeople = 0
	w, err := world.NewFacts(opts)
	if err != nil {
		return nil, err
	}
	index, err := retrieve.NewBM25(w.Corpus, retrieve.DefaultBM25())
	if err != nil {
		return nil, err
	}
	byHops := [3][]data.Question{}
	for _, q := range w.Questions(world.Train) {
		byHops[len(q.GoldPassages)] = append(byHops[len(q.GoldPassages)], q)
	}
	takes, open := make([]*take, n), make([]int, n)
	hops := make([]int, n)
	for i := range takes {
		open[i], hops[i] = i, 1
		if rng.Float64() < s.TwoHop {
			hops[i] = 2
		}
		takes[i] = &take{habit: d.recipe.factsHabit(rng, s.Habits == Mixed, hops[i])}
	}
	examples := make([]Example, n)
	for round := uint64(0); len(open) > 0; round++ {
		if round == patience {
			return nil, fmt.Errorf("warm start: demonstrations of %s over %d hops never find what they need; set "+
				"their share to 0, or world.topk higher", takes[open[0]].habit, hops[open[0]])
		}
		var tried []*take
		for _, i := range open {
			takes[i] = d.fact(rng, w, one(rng, byHops[hops[i]]), takes[i].habit)
			tried = append(tried, takes[i])
		}
		played, err := d.perform(ctx, tried, index, seed+round)
		if err != nil {
			return nil, err
		}
		var left []int
		for j, i := range open {
			if tried[j].failed() {
				left = append(left, i)
			}
			examples[i] = played[j]
		}
		open = left
	}
	return examples, nil
}

// fact prepares a demonstration in a world of facts.
func (d *demonstrator) fact(rng *rand.Rand, w *world.Facts, q data.Question, h habit) *take {
	demo := &factsDemo{path: w.Path(q.ID), habit: h, rng: rand.New(rand.NewPCG(rng.Uint64(), 0))}
	return &take{question: q, habit: h, shuffle: rng.Float64() < d.recipe.World.Shuffle, script: demo.write,
		failed: func() bool { return demo.failed }}
}

// sum prepares a demonstration of a sum.
func (d *demonstrator) sum(rng *rand.Rand, s *Stage, i int) *take {
	sum := world.NewSum(rng, world.Train, 1+rng.IntN(s.Steps), d.recipe.World.Largest)
	q := data.Question{ID: fmt.Sprintf("demo_%d", i), Text: world.Tell(rng, sum), Source: world.SumsSource,
		Answers: []string{strconv.Itoa(sum.After(len(sum.Steps)))}}
	h := d.recipe.sumHabit(rng, s.Habits == Mixed)
	text := writeSum(rng, sum, h, d.recipe.World.Largest)
	return &take{question: q, habit: h, script: func(int, string) string { return text },
		failed: func() bool { return false }}
}

// perform plays takes through the turn loop and returns them in order.
func (d *demonstrator) perform(ctx context.Context, takes []*take, searcher retrieve.Searcher, seed uint64) (
	[]Example, error) {
	examples := make([]Example, len(takes))
	seeds := agent.Seeds(seed, "warm start", 0)
	for _, shuffle := range []bool{false, true} {
		var part []int
		var questions []data.Question
		scripts := map[uint64]Script{}
		for i, t := range takes {
			if t.shuffle == shuffle {
				part, questions = append(part, i), append(questions, t.question)
				scripts[seeds(i, 0)] = t.script
			}
		}
		if len(part) == 0 {
			continue
		}
		sampler := NewScripted(d.tok, d.eos, func(seed uint64) Script { return scripts[seed] })
		rollouter, err := agent.New(d.tok, sampler, searcher, questionAlone, d.recipe.rolloutOptions(1, shuffle))
		if err != nil {
			return nil, err
		}
		played, err := rollouter.Rollout(ctx, questions, 1, func(q, _ int) uint64 { return seeds(part[q], 0) })
		if err != nil {
			return nil, err
		}
		for i, e := range played {
			examples[part[i]].Episode = e
		}
	}
	for i, t := range takes {
		if t.habit == right {
			examples[i].Values = d.reader.values(examples[i].Episode)
		}
	}
	return examples, nil
}
