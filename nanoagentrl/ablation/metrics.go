package ablation

import (
	"fmt"
	"math"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/report"
)

// exactMatch is the panel that every suite has.
var exactMatch = report.Panel{Title: "Exact match", Unit: "%", Metric: "train/em", Dots: "eval/em", Scale: 100,
	High: 100, Bounded: true}

// panels are what a suite may watch beside the exact match.
var panels = []report.Panel{
	{Title: "Reward", Unit: "mean of an episode", Metric: "train/reward_mean", High: 1},
	{Title: "Searches", Unit: "per episode", Metric: "train/num_searches", High: 1},
	{Title: "Invalid actions", Unit: "% of episodes", Metric: "train/invalid_format_rate", Scale: 100},
	{Title: "Response length", Unit: "policy tokens of an episode", Metric: "train/response_len"},
	{Title: "Cut-off episodes", Unit: "%", Metric: "train/clipped_ratio", Scale: 100},
	{Title: "KL to the start", Unit: "nats a token (k3)", Metric: "train/kl"},
	{Title: "Entropy", Unit: "nats a token", Metric: "train/entropy"},
	{Title: "Gradient norm", Unit: "before clipping", Metric: "train/grad_norm"},
	{Title: "Groups without signal", Unit: "%", Metric: "train/zero_signal_group_frac", Scale: 100, High: 100,
		Bounded: true},
	{Title: "Clipped tokens", Unit: "%", Metric: "train/clip_frac", Scale: 100},
	{Title: "Format reward", Unit: "mean of the part", Metric: "train/reward_format", High: 1},
}

// watched returns the panel of a metric.
func watched(metric string) (report.Panel, bool) {
	for _, p := range panels {
		if p.Metric == metric {
			return p, true
		}
	}
	return report.Panel{}, false
}

// WatchNames returns the metrics that a suite may watch.
func WatchNames() (names []string) {
	for _, p := range panels {
		names = append(names, p.Metric)
	}
	return names
}

// measureKeys are the keys of measures, in the order of tables.
var measureKeys = []string{"sampled", "greedy", "shuffled", "blind"}

// em returns the exact match of a measure, NaN if it was not taken.
func em(measured map[string]nanoagentrl.Measured, key string) float64 {
	if m, ok := measured[key]; ok {
		return m.EM
	}
	return math.NaN()
}

func percentOf(measured map[string]nanoagentrl.Measured, key string) string {
	if value := em(measured, key); !math.IsNaN(value) {
		return fmt.Sprintf("%.1f %%", 100*value)
	}
	return "?"
}

// meanFinite returns the mean of the values that were measured, NaN if there are none.
func meanFinite(values []float64) float64 {
	sum, n := 0.0, 0.0
	for _, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			sum, n = sum+v, n+1
		}
	}
	return sum / n
}
