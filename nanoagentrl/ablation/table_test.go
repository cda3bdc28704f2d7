package ablation

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl"
)

// made returns a result with a sampled EM before and after, and training steps with an EM each.
func made(variant string, seed int, before, after float64, train ...float64) *Result {
	r := &Result{Variant: variant, Seed: seed, Steps: len(train), Device: "pure Go, 2 cores", Seconds: 60,
		Before: map[string]nanoagentrl.Measured{"sampled": {EM: before, Episodes: 100}},
		After: map[string]nanoagentrl.Measured{
			"sampled": {EM: after, Searches: 0.5 + float64(seed)/2, Invalid: 0.01, Episodes: 100},
			"greedy":  {EM: 1}}}
	for i, value := range train {
		r.Metrics = append(r.Metrics, map[string]float64{"step": float64(i + 1), "train/em": value,
			"train/reward_mean": value})
	}
	return r
}

func twoVariants() (*Suite, []*Result) {
	s := &Suite{Name: "try", Spec: Spec{Title: "Try", Question: "Why?", Base: "base.yaml", Seeds: 3,
		Variants: []Variant{{Name: "a"}, {Name: "b", Set: []string{"lr=1"}}}}}
	return s, []*Result{
		made("a", 1, 0.2, 0.9, 0.2, 0.4), made("b", 1, 0.2, 0.6, 0.1, 0.1),
		made("a", 2, 0.3, 0.8, 0.4, 0.6), made("b", 2, 0.3, 0.4, 0.1, math.NaN()),
		made("a", 3, 0.4, 0.7, 0.5, 0.7), made("b", 3, 0.4, 0.5, 0.1, 0.1),
	}
}

// By hand: 90, 80, 70 have the mean 80 and the deviation 10; t of two degrees of freedom is 4.3027, and
// 4.3027·10/√3 = 24.8. The paired differences are -30, -40, -20: mean -30, deviation 10. Searches are 1, 1.5, 2. The
// means over the training of a are 30, 50, 60: deviation 15.275.
func TestTableHasTheNumbersWorkedByHand(t *testing.T) {
	s, results := twoVariants()
	lines := strings.Split(strings.TrimSpace(Table(s, results)), "\n")
	require.Len(t, lines, 4)
	assert.Equal(t, "| variant | seeds | EM before, % | EM, % | EM less that of a, points | EM greedy, % | searches | "+
		"invalid, % | EM over the training, % |", lines[0])
	assert.Equal(t, "| a | 3 | 30.0 ± 24.8 | 80.0 ± 24.8 | – | 100.0 ± 0.0 | 1.50 ± 1.24 | 1.0 ± 0.0 | 46.7 ± 37.9 |",
		lines[2])
	assert.Equal(t, "| b | 3 | 30.0 ± 24.8 | 50.0 ± 24.8 | -30.0 ± 24.8 | 100.0 ± 0.0 | 1.50 ± 1.24 | 1.0 ± 0.0 | "+
		"10.0 ± 0.0 |", lines[3])
}

// A constant difference is known exactly, however much the seeds differ: that is what pairing is for.
func TestDifferencesArePairedBySeed(t *testing.T) {
	s, _ := twoVariants()
	results := []*Result{made("b", 2, 0, 0.85), made("a", 1, 0, 0.1), made("a", 2, 0, 0.9), made("b", 1, 0, 0.05),
		made("b", 3, 0, 0)}
	table := Table(s, results)
	assert.Contains(t, table, "| -5.0 ± 0.0 |", "seed 3 has no partner yet")
	assert.NotContains(t, table, "-0.0")
}

func TestOneSeedHasNoInterval(t *testing.T) {
	s, results := twoVariants()
	table := Table(s, results[:2])
	assert.NotContains(t, table, "±")
	assert.Contains(t, table, "| b | 1 | 20.0 | 60.0 | -30.0 |")
}

func TestCSVIsTidyAndLeavesOutWhatWasNotMeasured(t *testing.T) {
	s, results := twoVariants()
	text, err := CSV(s, results)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	require.Equal(t, "suite,variant,seed,step,metric,value", lines[0])
	for _, want := range []string{"try,a,1,1,train/em,0.2", "try,b,2,2,train/em,", "try,a,3,0,test/em_sampled,0.4",
		"try,b,1,2,test/em_sampled,0.6", "try,a,1,2,test/num_searches_sampled,1"} {
		require.Contains(t, lines, want)
	}
	require.NotContains(t, string(text), "blind")
	require.NotContains(t, string(text), "NaN")
	seen := map[string]bool{}
	for _, line := range lines {
		key := line[:strings.LastIndex(line, ",")]
		require.False(t, seen[key], "%s is there twice", key)
		seen[key] = true
	}
}

