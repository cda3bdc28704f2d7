package ablation

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
)

// GridOptions are what the user says about a suite beside its file.
type GridOptions struct {
	// Out is the folder of all suites' runs.
	Out string
	// Seeds is the number of seeds; 0 takes the suite's.
	Seeds int
	// Only names the variants to train; empty means all. The others still count in results if they are complete.
	Only []string
	// Set are further overrides for all runs. They may not touch what the variants vary.
	Set []string
	// Tiny replaces model and data by a tiny untrained model and the tiny world, and makes two short steps on pure Go:
	// a try of the machinery, whose numbers mean nothing.
	Tiny bool
}

// Cell is one run of a grid.
type Cell struct {
	Variant string
	Seed    int
	Config  *config.Config
	// Skip says that this run is not to be trained.
	Skip bool
	// settings are what the run must have been made with to count.
	settings map[string]string
	// devices lends what the run is made on.
	devices *pool
}

// Name is how the run is called in messages.
func (c *Cell) Name() string { return fmt.Sprintf("%s seed %d", c.Variant, c.Seed) }

// Grid is the runs of a suite, each variant with each seed.
type Grid struct {
	Suite *Suite
	// Dir is the folder of the suite's runs, Set and Seeds what the options said of them.
	Dir   string
	Set   []string
	Seeds int
	// Cells are ordered by seed and then as the variants are, so that an unfinished grid can already be compared.
	Cells []*Cell
	// root is the folder of all suites.
	root string
}

// Grid resolves the settings of all runs. Whatever is wrong with any of them is found here.
func (s *Suite) Grid(opts GridOptions) (*Grid, error) {
	g := &Grid{Suite: s, Dir: filepath.Join(opts.Out, s.Name), Set: opts.Set, Seeds: s.Seeds, root: opts.Out}
	if opts.Seeds != 0 {
		g.Seeds = opts.Seeds
	}
	if err := s.checkOptions(opts); err != nil {
		return nil, err
	}
	var faults []error
	configs := make([]*config.Config, len(s.Variants))
	for i, v := range s.Variants {
		overrides := slices.Concat(s.Set, v.Set, opts.Set, []string{"showcase=true", "figure=" + config.NoFigure})
		c, _, err := config.Open(s.Base, overrides)
		if err == nil && len(c.EvalData) == 0 {
			err = errors.New("eval_data is empty: there is nothing to measure the variants on")
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("suite %s, variant %s: %w", s.Path, v.Name, err))
		}
		configs[i] = c
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if err := s.checkDistinct(configs); err != nil {
		return nil, err
	}
	for seed := 1; seed <= g.Seeds; seed++ {
		for i, v := range s.Variants {
			g.Cells = append(g.Cells, g.cell(v.Name, seed, *configs[i], opts))
		}
	}
	hashes := map[string]string{}
	for _, cell := range g.Cells {
		if err := cell.settle(hashes); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// cell returns a run with its own config.
func (g *Grid) cell(variant string, seed int, c config.Config, opts GridOptions) *Cell {
	if opts.Tiny {
		shrink(&c)
	}
	c.Seed = uint64(seed)
	c.RunDir = filepath.Join(g.Dir, variant, "seed-"+strconv.Itoa(seed))
	return &Cell{Variant: variant, Seed: seed, Config: &c,
		Skip: len(opts.Only) > 0 && !slices.Contains(opts.Only, variant)}
}

func (s *Suite) checkOptions(opts GridOptions) error {
	var faults []error
	for _, name := range opts.Only {
		if !slices.Contains(s.names(), name) {
			faults = append(faults, fmt.Errorf("suite %s has no variant %q; it has %s", s.Name, name,
				strings.Join(s.names(), ", ")))
		}
	}
	if opts.Seeds < 0 || opts.Seeds > 100 {
		faults = append(faults, fmt.Errorf("got %d seeds, want 1 to 100", opts.Seeds))
	}
	keys, err := keysOf(opts.Set)
	if err != nil {
		faults = append(faults, fmt.Errorf("--set: %w", err))
	}
	for _, key := range keys {
		if slices.Contains(s.varied(), key) {
			faults = append(faults, fmt.Errorf("--set %s: the suite %s varies it, so it cannot be the same in all runs",
				key, s.Name))
		}
	}
	return errors.Join(faults...)
}

// checkDistinct refuses variants whose runs would be the same.
func (s *Suite) checkDistinct(configs []*config.Config) error {
	var faults []error
	for i, c := range configs {
		for j, other := range configs[:i] {
			if c.Hash() == other.Hash() && c.Steps == other.Steps {
				faults = append(faults, fmt.Errorf("suite %s: variants %s and %s are the same run: their settings do not differ",
					s.Path, s.Variants[j].Name, s.Variants[i].Name))
			}
		}
	}
	return errors.Join(faults...)
}

// shrink makes a config one of a run of a second, and leaves what variants tend to vary.
func shrink(c *config.Config) {
	c.Backend, c.DType, c.Model, c.Reference, c.Offline = "go", "f32", config.RandomModel, "base", true
	c.RandomLayers, c.RandomHidden, c.RandomHeads, c.RandomKVHeads, c.RandomIntermediate = 1, 16, 2, 1, 16
	c.TrainData, c.EvalData, c.Corpus, c.RetrieverURL = config.Tiny, []string{config.Tiny}, config.Tiny, ""
	c.PromptSource, c.ChatTemplate, c.SystemPrompt, c.UserPrompt = "config", "never", "", config.QuestionMark
	c.PromptsPerStep, c.GroupSize = 2*c.Minibatches, min(c.GroupSize, 4)
	c.MaxNewTokens, c.MaxTurnTokens, c.MaxObsTokens = 24, 8, 48
	c.OverlongBuffer = min(c.OverlongBuffer, c.MaxNewTokens)
	c.MaxContext = 512
	c.Steps, c.WarmupSteps, c.LR = 2, min(c.WarmupSteps, 1), 1e-3
	c.EvalEvery, c.MaxEvalQuestions, c.SaveEvery, c.SampleEvery = 1, 4, 1, 0
}
