package nanoagentrl

import (
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/world"
)

// worldQuestions makes the questions of a split of a world in memory.
func (r *Run) worldQuestions(name, split string) ([]data.Question, error) {
	part, err := world.ParseSplit(split)
	if err != nil {
		return nil, err
	}
	if name == config.WorldFacts {
		facts, err := r.worldFacts()
		if err != nil {
			return nil, err
		}
		return facts.Questions(part), nil
	}
	cfg := r.Config
	sums, err := world.NewSums(world.SumsOptions{Seed: cfg.WorldSeed, Problems: cfg.WorldSums,
		EvalProblems: cfg.WorldEvalSums, Steps: cfg.WorldSteps, Largest: cfg.WorldLargest})
	if err != nil {
		return nil, err
	}
	return sums.Questions(part), nil
}

// worldFacts returns the world of facts that the config describes: one corpus for all splits.
func (r *Run) worldFacts() (*world.Facts, error) {
	if r.facts != nil {
		return r.facts, nil
	}
	cfg := r.Config
	var err error
	r.facts, err = world.NewFacts(world.FactsOptions{Seed: cfg.WorldSeed, People: cfg.WorldPeople,
		EvalPeople: cfg.WorldEvalPeople, Hops: cfg.WorldHops, FactsPerPassage: cfg.WorldFacts, Noise: cfg.WorldNoise})
	return r.facts, err
}
