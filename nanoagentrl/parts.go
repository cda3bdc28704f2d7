package nanoagentrl

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/eval"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/policy"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/weights"
)

// The sizes and seeds of the worlds made in memory. Training and evaluation share the people, so a tiny run shows that
// everything works, not that anything generalises.
const (
	tinyPeople = 48
	tinySums   = 200
	tinySeed   = 1
)

// readQuestions reads at most limit questions (0: all) of a split from a file or folder, or makes them.
func (r *Run) readQuestions(ctx context.Context, path, split string, limit int) (questions []data.Question, err error) {
	world, worldSplit, isWorld := config.WorldSplit(path)
	switch {
	case isWorld:
		questions, err = r.worldQuestions(world, worldSplit)
	case path != config.Tiny:
		questions, err = r.readNamed(ctx, path, split)
	case r.Config.Task == string(agent.TaskGSM8K):
		questions = data.TinyMath(tinySeed, tinySums)
	default:
		_, questions = data.TinyWorld(tinySeed, tinyPeople)
	}
	if err != nil {
		return nil, err
	}
	if limit > 0 && limit < len(questions) {
		questions = questions[:limit]
	}
	return questions, nil
}

func (r *Run) readCorpus(path string) ([]data.Passage, error) {
	switch path {
	case config.Tiny:
		corpus, _ := data.TinyWorld(tinySeed, tinyPeople)
		return corpus, nil
	case config.WorldFacts:
		facts, err := r.worldFacts()
		if err != nil {
			return nil, err
		}
		return facts.Corpus, nil
	}
	path, err := r.places().Corpus(path)
	if err != nil {
		return nil, err
	}
	return data.ReadCorpus(path)
}

// patience says how long a search server is waited for.
func patience(cfg *config.Config) retrieve.ClientOptions {
	opts := retrieve.DefaultClient()
	opts.Timeout = time.Duration(cfg.RetrieverTimeoutSec * float64(time.Second))
	opts.Retries = cfg.RetrieverRetries
	if opts.Retries == 0 {
		opts.Retries = -1 // none
	}
	return opts
}

// openPolicy loads the policy, the frozen reference if there is a KL penalty, and what belongs to them.
func (r *Run) openPolicy(ctx context.Context) (err error) {
	cfg := r.Config
	if r.scorer, err = newScorer(cfg); err != nil {
		return err
	}
	if r.Policy, err = r.loadModel(ctx, cfg.Model); err != nil {
		return err
	}
	r.Policy.Program.SetKeepBudget(int(cfg.ActivationGB * 1e9))
	template, err := r.Policy.ChatTemplate(cfg.ChatTemplate)
	if err != nil {
		return err
	}
	if r.prompter, err = newPrompter(cfg, template); err != nil {
		return err
	}
	if cfg.KLCoef == 0 || r.opts.EvalOnly {
		return nil
	}
	ref := cfg.Reference
	if ref == "base" {
		ref = cfg.Model
	}
	switch {
	case ref == config.RandomModel && cfg.Model != ref:
		err = fmt.Errorf("%q goes only with the same model", ref)
	case ref == config.RandomModel:
		r.reference, err = r.loadModel(ctx, ref)
	default:
		r.reference, err = r.Policy.WithWeights(ctx, ref, r.policyOptions())
	}
	if err != nil {
		return fmt.Errorf("reference: %w", err)
	}
	r.reference.Program = r.Policy.Program // the same graphs, compiled once
	r.reference.Params.Freeze()
	return nil
}

func newPrompter(cfg *config.Config, template agent.Template) (*agent.Prompter, error) {
	return agent.NewPrompter(agent.Task(cfg.Task), cfg.SystemPrompt, cfg.UserPrompt, cfg.PromptSource == "row", template)
}

func (r *Run) policyOptions() policy.Options {
	dtype, _ := policy.ParseDType(r.Config.DType) // Validate knows the names.
	hub := weights.HubOptions{Offline: r.Config.Offline, Warn: func(message string) { fmt.Fprintln(r.opts.Out, message) }}
	if r.opts.Terminal {
		hub.Progress = weights.TerminalProgress(r.opts.Out)
	}
	return policy.Options{DType: dtype, Hub: hub}
}

