package ablation

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/learn"
)

// measureSteps is what the measures before and after the training of a run take together, in steps.
const measureSteps = 4

// board shows how a grid goes: a line for each run that ends and, on a terminal, a line that changes.
type board struct {
	mu       sync.Mutex
	opts     RunOptions
	suite    string
	total    int // runs to make
	finished int
	started  time.Time
	// ahead is the work that is left, in steps, of runs that have not begun or are under way; worked is what was done
	// since started.
	ahead, worked float64
	active        []*cellReporter
	shown         int // width of the changing line
}

func newBoard(g *Grid, todo []*Cell, opts RunOptions) *board {
	b := &board{opts: opts, suite: g.Suite.Name, total: len(todo), started: time.Now()}
	for _, cell := range todo {
		b.ahead += float64(cell.Config.Steps + measureSteps)
	}
	return b
}

func (b *board) begin(o *Outcome) {
	text := fmt.Sprintf("%s: %d %s to make", b.suite, b.total, plural(b.total, "run"))
	if o.Complete > 0 {
		text += fmt.Sprintf(", %d complete", o.Complete)
	}
	if o.Skipped > 0 {
		text += fmt.Sprintf(", %d not asked for", o.Skipped)
	}
	b.line("%s", text)
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

// reporter returns what a run reports to.
func (b *board) reporter(cell *Cell) *cellReporter {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := &cellReporter{Console: learn.NewConsole(io.Discard, false), board: b, cell: cell, doing: "opening"}
	b.active = append(b.active, r)
	b.show()
	return r
}

// drop takes a run off the board, and the rest of its work off what is ahead. The lock is held.
func (b *board) drop(cell *Cell) {
	rest := float64(cell.Config.Steps + measureSteps)
	for i, r := range b.active {
		if r.cell == cell {
			rest -= r.counted
			b.active = append(b.active[:i], b.active[i+1:]...)
			break
		}
	}
	b.ahead -= rest
	b.clear()
}

func (b *board) done(cell *Cell, result *Result) {
	b.finished++
	b.drop(cell)
	what := fmt.Sprintf("%.0f s of training", result.Seconds)
	if result.CopiedFrom != "" {
		what = "as " + result.CopiedFrom
	}
	b.line("%s  %s: EM %s -> %s, %s%s", b.count(), cell.Name(), percentOf(result.Before, "sampled"),
		percentOf(result.After, "sampled"), what, b.eta())
	b.show()
}

func (b *board) failed(cell *Cell, err error) {
	b.finished++
	b.drop(cell)
	b.line("%s  %s FAILED: %v (see %s)%s", b.count(), cell.Name(), err, cell.logPath(), b.eta())
	b.show()
}

func (b *board) count() string { return fmt.Sprintf("%s %d/%d", b.suite, b.finished, b.total) }

func (b *board) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clear()
}

// eta says how long the rest takes if it goes on as it went so far.
func (b *board) eta() string {
	if b.worked < 1 || b.ahead < 0.5 {
		return ""
	}
	left := time.Duration(float64(time.Since(b.started)) / b.worked * b.ahead)
	return ", ETA " + left.Round(time.Second).String()
}

func (b *board) line(format string, args ...any) {
	b.clear()
	fmt.Fprintf(b.opts.Out, format+"\n", args...)
}

// lineWidth is the width that the changing line is cut to: one that wraps could not be taken back.
const lineWidth = 110

func (b *board) show() {
	if !b.opts.Terminal {
		return
	}
	var parts []string
	for _, r := range b.active {
		parts = append(parts, fmt.Sprintf("%s %s", r.cell.Name(), r.doing))
	}
	text := fmt.Sprintf("%s%s  %s", b.count(), b.eta(), strings.Join(parts, "; "))
	if utf8.RuneCountInString(text) > lineWidth {
		text = string([]rune(text)[:lineWidth-2]) + " …"
	}
	b.clear()
	fmt.Fprint(b.opts.Out, text)
	b.shown = utf8.RuneCountInString(text)
}

func (b *board) clear() {
	if b.shown > 0 {
		fmt.Fprintf(b.opts.Out, "\r%s\r", strings.Repeat(" ", b.shown))
		b.shown = 0
	}
}

// cellReporter shows a run on the board and writes it into the run's log.
type cellReporter struct {
	*learn.Console
	board *board
	cell  *Cell
	doing string
	// counted is the work of this run, in steps, that is no longer ahead.
	counted float64
	stepped bool
}

// Phase implements learn.Reporter.
func (r *cellReporter) Phase(step, steps int, what string) {
	r.board.mu.Lock()
	defer r.board.mu.Unlock()
	r.doing = what
	if steps > 0 {
		r.doing = fmt.Sprintf("step %d/%d %s", step, steps, what)
	}
	r.board.show()
}

// Step implements learn.Reporter.
func (r *cellReporter) Step(step, steps int, stats learn.Stats) {
	r.Console.Step(step, steps, stats)
	r.board.mu.Lock()
	defer r.board.mu.Unlock()
	work := 1.0
	if !r.stepped { // the measures before, and the steps of an earlier process
		work += measureSteps / 2
		r.take(float64(step - 1))
	}
	r.stepped = true
	r.take(work)
	r.board.worked += work
	r.doing = fmt.Sprintf("step %d/%d reward %.2f", step, steps, stats["train/reward_mean"])
	r.board.show()
}

// take moves work from ahead to counted.
func (r *cellReporter) take(work float64) {
	r.counted += work
	r.board.ahead -= work
}
