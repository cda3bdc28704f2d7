package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/grpo"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/learn"
)

// grpoStep times one GRPO step on sums, with the number of digits in the answer as the reward and no KL penalty, as the
// Python peer does it: 4 prompts, 8 samples each, at most 64 new tokens.
func grpoStep(b *bench) (map[string]any, error) {
	const prompts, samples, fresh = 4, 8, 64
	var questions []data.Question
	for i := range 16 {
		questions = append(questions, data.Question{ID: fmt.Sprint(i), Source: "digits",
			Text: fmt.Sprintf("What is %d + %d? Think briefly, then answer with a number.", i, i+3)})
	}
	template, err := b.policy.ChatTemplate("auto")
	if err != nil {
		return nil, err
	}
	prompter, err := agent.NewPrompter(agent.TaskGSM8K, "", "{question}", false, template)
	if err != nil {
		return nil, err
	}
	rollouter, err := agent.New(b.policy.Tokenizer, b.policy.Generator(prompts*samples), nil, prompter, agent.Options{
		Task: agent.TaskGSM8K, Temperature: 1, MaxNewTokens: fresh, MaxContext: 512})
	if err != nil {
		return nil, err
	}
	optimizer := newOptimizer(b.policy)
	defer optimizer.Free()
	learner, err := learn.NewLearner(b.policy, nil, optimizer, learn.Options{
		Advantage: grpo.DefaultAdvantageOptions(), Loss: grpo.LossOptions{ClipLow: 0.2, ClipHigh: 0.2},
		Aggregation: grpo.TokenMean, Temperature: 1, InnerEpochs: 1, Minibatches: 1, MicroBatchTokens: 4096})
	if err != nil {
		return nil, err
	}
	ctx, step, tokens := context.Background(), 0, 0
	t, err := b.best(func() error {
		step++
		first := (step - 1) * prompts % len(questions)
		episodes, err := rollouter.Rollout(ctx, questions[first:first+prompts], samples, agent.Seeds(0, "bench", step))
		if err != nil {
			return err
		}
		tokens = 0
		for _, e := range episodes {
			for _, c := range strings.Split(e.Turns[0].Text, "") {
				if c >= "0" && c <= "9" {
					e.Reward += 0.1
				}
			}
			tokens += e.Turns[0].End - e.Turns[0].Begin
		}
		_, err = learner.Update(ctx, episodes, 1e-6)
		return err
	})
	return map[string]any{"step_s": t, "completion_tokens": tokens}, err
}