func (r *Run) loadModel(ctx context.Context, name string) (*policy.Policy, error) {
	opts := r.policyOptions()
	if name != config.RandomModel {
		return policy.Load(ctx, r.Device, name, opts)
	}
	cfg := r.Config
	prompter, err := newPrompter(cfg, nil)
	if err != nil {
		return nil, err
	}
	lists := [][]data.Question{r.questions}
	for _, s := range r.Splits {
		lists = append(lists, s.Questions)
	}
	tok, err := vocabularyFor(prompter, r.corpus, lists...)
	if err != nil {
		return nil, err
	}
	p, err := policy.Random(r.Device, nn.Config{
		ModelType: "qwen2", HiddenSize: cfg.RandomHidden, IntermediateSize: cfg.RandomIntermediate,
		NumLayers: cfg.RandomLayers, NumHeads: cfg.RandomHeads, NumKVHeads: cfg.RandomKVHeads,
		HeadDim: cfg.RandomHidden / cfg.RandomHeads, MaxPositions: max(cfg.MaxContext, 1024), RopeTheta: 10000,
		NormEps: 1e-6, AttentionBias: true, BOS: -1, Pad: -1,
	}, tok, opts.DType, cfg.Seed)
	if err != nil {
		return nil, err
	}
	asks, err := lastTokens(prompter, tok, r.questions)
	if err != nil {
		p.Free()
		return nil, err
	}
	if err := teach(p, habitsFor(agent.Task(cfg.Task), tok, asks, r.corpus, slices.Concat(lists...))); err != nil {
		p.Free()
		return nil, err
	}
	return p, nil
}

// lastTokens returns the last tokens of the prompts and of what the environment says: those that the policy continues.
func lastTokens(prompter *agent.Prompter, tok tokenizer.Tokenizer, questions []data.Question) (ids []int, err error) {
	texts := []string{agent.Correction, agent.Observation(nil)}
	for _, q := range questions {
		text, err := prompter.Render(q)
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	seen := map[int]bool{}
	for _, text := range texts {
		if all := tok.Encode(text); len(all) > 0 && !seen[all[len(all)-1]] {
			seen[all[len(all)-1]] = true
			ids = append(ids, all[len(all)-1])
		}
	}
	return ids, nil
}

// rollouter returns a rollouter that samples at a temperature and is else as the config says.
func (r *Run) rollouter(temperature float64) (*agent.Rollouter, error) {
	return r.rollouterWith(r.Searcher, temperature, r.Config.ShufflePassages)
}

func (r *Run) rollouterWith(searcher retrieve.Searcher, temperature float64, shuffled bool) (*agent.Rollouter, error) {
	cfg := r.Config
	limit, err := cfg.ContextFor(r.Policy.Program.Config().MaxPositions)
	if err != nil {
		return nil, err
	}
	return agent.New(r.Policy.Tokenizer, r.generator, searcher, r.prompter, agent.Options{
		Task: agent.Task(cfg.Task), Temperature: temperature, MaxTurns: cfg.MaxTurns, MaxNewTokens: cfg.MaxNewTokens,
		MaxTurnTokens: cfg.MaxTurnTokens, TopK: cfg.TopK, MaxObsTokens: cfg.MaxObsTokens, MaxContext: limit,
		ShufflePassages: shuffled, Batch: cfg.RolloutBatch, SkipLong: cfg.LongPrompt == "skip",
	})
}

func (r *Run) evaluator() (*eval.Evaluator, error) {
	rollouter, err := r.rollouter(r.Config.EvalTemperature)
	if err != nil {
		return nil, err
	}
	return &eval.Evaluator{Rollouter: rollouter, Scorer: r.scorer, Seed: r.Config.Seed, Samples: r.Config.EvalSamples}, nil
}
