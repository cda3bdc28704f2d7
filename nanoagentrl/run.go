// Package nanoagentrl teaches a small language model to reason, call a search engine and answer, with reinforcement
// learning, and measures how reliable the result is. It is the façade that commands and notebooks use:
//
//	cfg, _, err := config.Open("configs/quickstart.yaml", nil)
//	run, err := nanoagentrl.Open(ctx, cfg, nanoagentrl.Options{Out: os.Stdout})
//	defer run.Close()
//	err = run.Train(ctx)
//
// The packages below it can be used by themselves; docs/architecture.md shows how they hang together.
package nanoagentrl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/eval"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/generate"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/learn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/policy"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/reward"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/world"
)

// Options are what a run needs beside its config.
type Options struct {
	// Out receives the first screen and the progress; nil drops them. Terminal says that a line of it can be
	// overwritten.
	Out      io.Writer
	Terminal bool
	// EvalOnly opens a run that only evaluates: nothing is written into the run folder, and no optimiser state or
	// reference is loaded. Checkpoint is then the model to evaluate: "base" for the config's own, "last" or "best" of
	// the run folder, or a checkpoint's folder.
	EvalOnly   bool
	Checkpoint string
	// Reporter replaces the progress lines on Out.
	Reporter learn.Reporter

	// Device is one that is open already, which the run leaves open; nil opens the config's backend. Runs one after the
	// other on one device use again what was compiled.
	Device *device.Device
}

// Run is an opened experiment: a policy, the data and the search engine, ready to train or to be evaluated.
type Run struct {
	Config   *config.Config
	Device   *device.Device
	Policy   *policy.Policy
	Searcher retrieve.Searcher
	Splits   []eval.Split
	// Trainer is nil in a run that only evaluates.
	Trainer *learn.Trainer

	opts      Options
	reference *policy.Policy
	optimizer *learn.AdamW
	critic    *learn.Critic
	prompter  *agent.Prompter
	scorer    *reward.Scorer
	generator *generate.Generator
	questions []data.Question
	corpus    []data.Passage
	facts     *world.Facts // made when first asked for
	search    searchState
	lock      *flock.Flock // of the run folder; nil in a run that only evaluates
	evalStep  int          // of the checkpoint that is evaluated
}

// Open loads everything a config names. Whatever is wrong with it is found here, before anything is written.
func Open(ctx context.Context, cfg *config.Config, opts Options) (_ *Run, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if opts.Out == nil {
		opts.Out = io.Discard
	}
	if opts.Reporter == nil {
		opts.Reporter = learn.NewConsole(opts.Out, opts.Terminal)
	}
	r := &Run{Config: cfg, opts: opts}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	if opts.Device != nil {
		r.Device = opts.Device
	} else if r.Device, err = device.Open(cfg.Backend); err != nil {
		return nil, err
	}
	fmt.Fprintf(opts.Out, "device   %s\n", r.Device)
	if err := r.openData(ctx); err != nil {
		return nil, err
	}
	if err := r.openSearch(ctx); err != nil {
		return nil, err
	}
	if err := r.openPolicy(ctx); err != nil {
		return nil, err
	}
	r.Policy.Describe(opts.Out)
	if err := r.checkPlan(); err != nil {
		return nil, err
	}
	if opts.EvalOnly {
		return r, r.finishEval(ctx)
	}
	return r, r.finishTrain(ctx)
}

// openData reads questions, evaluation splits and, if it is searched in process, the corpus. An evaluation does without
// the training questions, unless the vocabulary of a random model is made of them.
func (r *Run) openData(ctx context.Context) (err error) {
	cfg := r.Config
	if !r.opts.EvalOnly || cfg.Model == config.RandomModel {
		if r.questions, err = r.readQuestions(ctx, cfg.TrainData, "train", cfg.MaxTrainQuestions); err != nil {
			return fmt.Errorf("train_data: %w", err)
		}
	}
	if r.opts.EvalOnly && len(cfg.EvalData) == 0 {
		return errors.New("eval_data is empty: there is nothing to evaluate on")
	}
	names := cfg.EvalSplits()
	for i, path := range cfg.EvalData {
		questions, err := r.readQuestions(ctx, path, "test", cfg.MaxEvalQuestions)
		if err != nil {
			return fmt.Errorf("eval_data: %w", err)
		}
		r.Splits = append(r.Splits, eval.Split{Name: names[i], Questions: questions})
	}
	if r.needsCorpus() {
		if r.corpus, err = r.readCorpus(cfg.Corpus); err != nil {
			return fmt.Errorf("corpus: %w", err)
		}
	}
	var parts []string
	if !r.opts.EvalOnly {
		parts = append(parts, fmt.Sprintf("%d training questions from %s", len(r.questions), cfg.TrainData))
	}
	for _, s := range r.Splits {
		parts = append(parts, fmt.Sprintf("%d to evaluate from %s", len(s.Questions), s.Name))
	}
	fmt.Fprintf(r.opts.Out, "data     %s\n", strings.Join(parts, ", "))
	return nil
}

