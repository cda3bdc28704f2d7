package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/generate"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
)

// play is an episode while it is played.
type play struct {
	ep  *episode.Episode
	seq *generate.Sequence
	// used counts the policy's tokens.
	used int
}

// Rollout plays groupSize episodes for each question, all at the same time up to Options.Batch, and returns them in
// the order of the questions, the samples of a question side by side. Episode.Group is the question's index; a question
// that was left out (Options.SkipLong) leaves a gap in the numbers and no episode. On an error, a cancelled context
// included, no episodes are returned. A search engine that fails is no error: its episodes end with StopRetriever.
func (r *Rollouter) Rollout(ctx context.Context, questions []data.Question, groupSize int, seed SeedFunc) (
	[]*episode.Episode, error) {
	if groupSize < 1 {
		return nil, fmt.Errorf("agent: group size is %d, must be at least 1", groupSize)
	}
	prompts, skipped, err := r.encode(questions)
	if err != nil {
		return nil, err
	}
	r.skipped += len(skipped)
	r.searchErr = nil
	var plays []*play
	for _, p := range prompts {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("agent: rollout: %w", err)
		}
		for sample := range groupSize {
			plays = append(plays, newPlay(p, sample, seed(p.group, sample)))
		}
	}
	batch := r.opts.Batch
	if batch == 0 {
		batch = max(len(plays), 1)
	}
	for chunk := range slices.Chunk(plays, batch) {
		if err := r.playAll(ctx, chunk); err != nil {
			return nil, fmt.Errorf("agent: rollout: %w", err)
		}
	}
	episodes := make([]*episode.Episode, len(plays))
	for i, p := range plays {
		if err := Check(p.ep); err != nil {
			return nil, err
		}
		episodes[i] = p.ep
	}
	return episodes, nil
}

func newPlay(p prompt, sample int, seed uint64) *play {
	e := &episode.Episode{
		QuestionID: p.question.ID, Question: p.question.Text, Answers: p.question.Answers,
		DataSource: p.question.Source, Group: p.group, Sample: sample, Seed: seed, PromptText: p.text,
	}
	e.Append(episode.Prompt, p.ids, nil)
	return &play{ep: e, seq: generate.NewSequence(p.ids, seed)}
}

// playAll plays episodes to their ends. Each round costs every live episode one action, so there are at most MaxTurns
// rounds.
func (r *Rollouter) playAll(ctx context.Context, live []*play) (err error) {
	defer func() { r.release(live) }()
	for turn := 1; len(live) > 0; turn++ {
		if err := r.sample(ctx, live); err != nil {
			return err
		}
		for _, p := range live {
			if err := r.record(p); err != nil {
				return err
			}
			p.ep.Stop = r.stopAfter(p, turn)
		}
		if live = r.keepLive(live); len(live) == 0 {
			break
		}
		if err := r.answerAll(ctx, live); err != nil {
			return err
		}
		live = r.keepLive(live)
	}
	return nil
}

// keepLive releases the episodes that have ended and returns the others.
func (r *Rollouter) keepLive(plays []*play) []*play {
	var live, ended []*play
	for _, p := range plays {
		if p.ep.Stop == "" {
			live = append(live, p)
		} else {
			ended = append(ended, p)
		}
	}
	r.release(ended)
	return live
}

func (r *Rollouter) release(plays []*play) {
	if len(plays) > 0 {
		r.sampler.Release(sequences(plays))
	}
}

func sequences(plays []*play) []*generate.Sequence {
	seqs := make([]*generate.Sequence, len(plays))
	for i, p := range plays {
		seqs[i] = p.seq
	}
	return seqs
}

// sample lets the policy write one turn of each episode.
func (r *Rollouter) sample(ctx context.Context, live []*play) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, p := range live {
		p.seq.MaxNew = r.opts.turnTokens(p.used)
	}
	opts := generate.Options{
		MaxNew: r.opts.turnTokens(0), Temperature: r.opts.Temperature, MaxContext: r.opts.MaxContext,
	}
	if r.opts.Task == TaskSearch {
		opts.Stops = Stops
	}
	if err := r.sampler.Generate(ctx, sequences(live), opts); err != nil {
		return fmt.Errorf("sample: %w", err)
	}
	return nil
}

// record appends what the sampler wrote to the episode, as one turn.
func (r *Rollouter) record(p *play) error {
	begin := len(p.ep.IDs)
	if err := r.checkSampled(p); err != nil {
		return fmt.Errorf("question %s, sample %d: sampler: %w", p.ep.QuestionID, p.ep.Sample, err)
	}
	p.ep.Append(episode.Policy, p.seq.NewIDs, p.seq.LogProbs)
	p.used += len(p.seq.NewIDs)
	turn := episode.Turn{Text: p.seq.Text, Action: episode.ActionNone, Begin: begin, End: len(p.ep.IDs)}
	if r.opts.Task == TaskSearch {
		stop := p.seq.Stop
		if p.seq.Reason != generate.ReasonStop {
			stop = ""
		}
		turn.Action, turn.Content = ParseAction(p.seq.Text, stop)
	}
	p.ep.Turns = append(p.ep.Turns, turn)
	return nil
}

