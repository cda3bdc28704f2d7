package scalemcp

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
)

var domains = []string{"travel", "finance", "research", "ops", "shopping", "support"}

var tools = []string{"search", "calculator", "calendar", "maps", "weather", "mail", "database", "spreadsheet", "code",
	"browser", "files", "terminal"}

const (
	arrow = "->"
	// minNonce and maxNonce are the least and the largest number of a case.
	minNonce, maxNonce = 100, 998
	// variants is the number of answers of a domain.
	variants = 17
	// distractors is the number of passages that hold a wrong answer.
	distractors = 3
	// minDepth and depths say that depths go from minDepth to minDepth + depths - 1.
	minDepth, depths = 2, 3
)

// Task is one task of the benchmark.
type Task struct {
	// Number counts the tasks from 0.
	Number int
	Domain string
	// Depth is the number of steps of the required plan.
	Depth int
	// Nonce is the number of the case that the task asks for.
	Nonce  int
	Answer string
	// Plan is the required plan, steps of the form "tool:domain".
	Plan []string
	// Distractors are wrong answers that stand in the context.
	Distractors []string
}

// Tasks returns n tasks. Only the nonces and the distractors are drawn, and the five figures do not depend on them.
func Tasks(n int, seed uint64) []Task {
	rng := rand.New(rand.NewPCG(seed, 0))
	tasks := make([]Task, n)
	for i := range tasks {
		t := Task{Number: i, Domain: domains[i%len(domains)], Depth: minDepth + i%depths}
		t.Nonce = minNonce + rng.IntN(maxNonce-minNonce+1)
		t.Answer = label(t.Domain, t.Nonce%variants)
		for o := range t.Depth {
			t.Plan = append(t.Plan, step(tools[(3*i+5*o)%len(tools)], t.Domain))
		}
		for range distractors {
			other := domains[(i+1+rng.IntN(len(domains)-1))%len(domains)]
			t.Distractors = append(t.Distractors, label(other, rng.IntN(variants)))
		}
		tasks[i] = t
	}
	return tasks
}

func label(domain string, variant int) string { return fmt.Sprintf("%s-%d", domain, variant) }

func step(tool, domain string) string { return tool + ":" + domain }

// Searches returns how many searches the task needs to see its whole context.
func (t *Task) Searches() int { return max(1, t.Depth-1) }

// Question returns the task as a row of data. Its text names task, case, domain and depth, and nothing of the answer.
func (t *Task) Question() data.Question {
	return data.Question{
		ID: fmt.Sprintf("scalemcp-%d", t.Number), Source: "scalemcp-mini", Answers: []string{t.Answer},
		Text: fmt.Sprintf("task %d : resolve case %d for %s in %d steps", t.Number, t.Nonce, t.Domain, t.Depth),
	}
}

// Query returns the query of a search, counted from 0.
func (t *Task) Query(search int) string { return query(t.Number, t.Nonce, search) }

func query(task, nonce, search int) string {
	return fmt.Sprintf("task %d case %d part %d", task, nonce, search+1)
}

// Context returns the passages of the task, 9 + 2·Depth words without their titles: the line that resolves the case
// (6 words), the distractors (3), and the line of the workflow (1 + 2·Depth - 1).
func (t *Task) Context() []episode.Passage {
	passages := []episode.Passage{t.passage("case", fmt.Sprintf("the case %d resolves to %s", t.Nonce, t.Answer))}
	for _, wrong := range t.Distractors {
		passages = append(passages, t.passage("note", wrong))
	}
	return append(passages, t.passage("workflow", "workflow "+strings.Join(t.Plan, " "+arrow+" ")))
}

func (t *Task) passage(title, text string) episode.Passage {
	return episode.Passage{ID: fmt.Sprintf("%d-%s", t.Number, title), Contents: fmt.Sprintf("%q\n%s", title, text)}
}

// Part returns the passages that a search, counted from 0, finds. Together the searches of the task find each passage
// of the context once.
func (t *Task) Part(search int) []episode.Passage {
	all, n := t.Context(), t.Searches()
	return all[len(all)*search/n : len(all)*(search+1)/n]
}
