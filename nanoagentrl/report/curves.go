package report

import (
	"fmt"
	"image/color"
	"maps"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg/draw"
)

// Run is what one training run logged.
type Run struct {
	// Name tells the run from others of its series, for example the name of its folder.
	Name string
	// Metrics are the lines of its metrics file, as learn.ReadMetrics returns them; the run may be under way.
	Metrics []map[string]float64
}

// Points returns a metric over the steps at which the run has it, by step; NaN is a gap.
func (r Run) Points(metric string) Points {
	values := map[float64]float64{}
	for _, line := range r.Metrics {
		if value, ok := line[metric]; ok {
			values[line["step"]] = value
		}
	}
	var p Points
	for _, step := range slices.Sorted(maps.Keys(values)) {
		p.X, p.Y = append(p.X, step), append(p.Y, values[step])
	}
	return p
}

// Series are runs with the same settings that differ in their seeds.
type Series struct {
	Name string
	Runs []Run
}

// Panel is one plot of a learning curve.
type Panel struct {
	// Title says what is shown, Unit in which unit.
	Title, Unit string
	// Metric is drawn as a line, Dots, if not empty, as points: a metric of the evaluations.
	Metric, Dots string
	// Scale multiplies the values; 0 means 1.
	Scale float64
	// Low and High are shown at least, and, if Bounded is set, at most.
	Low, High float64
	Bounded   bool
}

// DefaultPanels are reward, exact match, searches and response length.
func DefaultPanels() []Panel {
	return []Panel{
		{Title: "Reward", Unit: "mean of an episode", Metric: "train/reward_mean", High: 1},
		{Title: "Exact match", Unit: "%", Metric: "train/em", Dots: "eval/em", Scale: 100, High: 100, Bounded: true},
		{Title: "Searches", Unit: "per episode", Metric: "train/num_searches", High: 1},
		{Title: "Response length", Unit: "policy tokens of an episode", Metric: "train/response_len"},
	}
}

func (p Panel) points(run Run, metric string) Points {
	points := run.Points(metric)
	if p.Scale != 0 {
		for i := range points.Y {
			points.Y[i] *= p.Scale
		}
	}
	return points
}

// LearningCurves draws panels over the steps of training. A series of one run is a line; of several runs, each is a
// thin line, and their mean a thick one with its 95 % interval (MeanInterval), at the steps that all of them have.
// Several series have a colour each. A metric that no run has leaves its panel empty.
func LearningCurves(title string, panels []Panel, series ...Series) (*Figure, error) {
	f := &Figure{Title: title, Columns: 2}
	if len(series) == 0 {
		return nil, fmt.Errorf("report: figure %q has no runs", title)
	}
	most := 0
	for i, s := range series {
		if len(s.Runs) == 0 {
			return nil, fmt.Errorf("report: figure %q: series %q has no runs", title, s.Name)
		}
		most = max(most, len(s.Runs))
		if len(series) > 1 {
			f.Keys = append(f.Keys, Key{s.Name, Color(i)})
		}
	}
	if most > 1 {
		f.Subtitle = fmt.Sprintf("thin: single seeds; thick: mean of %d seeds; band: 95 %% interval of the mean", most)
	}
	for _, panel := range panels {
		f.Plots = append(f.Plots, panel.draw(series))
		if panel.Dots != "" && anyHas(series, panel.Dots) {
			f.Subtitle = join(f.Subtitle, panel.Title+": line, training samples; dots, evaluation")
		}
	}
	return f, nil
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + ".  " + b
}

func anyHas(series []Series, metric string) bool {
	for _, s := range series {
		for _, run := range s.Runs {
			if len(run.Points(metric).X) > 0 {
				return true
			}
		}
	}
	return false
}

// draw draws bands below thin lines below thick ones, so that no series hides another's mean.
func (p Panel) draw(series []Series) *plot.Plot {
	plt := NewPlot(p.Title, "training step", p.Unit)
	lines := make([][]Points, len(series))
	for i, s := range series {
		for _, run := range s.Runs {
			lines[i] = append(lines[i], p.points(run, p.Metric))
		}
		if mean := meanOf(lines[i]); len(s.Runs) > 1 {
			p.clip(mean.low)
			p.clip(mean.high)
			addBand(plt, mean.X, mean.low, mean.high, Color(i))
		}
	}
	for i, s := range series {
		if len(s.Runs) == 1 {
			AddLine(plt, "", i, lines[i][0])
			continue
		}
		thin := Color(i)
		for _, line := range lines[i] {
			addLine(plt, line, draw.LineStyle{Color: color.NRGBA{thin.R, thin.G, thin.B, 130}, Width: thinWidth})
		}
	}
	for i, s := range series {
		if len(s.Runs) > 1 {
			AddLine(plt, "", i, meanOf(lines[i]).Points)
		}
		var dots []Points
		for _, run := range s.Runs {
			dots = append(dots, p.points(run, p.Dots))
		}
		AddDots(plt, "", i, meanOf(dots).Points)
	}
	p.setRange(plt)
	return plt
}

func (p Panel) clip(values []float64) {
	for i := range values {
		if p.Bounded {
			values[i] = min(max(values[i], p.Low), p.High)
		}
	}
}

func (p Panel) setRange(plt *plot.Plot) {
	low, high := plt.Y.Min, plt.Y.Max
	if math.IsInf(low, 0) || p.Bounded { // infinite if nothing was drawn
		low, high = p.Low, max(p.High, p.Low+1)
	}
	plt.Y.Min, plt.Y.Max = min(p.Low, low), max(p.High, high)
	if math.IsInf(plt.X.Max, 0) {
		plt.X.Max = 1
	}
	plt.X.Min, plt.X.Max = 0, max(plt.X.Max, 1)
}

// interval is a mean over seeds with its bounds.
type interval struct {
	Points
	low, high []float64
}

// meanOf returns the mean at the steps at which all lines have a finite value.
func meanOf(lines []Points) (m interval) {
	values := map[float64][]float64{}
	for _, line := range lines {
		for i, x := range line.X {
			if !math.IsNaN(line.Y[i]) && !math.IsInf(line.Y[i], 0) {
				values[x] = append(values[x], line.Y[i])
			}
		}
	}
	for _, x := range slices.Sorted(maps.Keys(values)) {
		if len(values[x]) < len(lines) {
			continue
		}
		mean, half := MeanInterval(values[x])
		m.X, m.Y = append(m.X, x), append(m.Y, mean)
		m.low, m.high = append(m.low, mean-half), append(m.high, mean+half)
	}
	return m
}
