package nanoagentrl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/eval"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/atomicfile"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/learn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/report"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
)

// ShowcaseName and CurvesName are the files that a run with a showcase leaves in its folder.
const (
	ShowcaseName = "showcase.json"
	CurvesName   = "curves.png"
)

// Condition is a way to measure a policy.
type Condition struct {
	Name string
	// Temperature is that of the sampling; 0 is greedy. Shuffled shows passages in random order, Blind replaces the
	// search engine by one that finds nothing.
	Temperature     float64
	Shuffled, Blind bool
}

// Conditions are the ways that a showcase measures a policy: as it is trained, greedily, with passages in random order,
// so that leaning on their rank would show, and without a search engine, which tells what it knows by heart.
func Conditions(cfg *config.Config) []Condition {
	all := []Condition{
		{Name: fmt.Sprintf("sampled at temperature %g", cfg.Temperature), Temperature: cfg.Temperature},
		{Name: "greedy"},
		{Name: "greedy, passages shuffled", Shuffled: true},
		{Name: "greedy, no search engine", Blind: true},
	}
	if cfg.Task != string(agent.TaskSearch) {
		return all[:2]
	}
	return all
}

// Measured is what a policy reached under one condition, over all questions of all evaluation splits.
type Measured struct {
	Condition string  `json:"condition"`
	EM        float64 `json:"em"`
	Searches  float64 `json:"num_searches"`
	Invalid   float64 `json:"invalid_format_rate"`
	Tokens    float64 `json:"response_len"`
	Episodes  int     `json:"episodes"`
}

// Moment is what a showcase keeps of the time before or after the training.
type Moment struct {
	Step     int              `json:"step"`
	Episode  *episode.Episode `json:"episode"`
	Measured []Measured       `json:"measured"`
}

// Showcase is a run's result to look at: the same question's episode and the same measures before and after.
type Showcase struct {
	Before, After *Moment
}

// blind is a search engine that finds nothing.
type blind struct{}

func (blind) Search(_ context.Context, queries []string, _ int) []retrieve.Result {
	return make([]retrieve.Result, len(queries))
}

// Measure plays the evaluation questions of all splits under a condition.
func (r *Run) Measure(ctx context.Context, c Condition) (Measured, error) {
	evaluator, err := r.evaluatorFor(c)
	if err != nil {
		return Measured{}, err
	}
	var all []*episode.Episode
	for _, split := range r.Splits {
		played, _, err := evaluator.Run(ctx, split, func(done, total int) {
			r.opts.Reporter.Phase(r.step(), 0, fmt.Sprintf("measuring, %s %d/%d", c.Name, done, total))
		})
		if err != nil {
			return Measured{}, err
		}
		all = append(all, played...)
	}
	m := eval.Metrics("all", all)
	return Measured{Condition: c.Name, EM: m["eval/em_all"], Searches: m["eval/num_searches_all"],
		Invalid: m["eval/invalid_format_rate_all"], Tokens: m["eval/response_len_all"], Episodes: len(all)}, nil
}

// evaluatorFor returns an evaluator with one sample a question.
func (r *Run) evaluatorFor(c Condition) (*eval.Evaluator, error) {
	searcher, shuffled := r.Searcher, r.Config.ShufflePassages || c.Shuffled
	if c.Blind && searcher != nil {
		searcher = blind{}
	}
	rollouter, err := r.rollouterWith(searcher, c.Temperature, shuffled)
	if err != nil {
		return nil, err
	}
	return &eval.Evaluator{Rollouter: rollouter, Scorer: r.scorer, Seed: r.Config.Seed, Samples: 1}, nil
}

// Play plays the first evaluation question greedily.
func (r *Run) Play(ctx context.Context) (*episode.Episode, error) {
	if len(r.Splits) == 0 || len(r.Splits[0].Questions) == 0 {
		return nil, errors.New("eval_data is empty: there is no question to play")
	}
	rollouter, err := r.rollouterWith(r.Searcher, 0, r.Config.ShufflePassages)
	if err != nil {
		return nil, err
	}
	played, err := rollouter.Rollout(ctx, r.Splits[0].Questions[:1], 1, agent.Seeds(r.Config.Seed, "play", 0))
	if err != nil {
		return nil, err
	}
	if len(played) == 0 {
		return nil, fmt.Errorf("question %s does not fit the context", r.Splits[0].Questions[0].ID)
	}
	r.scorer.Score(played)
	return played[0], nil
}

func (r *Run) step() int {
	if r.Trainer == nil {
		return r.evalStep
	}
	return r.Trainer.Step()
}

