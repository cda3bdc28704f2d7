package scalemcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
)

// Run plays the tasks with a method and counts the figures. The seed also fixes what the baselines guess.
func Run(ctx context.Context, method Method, tasks []Task, seed uint64) (*Figures, error) {
	episodes, err := Play(ctx, method, tasks, seed)
	if err != nil {
		return nil, err
	}
	return Count(tasks, episodes)
}

// Play plays each task once, through agent.Rollouter, and returns the episodes in the order of the tasks.
func Play(ctx context.Context, method Method, tasks []Task, seed uint64) ([]*episode.Episode, error) {
	if err := method.Validate(); err != nil {
		return nil, err
	}
	if len(tasks) == 0 {
		return nil, errors.New("scalemcp: there are no tasks; at least 1 episode is needed")
	}
	tok, err := vocabulary(tasks)
	if err != nil {
		return nil, fmt.Errorf("scalemcp: %w", err)
	}
	rollouter, err := agent.New(tok, &sampler{method, tok}, &searcher{tasks}, &agent.Prompter{User: "{question}"},
		agent.Options{Task: agent.TaskSearch, Temperature: 1, MaxTurns: minDepth + depths - 1, MaxNewTokens: 256,
			TopK: distractors + 2, MaxObsTokens: 128, MaxContext: 1024})
	if err != nil {
		return nil, fmt.Errorf("scalemcp: %w", err)
	}
	questions := make([]data.Question, len(tasks))
	for i := range tasks {
		questions[i] = tasks[i].Question()
	}
	episodes, err := rollouter.Rollout(ctx, questions, 1, agent.Seeds(seed, "eval/scalemcp-mini", 0))
	if err != nil {
		return nil, fmt.Errorf("scalemcp: %w", err)
	}
	if err := rollouter.SearchError(); err != nil {
		return nil, fmt.Errorf("scalemcp: search: %w", err)
	}
	return episodes, nil
}

// searcher finds the part of a task's context that a query asks for.
type searcher struct{ tasks []Task }

// Search implements retrieve.Searcher. A query for a case that its task does not have finds nothing.
func (s *searcher) Search(ctx context.Context, queries []string, topk int) []retrieve.Result {
	results := make([]retrieve.Result, len(queries))
	for i, q := range queries {
		var task, nonce, part int
		if _, err := fmt.Sscanf(q, "task %d case %d part %d", &task, &nonce, &part); err != nil {
			results[i].Err = fmt.Errorf("query %q: %w", q, err)
			continue
		}
		if task < 0 || task >= len(s.tasks) || s.tasks[task].Nonce != nonce || part < 1 ||
			part > s.tasks[task].Searches() {
			continue
		}
		passages := s.tasks[task].Part(part - 1)
		results[i].Passages = passages[:min(topk, len(passages))]
	}
	return results
}

// vocabulary returns a tokenizer of whole words that knows everything that is written in the tasks' episodes, so that a
// word is a token.
func vocabulary(tasks []Task) (*tokenizer.Words, error) {
	special := []string{tokenizer.WordUnk, tokenizer.WordEOS}
	words := []string{"<think>", "</think>", "<search>", "</search>", "<information>", "</information>", "<answer>",
		"</answer>"}
	var texts strings.Builder
	for i := range tasks {
		t := &tasks[i]
		fmt.Fprintln(&texts, t.Question().Text)
		for search := range t.Searches() {
			fmt.Fprintln(&texts, t.Query(search), agent.Observation(t.Part(search)))
		}
	}
	for _, domain := range domains {
		for _, tool := range tools {
			fmt.Fprintln(&texts, step(tool, domain))
		}
		for variant := range variants {
			fmt.Fprintln(&texts, label(domain, variant))
		}
	}
	spaced := strings.NewReplacer("<", " <", ">", "> ")
	known := map[string]bool{arrow: true, "workflow": true}
	for _, word := range strings.Fields(spaced.Replace(texts.String())) {
		known[word] = true
	}
	for _, word := range words {
		delete(known, word)
	}
	rest := make([]string, 0, len(known))
	for word := range known {
		rest = append(rest, word)
	}
	slices.Sort(rest)
	return tokenizer.NewWords(slices.Concat(special, words, rest))
}
