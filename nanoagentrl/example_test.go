package nanoagentrl_test

import (
	"context"
	"fmt"
	"os"

	"github.com/janpfeifer/must"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
)

// A run from a config file: train, then evaluate. A pretrained model trains with the same lines; only the config
// differs.
func Example() {
	ctx := context.Background()
	dir := must.M1(os.MkdirTemp("", "nanoagentrl-example-"))
	defer os.RemoveAll(dir)

	cfg, _ := must.M2(config.Open("../configs/quickstart.yaml", []string{"run_dir=" + dir, "backend=go", "steps=2",
		"prompts_per_step=2", "group_size=2", "max_eval_questions=4", "eval_at_start=false", "showcase=false",
		"model=../configs/warmstart_facts", "figure=none"}))
	run := must.M1(nanoagentrl.Open(ctx, cfg, nanoagentrl.Options{})) // Options.Out would show the progress.
	defer run.Close()
	must.M(run.Train(ctx))
	metrics := must.M1(run.Evaluate(ctx))
	_, measured := metrics["eval/em"]
	fmt.Printf("%d steps, evaluated on %d questions: %v\n", run.Trainer.Step(), len(run.Splits[0].Questions), measured)
	// Output:
	// 2 steps, evaluated on 4 questions: true
}

// One training step, written out. Run.Train repeats it, with logs, evaluations and checkpoints around it.
func Example_step() {
	ctx := context.Background()
	dir := must.M1(os.MkdirTemp("", "nanoagentrl-example-"))
	defer os.RemoveAll(dir)

	cfg, _ := must.M2(config.Open("../configs/quickstart.yaml", []string{"run_dir=" + dir, "backend=go",
		"model=../configs/warmstart_facts", "kl_coef=0.001"}))
	run := must.M1(nanoagentrl.Open(ctx, cfg, nanoagentrl.Options{}))
	defer run.Close()

	t := run.Trainer
	questions := t.Cursor.Next(2)
	episodes := must.M1(t.Rollouter.Rollout(ctx, questions, 3, agent.Seeds(cfg.Seed, "train", 1))) // 3 for each question
	t.Scorer.Score(episodes)
	stats := must.M1(t.Learner.Update(ctx, episodes, cfg.LR)) // advantages, loss, gradient, AdamW

	fmt.Printf("%d episodes; the first asks: %s\n", len(episodes), episodes[0].Question)
	sampled := 0
	for _, e := range episodes {
		sampled += e.CountTokens(episode.Policy)
	}
	fmt.Println("trained on what the policy wrote, and nothing else:", stats["train/trained_tokens"] == float64(sampled))
	// Output:
	// 6 episodes; the first asks: what is the trade of Dan Birch ?
	// trained on what the policy wrote, and nothing else: true
}