// checkSampled refuses sampled tokens that the episode's record could not be trusted with.
func (r *Rollouter) checkSampled(p *play) error {
	s, begin := p.seq, len(p.ep.IDs)
	switch {
	case len(s.NewIDs) != len(s.LogProbs):
		return fmt.Errorf("%d tokens with %d log-probabilities", len(s.NewIDs), len(s.LogProbs))
	case len(s.IDs) != begin+len(s.NewIDs) || !slices.Equal(s.IDs[begin:], s.NewIDs):
		return fmt.Errorf("the sequence of %d tokens is not the %d before and the %d sampled", len(s.IDs), begin,
			len(s.NewIDs))
	case len(s.NewIDs) > s.MaxNew:
		return fmt.Errorf("%d tokens where %d were allowed", len(s.NewIDs), s.MaxNew)
	case len(s.IDs) > r.opts.MaxContext:
		return fmt.Errorf("%d tokens in a context of %d", len(s.IDs), r.opts.MaxContext)
	}
	for i, l := range s.LogProbs {
		if math.IsNaN(float64(l)) || math.IsInf(float64(l), 0) {
			return fmt.Errorf("token %d has log-probability %v; the weights may have diverged", s.NewIDs[i], l)
		}
	}
	return nil
}

// stopAfter says why the episode ends after its latest turn, the turn-th, or "" if it goes on.
func (r *Rollouter) stopAfter(p *play, turn int) episode.StopReason {
	last := p.ep.Turns[len(p.ep.Turns)-1]
	spent := p.used >= r.opts.MaxNewTokens
	switch {
	case last.Action == episode.ActionAnswer:
		return episode.StopAnswer
	case p.seq.Reason == generate.ReasonContext:
		return episode.StopContext
	case last.Action == episode.ActionNone && p.seq.Reason == generate.ReasonEOS:
		return episode.StopEOS
	case last.Action == episode.ActionNone, p.seq.Reason == generate.ReasonLength && spent:
		return episode.StopLength
	case turn >= r.opts.MaxTurns:
		return episode.StopTurns
	case spent:
		return episode.StopLength
	}
	return ""
}

// answerAll appends the environment's answer to the latest turn of each episode: passages after a search, a correction
// after an invalid action. An episode whose context cannot take it, with one more policy token, ends instead.
func (r *Rollouter) answerAll(ctx context.Context, live []*play) error {
	results, err := r.searchAll(ctx, live)
	if err != nil {
		return err
	}
	for _, p := range live {
		turn := &p.ep.Turns[len(p.ep.Turns)-1]
		room := r.opts.MaxContext - len(p.ep.IDs) - 1
		answer, ok := shown{text: Correction, ids: r.correction}, len(r.correction) <= room
		if turn.Action == episode.ActionSearch {
			result := results[turn.Content]
			if result.Err != nil {
				p.ep.Stop = episode.StopRetriever
				r.searchErr = result.Err
				continue
			}
			answer, ok = r.fit(r.arrange(p, result.Passages), min(room, r.opts.MaxObsTokens))
		}
		if !ok {
			p.ep.Stop = episode.StopContext
			continue
		}
		turn.Observation, turn.Passages = answer.text, answer.passages
		p.ep.Append(episode.Environment, answer.ids, nil)
		p.seq.Append(answer.ids)
	}
	return nil
}

// arrange returns the passages that a search shows, in the order in which it shows them.
func (r *Rollouter) arrange(p *play, found []episode.Passage) []episode.Passage {
	found = found[:min(len(found), r.opts.TopK)]
	if !r.opts.ShufflePassages {
		return found
	}
	shuffled := slices.Clone(found) // Other episodes may have asked the same.
	rng := rand.New(rand.NewPCG(p.ep.Seed, uint64(len(p.ep.Turns))))
	rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	return shuffled
}

// searchAll looks up the queries of all episodes in one call, equal ones once.
func (r *Rollouter) searchAll(ctx context.Context, live []*play) (map[string]retrieve.Result, error) {
	var queries []string
	results := map[string]retrieve.Result{}
	for _, p := range live {
		turn := p.ep.Turns[len(p.ep.Turns)-1]
		if _, seen := results[turn.Content]; turn.Action == episode.ActionSearch && !seen {
			results[turn.Content] = retrieve.Result{}
			queries = append(queries, turn.Content)
		}
	}
	if len(queries) == 0 {
		return results, nil
	}
	found := r.searcher.Search(ctx, queries, r.opts.TopK)
	if err := ctx.Err(); err != nil {
		return nil, err // a cancelled search says nothing about the search engine
	}
	for i, query := range queries {
		if len(found) != len(queries) {
			results[query] = retrieve.Result{Err: errors.New("the search engine lost count of the queries")}
			continue
		}
		results[query] = found[i]
	}
	return results, nil
}
