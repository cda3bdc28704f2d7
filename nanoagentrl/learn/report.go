package learn

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/eval"
)

// Reporter is told how a run goes.
type Reporter interface {
	// Phase says what is being done in a step; it comes often and may be shown in place.
	Phase(step, steps int, what string)
	// Step comes after each training step, Eval after each split of an evaluation, Sample with a sample episode, Saved
	// after a checkpoint.
	Step(step, steps int, stats Stats)
	Eval(step int, split string, metrics map[string]float64)
	Sample(step int, e *episode.Episode)
	Saved(dir string)
	// Warn tells what goes wrong with the run.
	Warn(step int, warning string)
}

// Console reports in lines of text. On a terminal the current phase stands in the last line.
type Console struct {
	out      io.Writer
	terminal bool
	// shown is the width of the phase that stands in the last line, took the seconds of each step so far.
	shown int
	took  []float64
}

// NewConsole returns a reporter that writes to out; terminal says whether a line can be overwritten there.
func NewConsole(out io.Writer, terminal bool) *Console {
	return &Console{out: out, terminal: terminal}
}

// line writes a whole line over the phase.
func (c *Console) line(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	fmt.Fprintf(c.out, "%s%s\n", c.clear(), text)
}

func (c *Console) clear() string {
	if c.shown == 0 {
		return ""
	}
	blank := "\r" + strings.Repeat(" ", c.shown) + "\r"
	c.shown = 0
	return blank
}

// Phase implements Reporter.
func (c *Console) Phase(step, steps int, what string) {
	if !c.terminal {
		return
	}
	text := what + " …"
	if steps > 0 {
		text = fmt.Sprintf("step %d/%d  %s", step, steps, text)
	}
	fmt.Fprintf(c.out, "%s%s", c.clear(), text)
	c.shown = utf8.RuneCountInString(text)
}

// Clear takes the phase off the terminal, before something else is written there.
func (c *Console) Clear() { fmt.Fprint(c.out, c.clear()) }

// Step implements Reporter. The time left is that of the steps alone, without evaluations and checkpoints, estimated
// from the last ten.
func (c *Console) Step(step, steps int, s Stats) {
	took := s["perf/rollout_sec"] + s["perf/train_sec"]
	c.took = append(c.took, took)
	recent := c.took[max(0, len(c.took)-10):]
	sum := 0.0
	for _, t := range recent {
		sum += t
	}
	left := sum / float64(len(recent)) * float64(max(steps-step, 0))
	c.line("step %d/%d  reward %.3f  EM %.3f  searches %.2f  invalid %.0f%%  KL %s  |g| %s  tokens %.0f  "+
		"%s (%.0f tok/s, %.1f GB)  ETA %s", step, steps, s["train/reward_mean"], s["train/em"],
		s["train/num_searches"], 100*s["train/invalid_format_rate"], orDash("%.4f", s["train/kl"]),
		orDash("%.2g", s["train/grad_norm"]), s["train/response_len"], seconds(took), s["perf/tokens_per_sec"],
		s["perf/mem_gb"], seconds(left))
	if s["train/updates"] == 0 {
		c.line("          no weight update: %s", whyNoUpdate(s))
	}
}

// whyNoUpdate says why a step left the weights as they were.
func whyNoUpdate(s Stats) string {
	switch {
	case s["train/non_finite_updates"] > 0:
		return "the gradient was not finite"
	case s["train/zero_signal_group_frac"] == 1:
		return "in each group all episodes had the same reward"
	}
	return "no episode could be trained on"
}

// orDash shows a value, or a dash where it was not measured.
func orDash(format string, value float64) string {
	if math.IsNaN(value) {
		return "-"
	}
	return fmt.Sprintf(format, value)
}

func seconds(s float64) time.Duration { return round(time.Duration(s * float64(time.Second))) }

// round shows a duration with about three digits.
func round(d time.Duration) time.Duration {
	switch {
	case d > time.Minute:
		return d.Round(time.Second)
	case d > time.Second:
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}

// Eval implements Reporter.
func (c *Console) Eval(step int, split string, metrics map[string]float64) {
	c.line("eval at step %d  %s", step, eval.Line(split, metrics))
}

// Saved implements Reporter.
func (c *Console) Saved(dir string) {
	c.line("saved %s", dir)
}

// Warn implements Reporter.
func (c *Console) Warn(step int, warning string) {
	c.line("warning at step %d: %s", step, warning)
}

// Sample implements Reporter. It shows the episode in a few indented lines.
func (c *Console) Sample(step int, e *episode.Episode) {
	c.line("sample of step %d (reward %.2f, %s)\n%s", step, e.Reward, e.Stop, indent(Transcript(e)))
}

func indent(text string) string { return "    | " + strings.ReplaceAll(text, "\n", "\n    | ") }

// Transcript shows an episode as text: the question, what the policy wrote, and the passages by their titles.
func Transcript(e *episode.Episode) string {
	var b strings.Builder
	fmt.Fprintf(&b, "question: %s", e.Question)
	for _, turn := range e.Turns {
		fmt.Fprintf(&b, "\n%s: %s", turn.Action, shorten(strings.TrimSpace(turn.Text), 400))
		for _, p := range turn.Passages {
			fmt.Fprintf(&b, "\n    found %s", shorten(strings.ReplaceAll(p.Contents, "\n", " "), 100))
		}
	}
	fmt.Fprintf(&b, "\ngold: %s", strings.Join(e.Answers, " | "))
	return b.String()
}

// shorten cuts a text to n characters.
func shorten(text string, n int) string {
	runes := []rune(text)
	if len(runes) <= n {
		return text
	}
	return string(runes[:n]) + " …"
}
