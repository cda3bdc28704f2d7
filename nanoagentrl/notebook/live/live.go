// Package live trains in a cell of a notebook, with a progress bar and learning curves that update in place. It is
// apart from package notebook because it links the whole project, which cells that only plot need not wait for.
package live

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/learn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/notebook"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/report"
)

// Train trains what cfg names, shows how it goes, and returns the metrics of the whole run, as learn.ReadMetrics does.
// A run that is complete is only shown, and one that was interrupted goes on, so a cell can be run again without
// training again. The kernel's interrupt button saves and stops the run.
func Train(ctx context.Context, title string, cfg *config.Config) ([]map[string]float64, error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	reporter := NewReporter(title)
	r, err := nanoagentrl.Open(ctx, cfg, nanoagentrl.Options{Reporter: reporter})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	fmt.Printf("device   %s\n", r.Device)
	trainErr := r.Train(ctx)
	metrics, err := learn.ReadMetrics(cfg.RunDir)
	if err != nil {
		return nil, err
	}
	if err := reporter.Done(r.Trainer.Step(), cfg.Steps, metrics); err != nil {
		return nil, err
	}
	return metrics, trainErr
}

// Reporter is a learn.Reporter that shows a run in a cell.
type Reporter struct {
	title    string
	progress *notebook.Progress
	plot     *notebook.LivePlot
	metrics  []map[string]float64
	started  time.Time
	first    int // steps that an earlier call made
}

var _ learn.Reporter = (*Reporter)(nil)

// NewReporter returns a reporter; title stands above the curves.
func NewReporter(title string) *Reporter {
	return &Reporter{title: title, progress: notebook.NewProgress(), plot: notebook.NewLivePlot()}
}

// Phase implements learn.Reporter.
func (r *Reporter) Phase(step, steps int, what string) {
	if r.started.IsZero() {
		r.started, r.first = time.Now(), max(step-1, 0)
	}
	r.progress.Set(max(step-1, 0), steps, what+" …")
}

// Step implements learn.Reporter.
func (r *Reporter) Step(step, steps int, stats learn.Stats) {
	r.add(step, stats)
	r.progress.Set(step, steps, r.line(step, steps, stats))
	r.plot.Update(func() (*report.Figure, error) { return r.curves(r.metrics) })
}

func (r *Reporter) add(step int, stats map[string]float64) {
	line := map[string]float64{"step": float64(step)}
	for name, value := range stats {
		line[name] = value
	}
	r.metrics = append(r.metrics, line)
}

func (r *Reporter) line(step, steps int, stats learn.Stats) string {
	text := fmt.Sprintf("reward %.2f, EM %.0f %%, searches %.2f", stats["train/reward_mean"], 100*stats["train/em"],
		stats["train/num_searches"])
	if done := step - r.first; !r.started.IsZero() && done > 0 && step < steps {
		left := time.Since(r.started) / time.Duration(done) * time.Duration(steps-step)
		text += fmt.Sprintf(", about %s left", left.Round(time.Second))
	}
	return text
}

// Eval implements learn.Reporter.
func (r *Reporter) Eval(step int, _ string, metrics map[string]float64) { r.add(step, metrics) }

// Sample implements learn.Reporter.
func (r *Reporter) Sample(int, *episode.Episode) {}

// Saved implements learn.Reporter.
func (r *Reporter) Saved(string) {}

// Warn implements learn.Reporter.
func (r *Reporter) Warn(step int, warning string) {
	fmt.Printf("warning at step %d: %s\n", step, warning)
}

// Done shows the curves of the whole run.
func (r *Reporter) Done(step, steps int, metrics []map[string]float64) error {
	f, err := r.curves(metrics)
	if err != nil {
		return err
	}
	r.progress.Done(step, steps, "steps")
	r.plot.Done(f)
	return nil
}

func (r *Reporter) curves(metrics []map[string]float64) (*report.Figure, error) {
	return report.LearningCurves(r.title, report.DefaultPanels(), report.Series{Runs: []report.Run{{Metrics: metrics}}})
}
