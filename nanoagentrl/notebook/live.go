package notebook

import (
	"fmt"
	"html"
	"time"

	"github.com/janpfeifer/gonb/gonbui"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/report"
)

// pause is the least time between two updates of an output: a browser draws no faster, and a saved notebook holds the
// last state alone.
const pause = 500 * time.Millisecond

// throttle lets something through once in a pause.
type throttle struct{ last time.Time }

func (t *throttle) ready(now time.Time) bool {
	if now.Sub(t.last) < pause {
		return false
	}
	t.last = now
	return true
}

// LivePlot is a figure that is drawn again in place. Outside of a kernel it shows nothing until Done.
type LivePlot struct {
	id       string
	throttle throttle
}

// NewLivePlot returns a live plot, whose place is where it is updated first.
func NewLivePlot() *LivePlot { return &LivePlot{id: "plot_" + gonbui.UniqueId()} }

// Update shows the figure that draw makes, unless the last update was just now; then draw is not called.
func (l *LivePlot) Update(draw func() (*report.Figure, error)) {
	if !Active() || !l.throttle.ready(time.Now()) {
		return
	}
	figure, err := draw()
	if err != nil {
		fail(err)
	}
	show(figure, l.id)
}

// Done shows the final figure.
func (l *LivePlot) Done(f *report.Figure) {
	if !Active() {
		Show(f)
		return
	}
	show(f, l.id)
	gonbui.Sync()
}

// Progress is a bar that moves in place. Outside of a kernel only its last state is printed.
type Progress struct {
	id       string
	throttle throttle
}

// NewProgress returns a progress bar, whose place is where it is set first.
func NewProgress() *Progress { return &Progress{id: "progress_" + gonbui.UniqueId()} }

// Set shows how many of total steps are done, and a text beside the bar.
func (p *Progress) Set(done, total int, text string) {
	if Active() && p.throttle.ready(time.Now()) {
		gonbui.UpdateHTML(p.id, progressHTML(done, total, text))
	}
}

// Done shows the last state.
func (p *Progress) Done(done, total int, text string) {
	if !Active() {
		fmt.Fprintf(out, "%d of %d  %s\n", done, total, text)
		return
	}
	gonbui.UpdateHTML(p.id, progressHTML(done, total, text))
	gonbui.Sync()
}

func progressHTML(done, total int, text string) string {
	return fmt.Sprintf(`<div style="font-size:13px"><progress value="%d" max="%d" style="width:220px"></progress> `+
		`<b>%d</b> of %d <span style="margin-left:8px">%s</span></div>`, done, max(total, 1), done, total,
		html.EscapeString(text))
}