func TestFigureHasAPanelForEachMetricOrForEachOfManyVariants(t *testing.T) {
	s, results := twoVariants()
	s.Watch = []string{"train/reward_mean", "train/kl"}
	f, err := Figure(s, results)
	require.NoError(t, err)
	require.Len(t, f.Plots, 3)
	require.Len(t, f.Keys, 2)
	_, err = f.PNG()
	require.NoError(t, err)
	for _, name := range []string{"c", "d", "e", "f", "g"} {
		s.Variants = append(s.Variants, Variant{Name: name})
		results = append(results, made(name, 1, 0, 1, 0.5, 0.6), made(name, 2, 0, 1, 0.5, 0.7))
	}
	f, err = Figure(s, results)
	require.NoError(t, err)
	require.Len(t, f.Plots, 7, "more than can be told apart in one")
	require.Equal(t, "g", f.Plots[6].Title.Text)
	require.Contains(t, f.Subtitle, "Dashed: mean of a")
	_, err = f.PNG()
	require.NoError(t, err)
	f, err = Figure(s, results[6:])
	require.NoError(t, err)
	require.NotContains(t, f.Subtitle, "Dashed", "there is no run of a yet")
	s.Watch, s.Variants = nil, s.Variants[:2]
	f, err = Figure(s, results)
	require.NoError(t, err)
	require.Equal(t, 1, f.Columns, "no empty half")
	_, err = Figure(s, nil)
	require.Error(t, err)
}

func TestMeanCurveOfComparisonIsOverAllRuns(t *testing.T) {
	_, results := twoVariants()
	mean := meanCurve(runsOf(results, "a"))
	require.Equal(t, []float64{1, 2}, mean.X)
	require.InDelta(t, 110.0/3, mean.Y[0], 1e-9)
	mean = meanCurve(runsOf(results, "b"))
	require.Equal(t, []float64{1}, mean.X, "a step that one run has not measured is left out")
}

func TestSectionGoesBetweenItsMarksAndNowhereElse(t *testing.T) {
	dir := t.TempDir()
	doc := filepath.Join(dir, "results.md")
	put := func(text string) { require.NoError(t, os.WriteFile(doc, []byte(text), 0o644)) }
	other := openMark("other") + "\nstays\n" + closeMark("other") + "\n"
	put("# R\n" + other + openMark("try") + closeMark("try") + "\nend")
	require.NoError(t, UpdateDoc(doc, "try", "one"))
	require.NoError(t, UpdateDoc(doc, "try", "\ntwo\n"))
	text, err := os.ReadFile(doc)
	require.NoError(t, err)
	require.Equal(t, "# R\n"+other+openMark("try")+"\ntwo\n"+closeMark("try")+"\nend", string(text))
	for _, bad := range []string{"", openMark("try"), closeMark("try"), closeMark("try") + openMark("try"),
		openMark("try") + closeMark("try") + openMark("try") + closeMark("try")} {
		put(bad)
		require.ErrorContains(t, CheckDoc(doc, "try"), "results.md: ", "%q", bad)
		require.Error(t, UpdateDoc(doc, "try", "x"))
		text, err := os.ReadFile(doc)
		require.NoError(t, err)
		require.Equal(t, bad, string(text), "nothing was written")
	}
	require.Error(t, CheckDoc(filepath.Join(dir, "none.md"), "try"))
}

func TestSectionTellsWhatWasVariedAndHowItWasMeasured(t *testing.T) {
	s, results := twoVariants()
	s.Set = []string{"steps=2"}
	g := &Grid{Suite: s, Seeds: 3, Set: []string{"topk=1"}}
	text := g.Section(results, "go run it", "../figures/ablations/try.png")
	for _, want := range []string{"### Try", "Why?", "go run it", "- a: as the base", "- b: `lr=1`", "with 3 seeds",
		"`base.yaml` with `steps=2 topk=1`", "100 test questions", "pure Go, 2 cores; 60 s",
		"[try.csv](../figures/ablations/try.csv)"} {
		assert.Contains(t, text, want)
	}
}
