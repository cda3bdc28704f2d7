package learn

import (
	"errors"
	"fmt"
	"math"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
)

// ErrCollapsed says that stop_on_collapse ended a run. Its last step is saved.
var ErrCollapsed = errors.New("stopped because the reward collapsed")

// alarmSteps is the number of steps over which the alarm takes means, so that one odd batch raises none.
const alarmSteps = 5

// finding is a sign that a run goes wrong.
type finding struct {
	// name tells findings apart: one that lasts is told again only every alarmSteps steps.
	name string
	// text names the likely cause and what to change.
	text string
	// collapse says that what was learned is being lost, not only that learning is slow.
	collapse bool
}

// alarm watches the metrics of a run. What it knows are the metrics of all steps, so that it is rebuilt from the log when
// a run is resumed. One step of a few dozen episodes is noisy: all rules are about means over alarmSteps steps, and a
// collapse must be larger than what chance does to such a mean.
type alarm struct {
	cfg *config.Config
	// steps are the metrics of the steps seen, numbers the numbers of the steps.
	steps   []Stats
	numbers []int
	// told is the number of steps after which each finding that still lasts was told last.
	told map[string]int
}

func newAlarm(cfg *config.Config) *alarm { return &alarm{cfg: cfg, told: map[string]int{}} }

// see takes the metrics of a step and returns what is to be told. A collapse comes alone: the other findings are then
// its causes and are named in it.
func (a *alarm) see(step int, stats Stats) (news []finding) {
	if _, ok := stats[rewardMetric]; !ok {
		return nil // no episode was played
	}
	a.steps, a.numbers = append(a.steps, stats), append(a.numbers, step)
	if len(a.steps) < alarmSteps {
		return nil
	}
	found := a.collapse()
	if found == nil {
		found = a.symptoms()
	}
	lasting := map[string]int{}
	for _, f := range found {
		last, lasts := a.told[f.name]
		if !lasts || len(a.steps)-last >= alarmSteps {
			last = len(a.steps)
			news = append(news, f)
		}
		lasting[f.name] = last
	}
	a.told = lasting
	return news
}

// window is a stretch of alarmSteps steps.
type window []Stats

// before returns the window that ends n steps before the last one seen, or nil if there are not so many steps.
func (a *alarm) before(n int) window {
	end := len(a.steps) - n
	if end < alarmSteps {
		return nil
	}
	return a.steps[end-alarmSteps : end]
}

// first returns the first window.
func (a *alarm) first() window { return a.before(len(a.steps) - alarmSteps) }

// mean returns the mean of a metric over the steps in which it was measured, NaN if there are none.
func (w window) mean(metric string) float64 {
	sum, n := 0.0, 0.0
	for _, s := range w {
		if value, ok := s[metric]; ok && !math.IsNaN(value) && !math.IsInf(value, 0) {
			sum, n = sum+value, n+1
		}
	}
	return sum / n
}

// least returns the smallest value of a metric, 0 if it was not measured in a step.
func (w window) least(metric string) float64 {
	least := math.Inf(1)
	for _, s := range w {
		least = min(least, s[metric])
	}
	if math.IsNaN(least) {
		return 0
	}
	return least
}

// recent returns the mean of a metric over the last alarmSteps steps, or over all if there are fewer.
func (a *alarm) recent(metric string) float64 {
	return window(a.steps[max(0, len(a.steps)-alarmSteps):]).mean(metric)
}

// best returns the earlier window with the highest mean of a metric, the first of equals, and the number of its last
// step. Windows that overlap the last one do not count.
func (a *alarm) best(metric string) (best window, step int) {
	top := math.Inf(-1)
	for n := alarmSteps; ; n++ {
		w := a.before(n)
		if w == nil {
			return best, step
		}
		if mean := w.mean(metric); mean >= top {
			best, top, step = w, mean, a.numbers[len(a.steps)-n-1]
		}
	}
}

// The limits of the rules. A reward has collapsed if it is below collapseShare of its best, and by more than
// collapseErrors standard errors of the difference of two means of alarmSteps steps.
const (
	collapseShare  = 0.6
	collapseErrors = 5
	// causeSteps is the number of last steps in which its cause is looked for: when the mean of the reward has fallen far
	// enough, the first steps of its window may still be good ones.
	causeSteps = 3
	// A share of cut-off or invalid episodes, or of groups without signal, above muchShare is too much.
	muchShare = 0.5
	flatShare = 0.9
	// An entropy or a number of searches below lostShare of what it was is as good as gone.
	lostShare = 0.1
	// A KL of jumpFactor times what it was a few steps before, and of at least jumpNats a token, is a jump.
	jumpFactor = 5
	jumpNats   = 0.2
)

// collapse looks for a reward that has fallen far below its best.
func (a *alarm) collapse() []finding {
	now := a.before(0)
	best, step := a.best(rewardMetric)
	if best == nil {
		return nil
	}
	top, reward := best.mean(rewardMetric), now.mean(rewardMetric)
	// Episodes of one question resemble each other, so the questions are counted, not the episodes.
	draws := float64(alarmSteps * a.cfg.PromptsPerStep)
	spread := math.Hypot(best.mean("train/reward_std"), now.mean("train/reward_std")) / math.Sqrt(draws)
	if !(top > 0 && reward < collapseShare*top && top-reward > collapseErrors*spread) {
		return nil
	}
	return []finding{{name: "collapse", collapse: true, text: fmt.Sprintf(
		"the reward has collapsed: %.3g over the last %d steps, after %.3g over the %d up to step %d. %s",
		reward, alarmSteps, top, alarmSteps, step, a.cause(best, now[alarmSteps-causeSteps:]))}}
}

