package report

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"image/png"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/learn"
)

// rise makes the metrics of a run whose reward rises.
func rise(name string, steps int, seed uint64) Run {
	rng := rand.New(rand.NewPCG(seed, 0))
	run := Run{Name: name}
	for step := 1; step <= steps; step++ {
		level := 0.25 + 0.65/(1+math.Exp(-float64(step-15)/4))
		em := level + 0.06*rng.NormFloat64()
		run.Metrics = append(run.Metrics, map[string]float64{"step": float64(step), "train/reward_mean": em,
			"train/em": em, "train/num_searches": 0.4 + 0.6*em, "train/response_len": 7 + 4*em + rng.Float64()})
		if step%10 == 0 {
			run.Metrics = append(run.Metrics, map[string]float64{"step": float64(step), "eval/em": level})
		}
	}
	return run
}

func TestMeanInterval(t *testing.T) {
	mean, half := MeanInterval([]float64{0.90, 0.94, 0.95})
	assert.InDelta(t, 0.93, mean, 1e-12)
	assert.InDelta(t, 4.302653*0.0264575/math.Sqrt(3), half, 1e-6, "t of two degrees of freedom is 4.3027")
	mean, half = MeanInterval([]float64{0.5})
	assert.Equal(t, 0.5, mean)
	assert.True(t, math.IsNaN(half), "one seed says nothing about the spread")
	mean, _ = MeanInterval(nil)
	assert.True(t, math.IsNaN(mean))
}

func TestMeanIsOverStepsThatAllSeedsHave(t *testing.T) {
	nan := math.NaN()
	m := meanOf([]Points{{X: []float64{1, 2, 3, 4}, Y: []float64{1, 2, nan, 4}},
		{X: []float64{1, 2, 3}, Y: []float64{3, 2, 5}}})
	assert.Equal(t, []float64{1, 2}, m.X, "a run that ended early must not bend the mean")
	assert.Equal(t, []float64{2, 2}, m.Y)
	assert.Equal(t, []float64{2, 2}, []float64{(m.low[0] + m.high[0]) / 2, m.high[1]})
}

func TestPointsOfARunAreByStep(t *testing.T) {
	run := Run{Metrics: []map[string]float64{{"step": 0, "eval/em": 0.25}, {"step": 1, "train/em": 0.5},
		{"step": 2, "train/em": math.NaN()}, {"step": 2, "eval/em": 0.75}}}
	assert.Equal(t, Points{X: []float64{0, 2}, Y: []float64{0.25, 0.75}}, run.Points("eval/em"))
	assert.Equal(t, []float64{1, 2}, run.Points("train/em").X)
	assert.Empty(t, run.Points("train/none").X)
}

func TestGapsAreNotBridged(t *testing.T) {
	nan := math.NaN()
	stretches := Points{X: []float64{1, 2, 3, 4, 5}, Y: []float64{1, 2, nan, nan, 5}}.stretches()
	require.Len(t, stretches, 2)
	assert.Len(t, stretches[0], 2)
	assert.Equal(t, 5.0, stretches[1][0].X)
}

func TestFilesOfALearningCurve(t *testing.T) {
	path := filepath.Join(t.TempDir(), "figures", "curve.png")
	seeds := Series{Name: "GRPO", Runs: []Run{rise("seed-0", 30, 0), rise("seed-1", 30, 1), rise("seed-2", 30, 2)}}
	require.NoError(t, SaveLearningCurves(path, "Quickstart <a & b>", DefaultPanels(), seeds))

	image, err := os.ReadFile(path)
	require.NoError(t, err)
	size, err := png.DecodeConfig(bytes.NewReader(image))
	require.NoError(t, err)
	assert.Greater(t, size.Width, 1200)

	svg, err := os.ReadFile(strings.TrimSuffix(path, ".png") + ".svg")
	require.NoError(t, err)
	for _, text := range []string{"Quickstart &lt;a &amp; b&gt;", "Reward", "Exact match", "Searches", "Response length",
		"training step", "per episode", "mean of 3 seeds"} {
		assert.Contains(t, string(svg), text)
	}
	assert.Contains(t, string(svg), "'Liberation Sans',Arial", "a viewer without the font has another one")

	data, err := os.Open(strings.TrimSuffix(path, ".png") + ".csv")
	require.NoError(t, err)
	defer data.Close()
	rows, err := csv.NewReader(data).ReadAll()
	require.NoError(t, err)
	assert.Equal(t, []string{"series", "run", "step", "metric", "value"}, rows[0])
	assert.Len(t, rows, 1+3*(4*30+3))
	em := seeds.Runs[0].Points("train/em").Y[0]
	assert.Contains(t, rows, []string{"GRPO", "seed-0", "1", "train/em", fmt.Sprint(em)}, "as logged, not in percent")
}

