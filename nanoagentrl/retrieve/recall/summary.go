package recall

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Row is a line of a summary: one kind of evidence, at one k, over one group of questions.
type Row struct {
	// Group is "all", or "n-hop" for the questions with n gold passages.
	Group string `json:"group"`
	// Metric is gold (any gold passage), all_gold, answer, or hop_1, hop_2 … (the gold passage of that place).
	Metric string `json:"metric"`
	K      int    `json:"k"`
	// Raw is the recall of the questions as they stand, over Questions of them.
	Questions int     `json:"questions"`
	Raw       float64 `json:"raw"`
	// RawLow and RawHigh are the 95 % interval of Raw; 0 and 1 for one question alone.
	RawLow  float64 `json:"raw_low"`
	RawHigh float64 `json:"raw_high"`
	// Paired compares the agent's queries with the questions as they stand, over the questions with a record; nil without.
	Paired *Paired `json:"paired,omitempty"`
}

// Paired is a comparison on the same questions.
type Paired struct {
	Questions int     `json:"questions"`
	Raw       float64 `json:"raw"`
	Agent     float64 `json:"agent"`
	// Difference is Agent - Raw; Low and High are its 95 % interval, which one question alone does not have: -1 to 1 then.
	Difference float64 `json:"difference"`
	Low        float64 `json:"low"`
	High       float64 `json:"high"`
}

// SummaryOptions say how intervals are made: by the percentiles of resampled means (Efron and Tibshirani 1993).
type SummaryOptions struct {
	K []int
	// Resamples is the number of resamples; each of them draws whole questions, so that the difference is a paired one.
	Resamples int
	Seed      uint64
}

// Summarize returns the recall of all questions and by the number of hops, for each k. Metrics that no question of a group
// tells are left out.
func Summarize(outcomes []Outcome, o SummaryOptions) (rows []Row) {
	for _, group := range groupsOf(outcomes) {
		for _, metric := range metricsOf(group.outcomes) {
			for _, k := range o.K {
				if row, ok := summarize(group.outcomes, metric, k, o); ok {
					row.Group = group.name
					rows = append(rows, row)
				}
			}
		}
	}
	return rows
}

type group struct {
	name     string
	outcomes []Outcome
}

func groupsOf(outcomes []Outcome) []group {
	groups := []group{{"all", outcomes}}
	byHops := map[int][]Outcome{}
	var hops []int
	for _, o := range outcomes {
		n := len(o.Question.GoldPassages)
		if byHops[n] == nil {
			hops = append(hops, n)
		}
		byHops[n] = append(byHops[n], o)
	}
	if len(hops) < 2 {
		return groups
	}
	slices.Sort(hops)
	for _, n := range hops {
		if n > 0 {
			groups = append(groups, group{fmt.Sprintf("%d-hop", n), byHops[n]})
		}
	}
	return groups
}

// metric takes a value out of a score; NaN if it has none.
type metric struct {
	name string
	of   func(Score) float64
}

func metricsOf(outcomes []Outcome) []metric {
	metrics := []metric{{"gold", func(s Score) float64 { return s.Gold }}}
	hops := 0
	for _, o := range outcomes {
		hops = max(hops, len(o.Question.GoldPassages))
	}
	if hops > 1 {
		metrics = append(metrics, metric{"all_gold", func(s Score) float64 { return s.All }})
		for hop := range hops {
			metrics = append(metrics, metric{fmt.Sprintf("hop_%d", hop+1), func(s Score) float64 {
				if hop < len(s.Hops) {
					return s.Hops[hop]
				}
				return math.NaN()
			}})
		}
	}
	return append(metrics, metric{"answer", func(s Score) float64 { return s.Answer }})
}

func summarize(outcomes []Outcome, m metric, k int, o SummaryOptions) (row Row, ok bool) {
	var raw, pairedRaw, agent, differences []float64
	for i := range outcomes {
		rawScore, agentScore, recorded := outcomes[i].Scores(k)
		r := m.of(rawScore)
		if math.IsNaN(r) {
			continue
		}
		raw = append(raw, r)
		if recorded {
			a := m.of(agentScore)
			pairedRaw, agent, differences = append(pairedRaw, r), append(agent, a), append(differences, a-r)
		}
	}
	if len(raw) == 0 {
		return Row{}, false
	}
	row = Row{Metric: m.name, K: k, Questions: len(raw), Raw: mean(raw)}
	row.RawLow, row.RawHigh = 0, 1
	if len(raw) > 1 {
		row.RawLow, row.RawHigh = Interval(raw, o.Resamples, o.Seed)
	}
	if len(agent) > 0 {
		p := &Paired{Questions: len(agent), Raw: mean(pairedRaw), Agent: mean(agent), Difference: mean(differences),
			Low: -1, High: 1}
		if len(differences) > 1 {
			p.Low, p.High = Interval(differences, o.Resamples, o.Seed)
		}
		row.Paired = p
	}
	return row, true
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// Interval returns the 95 % interval of the mean of values: the 2.5th and the 97.5th percentile of the means of resamples
// drawn with replacement. The same seed gives the same interval. No values give NaN.
func Interval(values []float64, resamples int, seed uint64) (low, high float64) {
	if len(values) == 0 || resamples < 1 {
		return math.NaN(), math.NaN()
	}
	random := rand.New(rand.NewPCG(seed, uint64(len(values))))
	means := make([]float64, resamples)
	for i := range means {
		sum := 0.0
		for range values {
			sum += values[random.IntN(len(values))]
		}
		means[i] = sum / float64(len(values))
	}
	slices.Sort(means)
	at := func(share float64) float64 { return means[min(int(share*float64(resamples)), resamples-1)] }
	return at(0.025), at(0.975)
}