// cause names what most likely made the reward fall between two windows, and what to change.
func (a *alarm) cause(best, now window) string {
	was := func(metric string) float64 { return best.mean(metric) }
	is := func(metric string) float64 { return now.mean(metric) }
	switch {
	case !a.cfg.LossMask:
		return "Likely cause: loss_mask is false, so that the policy learns to write retrieved passages. Remove the key"
	case is("train/non_finite_updates") > 0:
		return "Likely cause: gradients that are not finite. Lower lr, or take dtype f32"
	case is("train/clipped_ratio")-was("train/clipped_ratio") > muchShare/2:
		return "Likely cause: episodes grow until max_new_tokens cuts them off. Raise max_new_tokens, set overlong_penalty, " +
			"or take loss_agg dr_grpo, which does not spare long wrong answers"
	case is("train/invalid_format_rate")-was("train/invalid_format_rate") > muchShare/2:
		return "Likely cause: the policy loses the form of its turns. Lower lr, raise kl_coef, or give reward_format a weight"
	case was("train/num_searches") >= 0.3 && is("train/num_searches") < was("train/num_searches")/3:
		return "Likely cause: the policy no longer searches. Lower lr or raise kl_coef, and look whether a reward_ key pays " +
			"for answers without a search"
	case is("train/entropy") < was("train/entropy")/3:
		return "Likely cause: the policy has narrowed to a few texts and no longer explores. Raise clip_high or kl_coef, " +
			"lower lr, or sample larger groups"
	case is("train/entropy") > 2*was("train/entropy"):
		return "Likely cause: the policy dissolves into noise. Lower lr, or take more episodes a step"
	case is("train/kl") > max(jumpFactor*was("train/kl"), jumpNats):
		return "Likely cause: the policy has gone far from its reference. Raise kl_coef or lower lr"
	}
	return "No other metric moved with it: lower lr, take more episodes a step, and read samples.jsonl"
}

// symptoms looks for what makes learning slow or precedes a collapse.
func (a *alarm) symptoms() (found []finding) {
	add := func(name, format string, args ...any) {
		found = append(found, finding{name: name, text: fmt.Sprintf(format, args...)})
	}
	now, first := a.before(0), a.first()
	cutOff := now.least("train/clipped_ratio") > muchShare
	if cutOff {
		add("clipped", "more than %.0f %% of the episodes were cut off by max_new_tokens in each of the last %d steps; "+
			"they cannot be rewarded for an answer: raise max_new_tokens, or ask for shorter ones",
			100*muchShare, a.lasting("train/clipped_ratio", muchShare))
	}
	if now.least("train/non_finite_updates") > 0 {
		add("not finite", "no step of the last %d was without a gradient that is not finite: lower lr, or take dtype f32",
			alarmSteps)
	}
	reward, flat := now.mean(rewardMetric), now.least("train/zero_signal_group_frac")
	solved := reward >= flatShare*a.fullReward()
	switch {
	case flat > flatShare && solved:
		add("solved", "nearly all groups got full reward in the last %d steps: there is nothing left to learn from these "+
			"questions. Take harder ones, or stop", alarmSteps)
	case flat > flatShare && !cutOff:
		add("flat", "in more than %.0f %% of the groups all episodes had the same reward in each of the last %d steps, and "+
			"it is low (%.3g): the questions are too hard for the policy or the reward is too coarse. Take easier questions, "+
			"larger groups, dynamic_sampling, or a finer reward (reward_f1, reward_valid_turns)",
			100*flatShare, alarmSteps, reward)
	}
	if now.mean("train/entropy") < lostShare*first.mean("train/entropy") && !solved {
		add("entropy", "the entropy of the policy, %.3g nats a token, is below %.0f %% of what it was at the start, and the "+
			"reward is not full (%.3g): it no longer explores. Raise clip_high or kl_coef, lower lr, or take larger groups",
			now.mean("train/entropy"), 100*lostShare, reward)
	}
	if earlier := a.before(alarmSteps); earlier != nil {
		was, is := earlier.mean("train/kl"), now.mean("train/kl")
		if is > max(jumpFactor*was, jumpNats) {
			add("kl", "the KL to the reference has risen from %.3g to %.3g nats a token within %d steps: lower lr, or raise "+
				"kl_coef, before the reward falls", was, is, alarmSteps)
		}
	}
	if most, _ := a.best("train/num_searches"); most != nil {
		was, is := most.mean("train/num_searches"), now.mean("train/num_searches")
		if was >= 0.3 && is < lostShare*was {
			add("searches", "the policy has all but stopped searching: %.2g searches an episode, after %.2g. If the questions "+
				"need them, lower lr or raise kl_coef, and look whether a reward_ key pays for answers without a search", is, was)
		}
	}
	return found
}

// lasting counts for how many steps in a row, up to the last one, a metric has been above a limit.
func (a *alarm) lasting(metric string, limit float64) (n int) {
	for n < len(a.steps) && a.steps[len(a.steps)-1-n][metric] > limit {
		n++
	}
	return n
}

// fullReward is what a perfect episode earns, form aside.
func (a *alarm) fullReward() float64 {
	c := a.cfg
	full := max(c.RewardEM, 0) + max(c.RewardF1, 0) + max(c.RewardLenient, 0)
	if full == 0 {
		full = max(c.RewardFormat, 0) + max(c.RewardValidTurns, 0)
	}
	return full
}
