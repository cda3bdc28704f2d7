package warmstart

import (
	"context"
	"fmt"
	"io"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/eval"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/generate"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/policy"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/reward"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/world"
)

// Measurement is how a model does on one kind of validation questions.
type Measurement struct {
	// Questions names them: one_hop, two_hop or sums. Shuffled says that passages stood in random order, Temperature is
	// 1 for samples and 0 for the likeliest tokens.
	Questions   string  `json:"questions"`
	Shuffled    bool    `json:"shuffled"`
	Temperature float64 `json:"temperature"`
	Episodes    int     `json:"episodes"`
	// EM is the share of right answers, Searches the mean number of searches of an episode, Invalid the share of
	// episodes with an invalid action.
	EM       float64 `json:"em"`
	Searches float64 `json:"searches"`
	Invalid  float64 `json:"invalid"`
}

// String is a line of a table.
func (m Measurement) String() string {
	order, how := "in rank order", "greedy "
	if m.Shuffled {
		order = "shuffled     "
	}
	if m.Questions == Sums {
		order = "             "
	}
	if m.Temperature > 0 {
		how = "sampled"
	}
	return fmt.Sprintf("%-8s %s %s  EM %5.1f %%  searches %.2f  invalid %4.1f %%  (%d episodes)",
		m.Questions, order, how, 100*m.EM, m.Searches, 100*m.Invalid, m.Episodes)
}

// Evaluate plays validation questions with a model of a recipe and writes a line for each kind to out: one hop and, if
// some stage has them, two hops; passages in rank order and shuffled; sampled and greedy.
func Evaluate(ctx context.Context, p *policy.Policy, r *Recipe, out io.Writer) ([]Measurement, error) {
	if r.Eval.Questions == 0 {
		return nil, nil
	}
	e := &examiner{recipe: r, policy: p, generator: p.Generator(64)}
	var err error
	if e.scorer, err = reward.NewScorer(reward.DefaultWeights(), false); err != nil {
		return nil, err
	}
	if err := e.prepare(); err != nil {
		return nil, err
	}
	for _, split := range e.splits {
		for _, shuffled := range []bool{false, true} {
			if shuffled && r.Task == Sums {
				continue
			}
			for _, temperature := range []float64{1, 0} {
				m, err := e.measure(ctx, split, shuffled, temperature)
				if err != nil {
					return nil, err
				}
				e.results = append(e.results, m)
				fmt.Fprintf(out, "eval     %s\n", m)
			}
		}
	}
	return e.results, nil
}

// examiner measures a model.
type examiner struct {
	recipe    *Recipe
	policy    *policy.Policy
	generator *generate.Generator
	scorer    *reward.Scorer
	searcher  retrieve.Searcher
	splits    []eval.Split
	results   []Measurement
}

// prepare makes the validation questions and the search engine.
func (e *examiner) prepare() error {
	r := e.recipe
	if r.Task == Sums {
		steps := 1
		for _, s := range r.Stages {
			steps = max(steps, s.Steps)
		}
		w, err := world.NewSums(world.SumsOptions{Seed: r.Seed, EvalProblems: r.Eval.Questions, Steps: steps,
			Largest: r.World.Largest})
		if err != nil {
			return err
		}
		e.splits = []eval.Split{{Name: Sums, Questions: w.Questions(world.Val)}}
		return nil
	}
	w, err := world.NewFacts(r.factsOptions(r.Seed))
	if err != nil {
		return err
	}
	index, err := retrieve.NewBM25(w.Corpus, retrieve.DefaultBM25())
	if err != nil {
		return err
	}
	e.searcher = index
	byHops := [3][]data.Question{}
	for _, q := range w.Questions(world.Val) {
		hops := len(q.GoldPassages)
		if len(byHops[hops]) < r.Eval.Questions {
			byHops[hops] = append(byHops[hops], q)
		}
	}
	e.splits = []eval.Split{{Name: "one_hop", Questions: byHops[1]}}
	for _, s := range r.Stages {
		if s.TwoHop > 0 {
			e.splits = append(e.splits, eval.Split{Name: "two_hop", Questions: byHops[2]})
			break
		}
	}
	return nil
}

func (e *examiner) measure(ctx context.Context, split eval.Split, shuffled bool, temperature float64) (
	Measurement, error) {
	rollouter, err := agent.New(e.policy.Tokenizer, e.generator, e.searcher, questionAlone,
		e.recipe.rolloutOptions(temperature, shuffled))
	if err != nil {
		return Measurement{}, err
	}
	samples := 1
	if temperature > 0 {
		samples = e.recipe.Eval.Samples
	}
	evaluator := &eval.Evaluator{Rollouter: rollouter, Scorer: e.scorer, Seed: e.recipe.Seed, Samples: samples}
	episodes, metrics, err := evaluator.Run(ctx, split, nil)
	if err != nil {
		return Measurement{}, err
	}
	at := func(name string) float64 { return metrics["eval/"+name+"_"+split.Name] }
	return Measurement{Questions: split.Name, Shuffled: shuffled, Temperature: temperature, Episodes: len(episodes),
		EM: round(at("em")), Searches: round(at("num_searches")), Invalid: round(at("invalid_format_rate"))}, nil
}