// openSearch builds the index, or makes sure that the search server answers.
func (r *Run) openSearch(ctx context.Context) error {
	cfg := r.Config
	switch {
	case cfg.Task != string(agent.TaskSearch):
		return nil
	case cfg.OpenSearchURL != "":
		return r.openCluster(ctx)
	case cfg.RetrieverURL == "":
		about, err := r.openInProcess(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(r.opts.Out, "search   %s from %s\n", about, cfg.Corpus)
		return nil
	}
	client, err := retrieve.NewClient(cfg.RetrieverURL, patience(cfg))
	if err != nil {
		return err
	}
	if err := client.Ping(ctx); err != nil {
		return err
	}
	r.Searcher = r.outlasting(client)
	fmt.Fprintf(r.opts.Out, "search   server at %s\n", cfg.RetrieverURL)
	return nil
}

// finishTrain builds the trainer, and resumes if the run folder holds a checkpoint.
func (r *Run) finishTrain(ctx context.Context) (err error) {
	cfg := r.Config
	r.optimizer = learn.NewAdamW(r.Device, len(r.Policy.Params.Names()), adamWOptions(cfg))
	if err := r.openCritic(); err != nil {
		return err
	}
	t := &learn.Trainer{Config: cfg, Optimizer: r.optimizer, Critic: r.critic, Scorer: r.scorer, Splits: r.Splits,
		Checkpoints: filepath.Join(cfg.RunDir, "checkpoints"), Report: r.opts.Reporter}
	if r.reference != nil {
		t.Reference = r.reference.ID
	}
	if t.Cursor, err = data.NewCursor(r.questions, cfg.Seed); err != nil {
		return err
	}
	if r.lock, err = lockRunDir(cfg.RunDir); err != nil {
		return err
	}
	if err := r.resume(ctx, t); err != nil {
		return err
	}
	t.Policy = r.Policy
	r.generator = r.Policy.Generator(cfg.RolloutBatch)
	if t.Rollouter, err = r.rollouter(cfg.Temperature); err != nil {
		return err
	}
	if t.Evaluator, err = r.evaluator(); err != nil {
		return err
	}
	if t.Learner, err = learn.NewLearner(r.Policy, r.reference, r.optimizer, learnOptions(cfg)); err != nil {
		return err
	}
	if r.critic != nil {
		t.Learner.UseCritic(r.critic)
	}
	if t.Log, err = learn.OpenRunLog(cfg.RunDir, t.Step()); err != nil {
		return err
	}
	missing, err := t.Log.Missing(t.Step())
	if err != nil {
		return err
	}
	if missing > 0 {
		fmt.Fprintf(r.opts.Out, "WARNING  %s lacks the lines of %d of the %d steps made before; curves will have gaps\n",
			filepath.Join(cfg.RunDir, learn.MetricsName), missing, t.Step())
	}
	if t.Step() >= cfg.Steps {
		more := "for a new one, give another --run_dir"
		if cfg.LRSchedule == "constant" { // with another one, the number of steps changes every step
			more = "for more, add --set steps=N, for a new one, another --run_dir"
		}
		fmt.Fprintf(r.opts.Out, "resume   this run is complete, all %d steps are done; %s\n", cfg.Steps, more)
	}
	if err := cfg.Save(filepath.Join(cfg.RunDir, "config.yaml")); err != nil {
		return err
	}
	r.Trainer = t
	fmt.Fprint(r.opts.Out, cfg.Summary())
	for _, warning := range cfg.Warnings() {
		fmt.Fprintf(r.opts.Out, "WARNING  %s\n", warning)
		r.opts.Reporter.Warn(t.Step(), warning)
	}
	return nil
}

// Train runs the training loop to its end, with what Config.Showcase adds before and after, and draws the learning
// curves; see learn.Trainer.Run for what happens when ctx ends. The same happens when the search server fails too often
// in a row; the error is then retrieve.ErrGaveUp.
func (r *Run) Train(ctx context.Context) error {
	if r.Trainer == nil {
		return errors.New("this run was opened for evaluation only")
	}
	return r.whileSearchable(ctx, r.train)
}

func (r *Run) train(ctx context.Context) (err error) {
	var show *Showcase
	if r.Config.Showcase {
		if show, err = r.before(ctx); err != nil {
			return err
		}
	}
	if err := r.Trainer.Run(ctx); err != nil {
		return err
	}
	if show != nil {
		if err := r.after(ctx, show); err != nil {
			return err
		}
	}
	return r.drawCurves()
}

// Evaluate plays all evaluation questions and returns the metrics of all splits.
func (r *Run) Evaluate(ctx context.Context) (all map[string]float64, err error) {
	err = r.whileSearchable(ctx, func(ctx context.Context) error {
		all, err = r.evaluate(ctx)
		return err
	})
	return all, err
}

func (r *Run) evaluate(ctx context.Context) (map[string]float64, error) {
	evaluator, err := r.evaluator()
	if err != nil {
		return nil, err
	}
	all := map[string]float64{}
	for _, split := range r.Splits {
		_, metrics, err := evaluator.Run(ctx, split, func(done, total int) {
			r.opts.Reporter.Phase(r.evalStep, 0, fmt.Sprintf("evaluating %s %d/%d", split.Name, done, total))
		})
		if err != nil {
			return nil, err
		}
		r.opts.Reporter.Eval(r.evalStep, split.Name, metrics)
		for name, value := range metrics {
			all[name] = value
		}
	}
	return eval.Mean(all, r.Splits), nil
}

// Close frees the weights and the device, and takes back the progress line.
func (r *Run) Close() {
	if console, ok := r.opts.Reporter.(*learn.Console); ok {
		console.Clear()
	}
	if r.optimizer != nil {
		r.optimizer.Free()
	}
	if r.critic != nil {
		r.critic.Free()
	}
	for _, p := range []*policy.Policy{r.Policy, r.reference} {
		if p != nil && p.Params != nil {
			p.Free()
		}
	}
	if r.Device != nil && r.opts.Device == nil {
		r.Device.Close()
	}
	r.search.close()
	if r.lock != nil {
		_ = r.lock.Unlock() // The end of the process would release it as well.
	}
}
