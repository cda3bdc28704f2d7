package ablation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/learn"
)

// RunOptions say how a grid is run.
type RunOptions struct {
	// Parallel is the number of runs at a time, at least 1. Each has a device of its own, which uses all cores.
	Parallel int
	// Out receives the progress; nil drops it. Terminal says that a line of it can be overwritten there.
	Out      io.Writer
	Terminal bool

	// train replaces what trains a cell, in tests.
	train func(ctx context.Context, cell *Cell, report learn.Reporter) (*Result, error)
}

// Failure is a run that ended with an error.
type Failure struct {
	Cell *Cell
	Err  error
}

// Outcome tells what became of the runs that were to be made: those that were complete before, those that equal runs
// were there for, those that were made, those that failed. What is left was interrupted.
type Outcome struct {
	Complete, Copied, Trained, Skipped int
	Failures                           []Failure
}

// Run makes the runs that are not complete, or goes on with them, Parallel at a time. A run that fails does not stop
// the others. When ctx ends, the runs under way save their last whole step and stop, and the error wraps ctx.Err(); the
// outcome then tells of those that were done. A folder with other settings is found before the first run begins.
func (g *Grid) Run(ctx context.Context, opts RunOptions) (*Outcome, error) {
	if opts.Out == nil {
		opts.Out = io.Discard
	}
	if opts.train == nil {
		opts.train = train
	}
	todo, outcome, err := g.plan()
	if err != nil {
		return nil, err
	}
	devices := &pool{}
	defer devices.close()
	for _, cell := range todo {
		cell.devices = devices
	}
	board := newBoard(g, todo, opts)
	board.begin(outcome)
	next := make(chan *Cell)
	var workers sync.WaitGroup
	for range max(1, opts.Parallel) {
		workers.Go(func() {
			for cell := range next {
				g.one(ctx, cell, board, outcome, opts)
			}
		})
	}
	for _, cell := range todo {
		if ctx.Err() != nil {
			break
		}
		select {
		case next <- cell:
		case <-ctx.Done():
		}
	}
	close(next)
	workers.Wait()
	board.end()
	if err := ctx.Err(); err != nil {
		return outcome, fmt.Errorf("suite %s: %w", g.Suite.Name, err)
	}
	return outcome, nil
}

// plan returns the runs that are to be made.
func (g *Grid) plan() (todo []*Cell, outcome *Outcome, err error) {
	outcome = &Outcome{}
	var faults []error
	for _, cell := range g.Cells {
		p, err := cell.Progress()
		switch {
		case err != nil && !cell.Skip:
			faults = append(faults, err)
		case p.Result != nil:
			outcome.Complete++
		case cell.Skip:
			outcome.Skipped++
		default:
			todo = append(todo, cell)
		}
	}
	return todo, outcome, errors.Join(faults...)
}

// one makes a run and tells the board and the outcome.
func (g *Grid) one(ctx context.Context, cell *Cell, board *board, outcome *Outcome, opts RunOptions) {
	if ctx.Err() != nil {
		return
	}
	result, err := g.reuse(cell)
	copied := result != nil && err == nil
	if result == nil && err == nil {
		result, err = opts.train(ctx, cell, board.reporter(cell))
	}
	board.mu.Lock()
	defer board.mu.Unlock()
	switch {
	case err != nil && errors.Is(err, context.Canceled) && ctx.Err() != nil:
		board.drop(cell)
	case err != nil:
		outcome.Failures = append(outcome.Failures, Failure{cell, err})
		board.failed(cell, err)
	case copied:
		outcome.Copied++
		board.done(cell, result)
	default:
		outcome.Trained++
		board.done(cell, result)
	}
}

// train makes a run, or goes on with it. What it prints goes into its folder. A panic of graph code is an error of this
// run alone, whose device is not used again.
func train(ctx context.Context, cell *Cell, report learn.Reporter) (result *Result, err error) {
	if err := cell.begin(); err != nil {
		return nil, err
	}
	log, err := cell.logFile()
	if err != nil {
		return nil, fmt.Errorf("run folder: %w", err)
	}
	defer log.Close()
	defer func() {
		if fault := recover(); fault != nil {
			fmt.Fprintf(log, "panic: %v\n%s", fault, debug.Stack())
			err = fmt.Errorf("panic: %v", fault)
		}
		if err != nil {
			fmt.Fprintf(log, "ended with: %v\n", err)
		}
	}()
	if c, ok := report.(*cellReporter); ok {
		c.Console = learn.NewConsole(log, false)
	}
	dev, err := cell.devices.take(cell.Config.Backend)
	if err != nil {
		return nil, err
	}
	err = trainOn(ctx, dev, cell.Config, log, report)
	cell.devices.give(cell.Config.Backend, dev)
	if err != nil {
		return nil, err
	}
	name, _, _ := strings.Cut(dev.String(), " (")
	return cell.finish(name)
}

func trainOn(ctx context.Context, dev *device.Device, cfg *config.Config, log io.Writer, report learn.Reporter) error {
	run, err := nanoagentrl.Open(ctx, cfg, nanoagentrl.Options{Device: dev, Out: log, Reporter: report})
	if err != nil {
		return err
	}
	defer run.Close()
	return run.Train(ctx)
}
