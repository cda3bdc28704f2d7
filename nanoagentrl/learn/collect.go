package learn

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/grpo"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/reward"
)

// collected are the scored episodes of a step.
type collected struct {
	// train are those that the update is made from, at most PromptsPerStep groups; played are all, in the order in
	// which they were played. Without dynamic sampling they are the same.
	train, played []*episode.Episode
	// rounds counts the further rounds of dynamic sampling, replaced the groups that gave way in them.
	rounds, replaced int
}

// collect plays and scores the episodes of a step. With dynamic sampling (DAPO, arXiv:2503.14476), groups without signal
// give way to groups of the next questions, in at most DynamicSampling further rounds; what is still without signal then
// stays. Which questions and seeds these are depends on nothing but the place in the data, the step and the number of
// the question in the step, so that a resumed run draws the same.
func (t *Trainer) collect(ctx context.Context, step int) (*collected, error) {
	scorer, seeds := t.scorerAt(step), agent.Seeds(t.Config.Seed, "train", step)
	asked := 0
	play := func(questions []data.Question) ([]*episode.Episode, error) {
		first := asked
		asked += len(questions)
		return t.play(ctx, questions, scorer, func(q, s int) uint64 { return seeds(first+q, s) })
	}
	t.Report.Phase(step, t.Config.Steps, "rolling out")
	played, err := play(t.Cursor.Next(t.Config.PromptsPerStep))
	if err != nil {
		return nil, err
	}
	c := &collected{train: played, played: played}
	for c.rounds < t.Config.DynamicSampling {
		flat := flatGroups(c.train)
		if len(flat) == 0 {
			break
		}
		c.rounds++
		t.Report.Phase(step, t.Config.Steps, fmt.Sprintf("rolling out %d more questions", len(flat)))
		more, err := play(t.Cursor.Next(len(flat)))
		if err != nil {
			return nil, err
		}
		c.played = append(slices.Clip(c.played), more...)
		c.replace(flat, more)
	}
	return c, nil
}

// play plays and scores the episodes of questions. It is an error if the index of this process cannot be searched: that
// does not mend. How often in a row a server may fail is for retrieve.Outlast to count.
func (t *Trainer) play(ctx context.Context, questions []data.Question, scorer *reward.Scorer, seeds agent.SeedFunc) (
	[]*episode.Episode, error) {
	episodes, err := t.Rollouter.Rollout(ctx, questions, t.Config.GroupSize, seeds)
	if err != nil {
		return nil, err
	}
	scorer.Score(episodes)
	var failed *retrieve.Error
	if err := t.Rollouter.SearchError(); errors.As(err, &failed) && failed.Kind == retrieve.KindIndex {
		return nil, fmt.Errorf("a search of step %d failed: %w", t.step+1, err)
	}
	return episodes, nil
}

// scorerAt returns the scorer of a step, counted from 1: with format_anneal_steps the parts that reward form alone have
// their full weight in the first step and none from step format_anneal_steps + 1 on.
func (t *Trainer) scorerAt(step int) *reward.Scorer {
	if t.Config.FormatAnnealSteps == 0 {
		return t.Scorer
	}
	return t.Scorer.AnnealFormat(t.formatFactor(step))
}

// formatFactor is what is left of the weights of form in a step.
func (t *Trainer) formatFactor(step int) float64 {
	return max(0, 1-float64(step-1)/float64(t.Config.FormatAnnealSteps))
}

// replace puts the groups of further questions, in order, into the places of groups without signal. A question that was
// left out because its prompt is too long replaces nothing.
func (c *collected) replace(flat []int, more []*episode.Episode) {
	groups := map[int][]*episode.Episode{}
	for _, e := range more {
		e.Group = flat[e.Group]
		groups[e.Group] = append(groups[e.Group], e)
	}
	c.replaced += len(groups)
	var train []*episode.Episode
	for _, e := range c.train {
		if fresh, gone := groups[e.Group]; gone {
			train = append(train, fresh...)
			groups[e.Group] = nil // the others of the old group just go
		} else {
			train = append(train, e)
		}
	}
	c.train = train
}

// flatGroups returns the numbers of the groups without signal, in ascending order.
func flatGroups(episodes []*episode.Episode) (flat []int) {
	rewards, groups, excluded := make([]float64, len(episodes)), make([]int, len(episodes)), make([]bool, len(episodes))
	for i, e := range episodes {
		rewards[i], groups[i], excluded[i] = e.Reward, e.Group, !e.Trainable()
	}
	_, stats, err := grpo.LeaveOneOut(rewards, groups, excluded)
	if err != nil {
		panic(err) // the slices were made here
	}
	signal := map[int]bool{}
	for i, group := range groups {
		signal[group] = signal[group] || !stats.NoSignal[i]
	}
	for group, has := range signal {
		if !has {
			flat = append(flat, group)
		}
	}
	slices.Sort(flat)
	return flat
}

// addTo adds what dynamic sampling did to the metrics of a step. Of the groups that were played, those that were replaced
// and those without signal that stayed count as without signal.
func (c *collected) addTo(stats Stats) {
	groups := map[int]bool{}
	for _, e := range c.train {
		groups[e.Group] = true
	}
	stats["train/extra_rounds"], stats["train/replaced_groups"] = float64(c.rounds), float64(c.replaced)
	if all := len(groups) + c.replaced; all > 0 {
		stats["train/zero_signal_group_frac"] = float64(len(flatGroups(c.train))+c.replaced) / float64(all)
	}
}