// moment plays and measures the policy as it is, and prints the episode.
func (r *Run) moment(ctx context.Context, title string) (m *Moment, err error) {
	m = &Moment{Step: r.step()}
	if m.Episode, err = r.Play(ctx); err != nil {
		return nil, err
	}
	for _, c := range Conditions(r.Config) {
		measured, err := r.Measure(ctx, c)
		if err != nil {
			return nil, err
		}
		m.Measured = append(m.Measured, measured)
	}
	r.clear()
	fmt.Fprintf(r.opts.Out, "\n%s\n    %s\n\n", title, strings.ReplaceAll(learn.Transcript(m.Episode), "\n", "\n    "))
	return m, nil
}

// clear takes the progress line off the terminal.
func (r *Run) clear() {
	if console, ok := r.opts.Reporter.(*learn.Console); ok {
		console.Clear()
	}
}

// showcasePath is the file of the showcase.
func (r *Run) showcasePath() string { return filepath.Join(r.Config.RunDir, ShowcaseName) }

// ReadShowcase reads the showcase of a run folder.
func ReadShowcase(runDir string) (*Showcase, error) {
	path := filepath.Join(runDir, ShowcaseName)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := &Showcase{}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func (r *Run) writeShowcase(s *Showcase) error {
	text, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	return atomicfile.Write(r.showcasePath(), append(text, '\n'))
}

// before opens the showcase. A run that goes on has its first half already.
func (r *Run) before(ctx context.Context) (*Showcase, error) {
	s, err := ReadShowcase(r.Config.RunDir)
	if err == nil && s.Before != nil && r.step() > 0 {
		return s, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	s = &Showcase{}
	title := "A question of the test world, answered before the training:"
	if s.Before, err = r.moment(ctx, title); err != nil {
		return nil, err
	}
	return s, r.writeShowcase(s)
}

// after finishes the showcase and prints it.
func (r *Run) after(ctx context.Context, s *Showcase) (err error) {
	if s.After, err = r.moment(ctx, fmt.Sprintf("The same question, answered after %d steps:", r.step())); err != nil {
		return err
	}
	if err := r.writeShowcase(s); err != nil {
		return err
	}
	fmt.Fprint(r.opts.Out, s.Table())
	fmt.Fprint(r.opts.Out, whatNext)
	return nil
}

// whatNext ends a showcase.
const whatNext = `next     other algorithms: --set algorithm=rloo --run_dir runs/rloo (dr_grpo, reinforce_pp, ppo, dapo, gspo …)
         harder questions: --config configs/quickstart_two_hop.yaml; sums: --config configs/quickstart_math.yaml
         what the loss mask is for: --set loss_mask=false --run_dir runs/unmasked
`

// Table is the showcase's measures as text.
func (s *Showcase) Table() string {
	var b strings.Builder
	row := func(name string, cells ...any) {
		fmt.Fprintf(&b, "%-28s"+strings.Repeat("%18s", len(cells))+"\n", append([]any{name}, cells...)...)
	}
	row("before -> after", "EM", "searches", "invalid actions")
	for i, after := range s.After.Measured {
		if i >= len(s.Before.Measured) {
			break
		}
		before := s.Before.Measured[i]
		row(after.Condition,
			fmt.Sprintf("%.1f -> %.1f %%", 100*before.EM, 100*after.EM),
			fmt.Sprintf("%.2f -> %.2f", before.Searches, after.Searches),
			fmt.Sprintf("%.1f -> %.1f %%", 100*before.Invalid, 100*after.Invalid))
	}
	if n := len(s.After.Measured); n > 0 {
		fmt.Fprintf(&b, "%d episodes in each line\n", s.After.Measured[0].Episodes)
	}
	return b.String()
}

// drawCurves draws the run's learning curves into its folder and, if the config names one, into a figure.
func (r *Run) drawCurves() error {
	if r.Config.Figure == config.NoFigure {
		return nil
	}
	metrics, err := learn.ReadMetrics(r.Config.RunDir)
	if err != nil {
		return err
	}
	run := report.Run{Name: filepath.Base(r.Config.RunDir), Metrics: metrics}
	paths := []string{filepath.Join(r.Config.RunDir, CurvesName)}
	if r.Config.Figure != "" {
		paths = append(paths, r.Config.Figure)
	}
	for _, path := range paths {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		title := fmt.Sprintf("%s: %s", run.Name, r.Config.Algorithm)
		err := report.SaveLearningCurves(path, title, report.DefaultPanels(), report.Series{Name: run.Name, Runs: []report.Run{run}})
		if err != nil {
			return fmt.Errorf("drawing the learning curves: %w", err)
		}
		fmt.Fprintf(r.opts.Out, "figure   %s\n", path)
	}
	return nil
}
