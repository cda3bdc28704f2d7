package ablation

import (
	"fmt"
	"math"
	"strings"

	"gonum.org/v1/plot/vg"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/report"
)

// together is the number of variants up to which they share a plot; more could not be told apart.
const together = 6

// Figure draws the learning curves of the variants that have a complete run: up to six in one plot for the exact match
// and one for each metric that the suite watches, more in a plot each for the exact match alone, with the first
// variant's mean for comparison.
func Figure(s *Suite, results []*Result) (*report.Figure, error) {
	var all []report.Series
	for _, v := range s.Variants {
		if runs := runsOf(results, v.Name); len(runs) > 0 {
			all = append(all, report.Series{Name: v.Name, Runs: runs})
		}
	}
	if len(s.Variants) > together && len(all) > 0 {
		return multiples(s, all)
	}
	shown := []report.Panel{exactMatch}
	for _, metric := range s.Watch {
		p, _ := watched(metric) // Load has looked at it
		shown = append(shown, p)
	}
	f, err := report.LearningCurves(s.Title, shown, all...)
	if err != nil {
		return nil, err
	}
	f.Columns = min(f.Columns, len(shown))
	return f, nil
}

func runsOf(results []*Result, variant string) (runs []report.Run) {
	for _, r := range byVariant(results, variant) {
		runs = append(runs, report.Run{Name: fmt.Sprintf("seed-%d", r.Seed), Metrics: r.Metrics})
	}
	return runs
}

// multiples draws a small plot for each series.
func multiples(s *Suite, all []report.Series) (*report.Figure, error) {
	f := &report.Figure{Title: s.Title, Columns: 4, Width: 3.1 * vg.Inch, Height: 2.3 * vg.Inch}
	compared := all[0].Name == s.Variants[0].Name
	for i, series := range all {
		one, err := report.LearningCurves(series.Name, []report.Panel{exactMatch}, series)
		if err != nil {
			return nil, err
		}
		f.Subtitle = one.Subtitle
		plot := one.Plots[0]
		plot.Title.Text = series.Name
		if i > 0 && compared {
			report.AddDashed(plot, "", 6, meanCurve(all[0].Runs))
		}
		f.Plots = append(f.Plots, plot)
	}
	if compared {
		f.Subtitle = strings.TrimLeft(f.Subtitle+".  Dashed: mean of "+all[0].Name, ". ")
	}
	return f, nil
}

// meanCurve returns the mean of the exact match, in percent, at the steps that all runs have.
func meanCurve(runs []report.Run) (mean report.Points) {
	values := map[float64][]float64{}
	for _, run := range runs {
		for i, points := 0, run.Points(exactMatch.Metric); i < len(points.X); i++ {
			values[points.X[i]] = append(values[points.X[i]], exactMatch.Scale*points.Y[i])
		}
	}
	for _, step := range runs[0].Points(exactMatch.Metric).X {
		if y, _ := report.MeanInterval(values[step]); len(values[step]) == len(runs) && !math.IsNaN(y) {
			mean.X, mean.Y = append(mean.X, step), append(mean.Y, y)
		}
	}
	return mean
}