func TestTheSameDataGiveTheSameFigure(t *testing.T) {
	draw := func() (image, svg []byte) {
		f, err := LearningCurves("x", DefaultPanels(), Series{Runs: []Run{rise("a", 12, 1)}})
		require.NoError(t, err)
		image, err = f.PNG()
		require.NoError(t, err)
		svg, err = f.SVG()
		require.NoError(t, err)
		return image, svg
	}
	png1, svg1 := draw()
	png2, svg2 := draw()
	assert.Equal(t, png1, png2)
	assert.Equal(t, svg1, svg2)
}

// A run that has just begun, a maths run without searches, metrics that are null: none of them may stop a report.
func TestThinData(t *testing.T) {
	nan := math.NaN()
	for name, metrics := range map[string][]map[string]float64{
		"no steps":   nil,
		"one step":   {{"step": 1, "train/em": 0.5}},
		"flat":       {{"step": 1, "train/em": 0}, {"step": 2, "train/em": 0}},
		"only NaN":   {{"step": 1, "train/em": nan}, {"step": 2, "train/em": nan}},
		"infinite":   {{"step": 1, "train/reward_mean": math.Inf(1)}, {"step": 2, "train/reward_mean": 1}},
		"evaluation": {{"step": 0, "eval/em": 0.5}},
	} {
		for _, runs := range [][]Run{{{Metrics: metrics}}, {{Metrics: metrics}, {Metrics: metrics}}} {
			f, err := LearningCurves(name, DefaultPanels(), Series{Runs: runs})
			require.NoError(t, err)
			_, err = f.PNG()
			assert.NoError(t, err, name)
			_, err = f.SVG()
			assert.NoError(t, err, name)
		}
	}
}

func TestFaultsAreErrors(t *testing.T) {
	_, err := LearningCurves("f", DefaultPanels())
	assert.ErrorContains(t, err, "has no runs")
	_, err = LearningCurves("f", DefaultPanels(), Series{Name: "s"})
	assert.ErrorContains(t, err, `series "s" has no runs`)
	_, err = (&Figure{}).PNG()
	assert.ErrorContains(t, err, "at least one plot")
	bad := NewPlot("t", "x", "y")
	bad.X.Min, bad.X.Max = math.NaN(), math.NaN()
	_, err = Single(bad).PNG()
	assert.ErrorContains(t, err, `plot "t" has an axis that begins or ends at NaN`, "and does not run for ever")
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	assert.Error(t, Single(NewPlot("t", "x", "y")).Save(filepath.Join(file, "f.png")))
}

func TestWhatTheRunLogWroteCanBeDrawn(t *testing.T) {
	dir := t.TempDir()
	log, err := learn.OpenRunLog(dir, 0)
	require.NoError(t, err)
	require.NoError(t, log.Metrics(1, learn.Stats{"train/em": 0.5, "train/kl": math.NaN()}))
	metrics, err := learn.ReadMetrics(dir)
	require.NoError(t, err)
	run := Run{"seed-7", metrics}
	assert.Equal(t, Points{X: []float64{1}, Y: []float64{0.5}}, run.Points("train/em"))
	var out bytes.Buffer
	require.NoError(t, WriteCSV(&out, []Panel{{Metric: "train/em"}, {Metric: "train/kl"}}, Series{"a,b", []Run{run}}))
	assert.Equal(t, "series,run,step,metric,value\n\"a,b\",seed-7,1,train/em,0.5\n\"a,b\",seed-7,1,train/kl,\n",
		out.String())
}

func TestTicksAreRoundNumbers(t *testing.T) {
	labels := func(low, high float64) (all []string) {
		for _, tick := range (roundTicks{}).Ticks(low, high) {
			all = append(all, tick.Label)
		}
		return all
	}
	assert.Equal(t, []string{"0", "10", "20", "30", "40"}, labels(0, 40))
	assert.Equal(t, []string{"0.0", "0.2", "0.4", "0.6", "0.8", "1.0"}, labels(0, 1))
	assert.Equal(t, []string{"-0.2", "0.0", "0.2", "0.4"}, labels(-0.21, 0.5))
	assert.Equal(t, []string{"0", "1", "2", "3", "4"}, labels(0, 4))
	assert.Equal(t, []string{"0.00", "0.02", "0.04", "0.06", "0.08", "0.10"}, labels(0, 0.1))
	assert.Empty(t, labels(1, 1))
	assert.Empty(t, labels(math.NaN(), 1))
	assert.Empty(t, labels(0, math.Inf(1)))
}

func TestExactMatchStaysBetween0And100(t *testing.T) {
	a := Run{Metrics: []map[string]float64{{"step": 1, "train/em": 1}, {"step": 2, "train/em": 1}}}
	b := Run{Metrics: []map[string]float64{{"step": 1, "train/em": 0.5}, {"step": 2, "train/em": 0.7}}}
	f, err := LearningCurves("f", DefaultPanels(), Series{Runs: []Run{a, b}})
	require.NoError(t, err)
	assert.Equal(t, []float64{0, 100}, []float64{f.Plots[1].Y.Min, f.Plots[1].Y.Max}, "an interval of two goes far beyond")
}

func TestColoursComeRoundAgain(t *testing.T) {
	assert.Equal(t, Color(0), Color(len(palette)))
	assert.NotEqual(t, Color(0), Color(1))
}
