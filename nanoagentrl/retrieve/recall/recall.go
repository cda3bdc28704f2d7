// Package recall measures what a search engine finds for questions, as they stand and for the queries that an agent
// wrote: was it the retriever or the policy?
package recall

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/reward"
)

// Attempt is what was asked for one question: the question itself, or the queries of one episode in their order. An
// attempt without queries finds nothing.
type Attempt struct {
	Queries []string
	// Found holds the passages of each query, best first.
	Found [][]episode.Passage
	// goldRanks are the best ranks, over the queries, of the gold passages, answerRank that of a passage with an answer,
	// counted from 1; 0 if there is none.
	goldRanks  []int
	answerRank int
}

// Outcome is a question with what was found for it.
type Outcome struct {
	Question data.Question
	// Raw asks the question as it stands. Agent holds an attempt for each recorded episode; none if there is no record.
	Raw   Attempt
	Agent []Attempt
}

// batch is the number of queries that are searched in one call.
const batch = 256

// Search asks the questions as they stand and, where episodes holds some, by id, the queries in them. Every query is
// searched for the given number of passages. progress, if not nil, is told how many queries are done.
func Search(ctx context.Context, searcher retrieve.Searcher, questions []data.Question, episodes map[string][]*episode.Episode,
	topk int, progress func(done, total int)) ([]Outcome, error) {
	outcomes := make([]Outcome, len(questions))
	var queries []string
	for i, q := range questions {
		outcomes[i] = Outcome{Question: q, Raw: Attempt{Queries: []string{q.Text}}}
		for _, e := range episodes[q.ID] {
			outcomes[i].Agent = append(outcomes[i].Agent, Attempt{Queries: queriesOf(e)})
		}
		for _, a := range outcomes[i].attempts() {
			queries = append(queries, a.Queries...)
		}
	}
	var found [][]episode.Passage
	for part := range slices.Chunk(queries, batch) {
		for i, result := range searcher.Search(ctx, part, topk) {
			if result.Err != nil {
				return nil, fmt.Errorf("searching %q: %w", part[i], result.Err)
			}
			found = append(found, result.Passages)
		}
		if progress != nil {
			progress(len(found), len(queries))
		}
	}
	if len(found) != len(queries) {
		return nil, fmt.Errorf("the search engine gave %d results for %d queries", len(found), len(queries))
	}
	for i := range outcomes {
		o := &outcomes[i]
		for _, a := range o.attempts() {
			a.Found, found = found[:len(a.Queries)], found[len(a.Queries):]
			a.rank(o.Question)
		}
	}
	return outcomes, nil
}

// attempts returns all attempts, that of the question as it stands first.
func (o *Outcome) attempts() []*Attempt {
	all := []*Attempt{&o.Raw}
	for k := range o.Agent {
		all = append(all, &o.Agent[k])
	}
	return all
}

// queriesOf returns the queries of an episode.
func queriesOf(e *episode.Episode) (queries []string) {
	for _, turn := range e.Turns {
		if turn.Action == episode.ActionSearch {
			queries = append(queries, turn.Content)
		}
	}
	return queries
}

// Passages returns what an attempt finds with k passages a query, each passage once.
func (a *Attempt) Passages(k int) (passages []episode.Passage) {
	seen := map[string]bool{}
	for _, list := range a.Found {
		for _, p := range list[:min(k, len(list))] {
			if !seen[p.ID] {
				seen[p.ID] = true
				passages = append(passages, p)
			}
		}
	}
	return passages
}

// Score says what of a question's evidence was found: 1 or 0, or the mean over the episodes of the question. A value that
// the data set does not tell is NaN.
type Score struct {
	// Gold is 1 if any gold passage is found, All if all of them are.
	Gold, All float64
	// Answer is 1 if a passage holds a golden answer (reward.Contains); NaN where these are yes or no.
	Answer float64
	// Hops is 1 for each gold passage that is found, in the order of the data set.
	Hops []float64
}

// rank finds the ranks of the question's evidence.
func (a *Attempt) rank(q data.Question) {
	a.goldRanks = make([]int, len(q.GoldPassages))
	a.answerRank = 0
	answers := telling(q.Answers)
	longest := 0
	for _, list := range a.Found {
		longest = max(longest, len(list))
	}
	for rank := 1; rank <= longest; rank++ {
		for _, list := range a.Found {
			if rank > len(list) {
				continue
			}
			p := list[rank-1]
			for i, gold := range q.GoldPassages {
				if a.goldRanks[i] == 0 && p.ID == gold {
					a.goldRanks[i] = rank
				}
			}
			if a.answerRank == 0 && len(answers) > 0 && reward.Contains(p.Contents, answers) == 1 {
				a.answerRank = rank
			}
		}
	}
}

// Score scores an attempt of Search at k passages a query.
func (a *Attempt) Score(q data.Question, k int) Score {
	nan := math.NaN()
	s := Score{Gold: nan, All: nan, Answer: nan}
	within := func(rank int) float64 {
		if 1 <= rank && rank <= k {
			return 1
		}
		return 0
	}
	if len(q.GoldPassages) > 0 {
		s.Gold, s.All = 0, 1
		for _, rank := range a.goldRanks {
			hit := within(rank)
			s.Hops = append(s.Hops, hit)
			s.Gold, s.All = max(s.Gold, hit), min(s.All, hit)
		}
	}
	if len(telling(q.Answers)) > 0 {
		s.Answer = within(a.answerRank)
	}
	return s
}

// telling leaves out the answers that stand in any passage.
func telling(answers []string) (kept []string) {
	for _, answer := range answers {
		if n := reward.Normalize(answer); n != "" && n != "yes" && n != "no" {
			kept = append(kept, answer)
		}
	}
	return kept
}

// Scores returns the scores of a question as it stands and of the agent, the mean over its episodes; ok is false if there
// is none.
func (o *Outcome) Scores(k int) (raw, agent Score, ok bool) {
	raw = o.Raw.Score(o.Question, k)
	if len(o.Agent) == 0 {
		return raw, Score{}, false
	}
	agent.Hops = make([]float64, len(raw.Hops))
	share := 1 / float64(len(o.Agent))
	for i := range o.Agent {
		s := o.Agent[i].Score(o.Question, k)
		agent.Gold += share * s.Gold
		agent.All += share * s.All
		agent.Answer += share * s.Answer
		for i, hop := range s.Hops {
			agent.Hops[i] += share * hop
		}
	}
	return raw, agent, true
}
