package ablation

import (
	"fmt"
	"math"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/report"
)

// column is one of a table: a number for each run.
type column struct {
	title string
	// of returns the number, NaN if there is none; first is the run of the first variant with the same seed, nil if it is
	// not complete.
	of       func(r, first *Result) float64
	decimals int
}

// columns are those of every table; one without any number is left out.
func columns(first string) []column {
	percent := func(title string, of func(r, first *Result) float64) column {
		return column{title, func(r, first *Result) float64 { return 100 * of(r, first) }, 1}
	}
	return []column{
		percent("EM before, %", func(r, _ *Result) float64 { return em(r.Before, "sampled") }),
		percent("EM, %", func(r, _ *Result) float64 { return em(r.After, "sampled") }),
		percent(fmt.Sprintf("EM less that of %s, points", first), func(r, first *Result) float64 {
			if first == nil || first == r {
				return math.NaN()
			}
			return em(r.After, "sampled") - em(first.After, "sampled")
		}),
		percent("EM greedy, %", func(r, _ *Result) float64 { return em(r.After, "greedy") }),
		percent("passages shuffled, %", func(r, _ *Result) float64 { return em(r.After, "shuffled") }),
		percent("no search, %", func(r, _ *Result) float64 { return em(r.After, "blind") }),
		{"searches", func(r, _ *Result) float64 { return r.measured("sampled", "searches") }, 2},
		percent("invalid, %", func(r, _ *Result) float64 { return r.measured("sampled", "invalid") }),
		percent("EM over the training, %", func(r, _ *Result) float64 { return meanFinite(r.series("train/em")) }),
	}
}

// measured returns a number of a measure after the training.
func (r *Result) measured(key, what string) float64 {
	m, ok := r.After[key]
	switch {
	case ok && what == "searches":
		return m.Searches
	case ok && what == "invalid":
		return m.Invalid
	}
	return math.NaN()
}

// Table compares the variants: the mean over seeds with half the width of its 95 % interval (report.MeanInterval) in
// Markdown. Differences are taken between runs with the same seed, which see the same questions, so that their interval
// is that of the mean of paired differences. A variant without a complete run has a row without numbers.
func Table(s *Suite, results []*Result) string {
	var b strings.Builder
	all := columns(s.Variants[0].Name)
	var used []column
	for _, c := range all {
		for _, v := range s.Variants {
			if len(s.values(c, v.Name, results)) > 0 {
				used = append(used, c)
				break
			}
		}
	}
	b.WriteString("| variant | seeds |")
	for _, c := range used {
		fmt.Fprintf(&b, " %s |", c.title)
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(used)) + "\n")
	for _, v := range s.Variants {
		fmt.Fprintf(&b, "| %s | %d |", v.Name, len(byVariant(results, v.Name)))
		for _, c := range used {
			fmt.Fprintf(&b, " %s |", c.format(s.values(c, v.Name, results)))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// values returns a column's numbers of a variant, one a seed.
func (s *Suite) values(c column, variant string, results []*Result) (values []float64) {
	firsts := map[int]*Result{}
	for _, r := range byVariant(results, s.Variants[0].Name) {
		firsts[r.Seed] = r
	}
	for _, r := range byVariant(results, variant) {
		if value := c.of(r, firsts[r.Seed]); !math.IsNaN(value) {
			values = append(values, value)
		}
	}
	return values
}

// format writes a mean with its interval.
func (c column) format(values []float64) string {
	if len(values) == 0 {
		return "–"
	}
	mean, half := report.MeanInterval(values)
	if text := fixed(mean, c.decimals); math.IsNaN(half) {
		return text
	}
	return fixed(mean, c.decimals) + " ± " + fixed(half, c.decimals)
}

// fixed writes a number with its decimals, without a minus before zero.
func fixed(x float64, decimals int) string {
	text := fmt.Sprintf("%.*f", decimals, x)
	if strings.Trim(text, "-0.") == "" {
		return strings.TrimPrefix(text, "-")
	}
	return text
}

func byVariant(results []*Result, variant string) (some []*Result) {
	for _, r := range results {
		if r.Variant == variant {
			some = append(some, r)
		}
	}
	return some
}
