package learn

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
)

func stepStats() Stats {
	return Stats{"train/reward_mean": 0.25, "train/em": 0.125, "train/num_searches": 1.5, "train/invalid_format_rate": 0.1,
		"train/kl": 0.0123, "train/grad_norm": 0.456, "train/response_len": 78, "train/updates": 1,
		"perf/rollout_sec": 2, "perf/train_sec": 1, "perf/tokens_per_sec": 1234, "perf/mem_gb": 1.5}
}

func TestProgressLineHoldsTheFiguresAndTheTimeLeft(t *testing.T) {
	var out bytes.Buffer
	c := NewConsole(&out, false)
	c.Phase(1, 21, "rolling out")
	c.Step(1, 21, stepStats())
	require.Equal(t, "step 1/21  reward 0.250  EM 0.125  searches 1.50  invalid 10%  KL 0.0123  |g| 0.46  tokens 78  "+
		"3s (1234 tok/s, 1.5 GB)  ETA 1m0s\n", out.String(), "without a terminal there are no phases")
}

func TestTimeLeftIsThatOfTheLastTenSteps(t *testing.T) {
	var out bytes.Buffer
	c := NewConsole(&out, false)
	slow := stepStats()
	slow["perf/rollout_sec"] = 1000
	c.Step(1, 100, slow)
	for step := 2; step <= 11; step++ {
		out.Reset()
		c.Step(step, 100, stepStats())
	}
	require.Contains(t, out.String(), "ETA 4m27s\n", "89 steps of 3 s")
	out.Reset()
	c.Step(100, 100, stepStats())
	require.Contains(t, out.String(), "ETA 0s\n")
}

func TestWhatWasNotMeasuredIsADashAndASkippedUpdateIsExplained(t *testing.T) {
	skipped := func(change func(s Stats)) string {
		var out bytes.Buffer
		s := stepStats()
		s["train/updates"], s["train/kl"], s["train/grad_norm"] = 0, math.NaN(), math.NaN()
		change(s)
		NewConsole(&out, false).Step(1, 2, s)
		return out.String()
	}
	text := skipped(func(s Stats) { s["train/zero_signal_group_frac"] = 1 })
	require.Contains(t, text, "KL -  |g| -")
	require.Contains(t, text, "no weight update: in each group all episodes had the same reward\n")
	require.Contains(t, skipped(func(s Stats) { s["train/non_finite_updates"] = 1 }), "the gradient was not finite")
	require.Contains(t, skipped(func(Stats) {}), "no episode could be trained on")
}

// screen plays carriage returns as a terminal does.
func screen(text string) (lines []string) {
	for _, line := range strings.Split(text, "\n") {
		var cells []rune
		at := 0
		for _, r := range line {
			if r == '\r' {
				at = 0
				continue
			}
			if at == len(cells) {
				cells = append(cells, ' ')
			}
			cells[at] = r
			at++
		}
		lines = append(lines, strings.TrimRight(string(cells), " "))
	}
	return lines
}

func TestPhaseOnATerminalStandsInOneLineAndLeavesNoTrace(t *testing.T) {
	var out bytes.Buffer
	c := NewConsole(&out, true)
	c.Phase(1, 2, "a phase with a rather long name")
	require.Equal(t, []string{"step 1/2  a phase with a rather long name …"}, screen(out.String()))
	c.Phase(1, 2, "training")
	require.Equal(t, []string{"step 1/2  training …"}, screen(out.String()))
	c.Saved("dir")
	c.Phase(4, 0, "evaluating")
	require.Equal(t, []string{"saved dir", "evaluating …"}, screen(out.String()))
	c.Warn(3, "too long")
	c.Eval(4, "nq", map[string]float64{"eval/em_nq": 0.5})
	c.Phase(1, 2, "training")
	c.Clear()
	require.Equal(t, []string{"saved dir", "warning at step 3: too long",
		"eval at step 4  nq: EM 50.0 %, searches 0.00, invalid 0.0 %, 0 tokens", ""}, screen(out.String()))
}

func TestSampleIsShownTurnByTurn(t *testing.T) {
	var out bytes.Buffer
	NewConsole(&out, false).Sample(7, &episode.Episode{Question: "who?", Answers: []string{"Ada", "A."}, Reward: 1,
		Stop: episode.StopAnswer, Turns: []episode.Turn{
			{Action: episode.ActionSearch, Text: " <search>x</search>", Passages: []episode.Passage{{Contents: "\"T\"\n" +
				strings.Repeat("é", 200)}}},
			{Action: episode.ActionAnswer, Text: "<answer>Ada</answer>"},
		}})
	require.Equal(t, []string{"sample of step 7 (reward 1.00, answer)", "    | question: who?",
		"    | search: <search>x</search>", "    |     found \"T\" " + strings.Repeat("é", 96) + " …",
		"    | answer: <answer>Ada</answer>", "    | gold: Ada | A.", ""}, strings.Split(out.String(), "\n"))
}

func TestPeakMemoryIsThatOfAProcess(t *testing.T) {
	before := PeakMemoryGB()
	require.Greater(t, before, 0.005)
	require.Less(t, before, 100.0)
	big := make([]byte, 200<<20)
	for i := range big {
		big[i] = 1
	}
	require.GreaterOrEqual(t, PeakMemoryGB(), 0.2)
	require.EqualValues(t, 1, big[len(big)/2])
}
