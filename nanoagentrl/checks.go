package nanoagentrl

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/eval"
)

// checkPlan finds what would only come up in the middle of the run: prompts without room for a turn, and a best_metric
// that no evaluation has.
func (r *Run) checkPlan() error {
	r.generator = r.Policy.Generator(r.Config.RolloutBatch)
	rollouter, err := r.rollouter(r.Config.Temperature)
	if err != nil {
		return err
	}
	if !r.opts.EvalOnly {
		if err := r.checkPrompts(rollouter, r.Config.TrainData, r.questions); err != nil {
			return err
		}
	}
	for i, split := range r.Splits {
		if err := r.checkPrompts(rollouter, r.Config.EvalData[i], split.Questions); err != nil {
			return err
		}
	}
	best := r.Config.BestMetric
	if r.opts.EvalOnly || best == "" || r.Config.EvalEvery == 0 {
		return nil
	}
	if names := eval.Names(r.scorer, r.Splits); !slices.Contains(names, best) {
		return fmt.Errorf("best_metric: no evaluation gives %q; choose one of %s", best, strings.Join(names, ", "))
	}
	return nil
}

func (r *Run) checkPrompts(rollouter *agent.Rollouter, path string, questions []data.Question) error {
	_, long, err := rollouter.Fit(questions)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if len(long) == 0 {
		return nil
	}
	if r.Config.LongPrompt != "skip" {
		return fmt.Errorf("%s: %d of %d prompts are too long, the first: %w", path, len(long), len(questions), long[0])
	}
	if len(long) == len(questions) {
		return fmt.Errorf("%s: all %d prompts are too long, the first: %w", path, len(long), long[0])
	}
	fmt.Fprintf(r.opts.Out, "data     %d of %d prompts of %s are too long for max_context and are left out\n",
		len(long), len(questions), path)
	return nil
}
