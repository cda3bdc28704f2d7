package warmstart

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// display writes how a training goes: a line every linesEvery updates and at the end of each stage; on a terminal also
// a line that is overwritten.
type display struct {
	out      io.Writer
	terminal bool
	recipe   *Recipe
	// shown is the width of the line that can be overwritten, last when it was written.
	shown int
	last  time.Time
	// sum adds up the scores since the last whole line; tokens and seconds are those at that line.
	sum     score
	tokens  int
	seconds float64
}

const linesEvery = 100

func newDisplay(out io.Writer, terminal bool, r *Recipe) *display {
	return &display{out: out, terminal: terminal, recipe: r}
}

// step shows an update.
func (d *display) step(t *trainer, s *score, norm float64) {
	d.sum.loss += s.loss
	d.sum.tokens += s.tokens
	d.sum.right += s.right
	d.sum.values += s.values
	if t.Updates%linesEvery == 0 {
		d.clear()
		fmt.Fprintln(d.out, d.line(t, norm))
		d.sum, d.tokens, d.seconds = score{}, t.TotalTokens, t.Seconds
		return
	}
	if d.terminal && time.Since(d.last) > time.Second/2 {
		line := d.line(t, norm)
		d.clear()
		fmt.Fprint(d.out, line)
		d.shown, d.last = len(line), time.Now()
	}
}

// line is a line of progress; the time left is what the remaining stages take at most.
func (d *display) line(t *trainer, norm float64) string {
	stage := &d.recipe.Stages[t.Stage]
	left := stage.Tokens - t.Tokens
	for _, s := range d.recipe.Stages[t.Stage+1:] {
		left += s.Tokens
	}
	speed := float64(t.TotalTokens-d.tokens) / (t.Seconds - d.seconds)
	eta := time.Duration(float64(max(left, 0)) / speed * float64(time.Second)).Round(time.Second)
	return fmt.Sprintf("stage %d/%d %s  update %d  tokens %.0fk/%.0fk  loss %.3f  right %s  lr %.2g  |g| %.2g  "+
		"%.0f tok/s  ETA %s", t.Stage+1, len(d.recipe.Stages), stage.Name, t.Updates, float64(t.Tokens)/1e3,
		float64(stage.Tokens)/1e3, d.sum.loss/float64(d.sum.tokens), percent(d.sum.accuracy()), t.rate(stage), norm,
		speed, eta)
}

func percent(share float64) string {
	if math.IsNaN(share) || share < 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

// stage shows that a stage is done.
func (d *display) stage(t *trainer, r StageResult) {
	d.clear()
	why := "token limit"
	if r.Reached {
		why = "accuracy reached"
	}
	fmt.Fprintf(d.out, "stage %d/%d %s done: %d updates, %.0fk tokens, %s right (%s); %.2fM tokens in %s so far\n",
		t.Stage+1, len(d.recipe.Stages), r.Name, r.Batches, float64(r.Tokens)/1e3, percent(r.Right), why,
		float64(t.TotalTokens)/1e6, time.Duration(t.Seconds*float64(time.Second)).Round(time.Second))
}

// clear takes the line that can be overwritten off the terminal.
func (d *display) clear() {
	if d.shown > 0 {
		fmt.Fprint(d.out, "\r"+strings.Repeat(" ", d.shown)+"\r")
		d.shown = 0
	}
}
