package anserini

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
)

// rounding is how far two scores may be apart: Anserini rounds to four decimals.
const rounding = 1.01e-4

// Comparison counts in what two engines agree on the questions of a data set.
type Comparison struct {
	// Questions are compared by their first K passages.
	Questions, K int
	// Equal is the number of questions with the same passages in the same order, Ties of those where only passages of
	// equal score differ, Other of the rest.
	Equal, Ties, Other int
	// Largest is the largest difference of the scores of a passage that both found.
	Largest float64
	// Differences are the questions of Ties and Other.
	Differences []Difference

	found []Vector
}

// Compare asks both engines the questions and compares their first k passages. Errors of either are returned.
func Compare(ctx context.Context, ours, theirs retrieve.Searcher, questions []string, k int) (*Comparison, error) {
	const beyond = 20 // more than are compared, to see which passages tie at the end of the list
	a, b := ours.Search(ctx, questions, k+beyond), theirs.Search(ctx, questions, k+beyond)
	c := &Comparison{Questions: len(questions), K: k}
	for i, question := range questions {
		if err := errors.Join(a[i].Err, b[i].Err); err != nil {
			return nil, err
		}
		c.add(question, a[i].Passages, b[i].Passages)
	}
	return c, nil
}

// CompareCorpus indexes a corpus with both engines and compares what they find for questions.
func (e *Engine) CompareCorpus(ctx context.Context, corpus string, questions []string, k int) (*Comparison, error) {
	passages, err := data.ReadCorpus(corpus)
	if err != nil {
		return nil, err
	}
	ours, err := retrieve.NewBM25(passages, retrieve.DefaultBM25())
	if err != nil {
		return nil, err
	}
	index, err := os.MkdirTemp("", "anserini")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(index)
	if err := e.Index(ctx, corpus, index); err != nil {
		return nil, err
	}
	address, stop, err := e.Serve(ctx, index, corpus)
	if err != nil {
		return nil, err
	}
	defer stop()
	theirs, err := retrieve.NewClient(address, retrieve.DefaultClient())
	if err != nil {
		return nil, err
	}
	return Compare(ctx, ours, theirs, questions, k)
}

// Hit is a passage and its score.
type Hit struct {
	ID    string  `json:"id"`
	Score float64 `json:"score"`
}

// Vector is what Anserini finds for a question, without ties.
type Vector struct {
	Set      string `json:"set,omitempty"`
	Question string `json:"question"`
	Hits     []Hit  `json:"hits"`
}

// Difference is a question on which the engines differ.
type Difference struct {
	Question string `json:"question"`
	// Reason is "ties" if passages of equal scores stand in another order or share the last place, else "scores" if a
	// score of a passage differs, which is a difference of the analysis, and "passages" if it is neither.
	Reason   string   `json:"reason"`
	Ours     []Hit    `json:"ours"`
	Anserini []Hit    `json:"anserini"`
	Terms    []string `json:"terms"` // of the question, as we analyse it
}

func hits(passages []episode.Passage, k int) []Hit {
	list := []Hit{}
	for _, p := range passages[:min(k, len(passages))] {
		list = append(list, Hit{p.ID, math.Round(1e4*p.Score) / 1e4})
	}
	return list
}

// add compares what both found for a question; the lists go beyond the k that are compared.
func (c *Comparison) add(question string, ours, theirs []episode.Passage) {
	a, b := hits(ours, c.K), hits(theirs, c.K)
	reason := differ(ours, theirs, c.K)
	for _, p := range ours[:len(a)] {
		if i := slices.IndexFunc(theirs, func(q episode.Passage) bool { return q.ID == p.ID }); i >= 0 {
			c.Largest = max(c.Largest, math.Abs(p.Score-theirs[i].Score))
		}
	}
	switch reason {
	case "":
		c.Equal++
		if !tied(ours, c.K) {
			c.found = append(c.found, Vector{Question: question, Hits: b})
		}
		return
	case "ties":
		c.Ties++
	default:
		c.Other++
	}
	c.Differences = append(c.Differences, Difference{question, reason, a, b, retrieve.Analyze(question)})
}

// differ says in what two lists differ in their first k passages; "" if they do not.
func differ(ours, theirs []episode.Passage, k int) string {
	n := min(k, len(ours))
	same := n == min(k, len(theirs))
	scores, ties := !same, true
	for i := 0; i < n && i < len(theirs); i++ {
		same = same && ours[i].ID == theirs[i].ID
		scores = scores || math.Abs(ours[i].Score-theirs[i].Score) > rounding
		// Another passage at a place is a tie if both engines give it and ours the same score.
		at := slices.IndexFunc(ours, func(p episode.Passage) bool { return p.ID == theirs[i].ID })
		ties = ties && at >= 0 && math.Abs(ours[at].Score-ours[i].Score) <= rounding
	}
	switch {
	case scores:
		return "scores"
	case same:
		return ""
	case ties:
		return "ties"
	}
	return "passages"
}

// tied reports whether two of the first k passages, or the last of them and the next, have scores too close to tell.
func tied(passages []episode.Passage, k int) bool {
	for i := 1; i < len(passages) && i <= k; i++ {
		if passages[i-1].Score-passages[i].Score <= rounding {
			return true
		}
	}
	return len(passages) < k
}

// Write writes the differences as JSON lines.
func (c *Comparison) Write(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	lines := json.NewEncoder(file)
	for _, d := range c.Differences {
		if err := lines.Encode(d); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
		}
	}
	return file.Close()
}

// Vectors returns what Anserini found for n of the equal questions without ties, spread over all.
func (c *Comparison) Vectors(set string, n int) []Vector {
	var list []Vector
	for i := range min(n, len(c.found)) {
		v := c.found[i*len(c.found)/min(n, len(c.found))]
		v.Set = set
		list = append(list, v)
	}
	return list
}
