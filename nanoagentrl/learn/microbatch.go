package learn

import (
	"sort"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
)

// sample is an episode that takes part in an update.
type sample struct {
	ep *episode.Episode
	// weight is the aggregation weight of each of its trained tokens.
	weight float64
	// row is the episode up to its last trained token; what follows it cannot matter.
	row nn.Row
	// places are those of the trained tokens among the tokens of the episode. The slices below are parallel to them.
	places []int
	// old and ref are the log-probabilities when the tokens were sampled, and under the reference.
	old, ref []float32
	// base is what ratios of the current update are taken with in place of old, if it is not nil.
	base []float32
	// values are the critic's before the step, returns what it should have said.
	values, returns []float32
	// noSignal says that nothing is learned from the episode's reward.
	noSignal bool
}

// newSample cuts an episode for the model. Its trained tokens are those of the policy and, with environment, all that
// the environment wrote as well, whose log-probabilities are then to be found by scoring.
func newSample(e *episode.Episode, environment bool) *sample {
	s := &sample{ep: e}
	for t, source := range e.Sources {
		if source == episode.Policy || environment && source == episode.Environment {
			s.places = append(s.places, t)
			s.old = append(s.old, e.LogProbs[t])
		}
	}
	end := 0
	if n := len(s.places); n > 0 {
		end = s.places[n-1] + 1
	}
	s.row = nn.Row{IDs: e.IDs[:end], Mask: make([]uint8, end)}
	for _, t := range s.places {
		s.row.Mask[t] = 1
	}
	return s
}

// mask is true at the trained tokens among all tokens of the episode.
func (s *sample) mask() []bool {
	mask := make([]bool, len(s.ep.IDs))
	for _, t := range s.places {
		mask[t] = true
	}
	return mask
}

// scatter puts values of the trained tokens at their places among all tokens of the episode; nil stays nil.
func (s *sample) scatter(values []float32) []float64 {
	if values == nil {
		return nil
	}
	all := make([]float64, len(s.ep.IDs))
	for i, t := range s.places {
		all[t] = float64(values[i])
	}
	return all
}

// gather undoes scatter.
func (s *sample) gather(all []float64) []float32 {
	values := make([]float32, len(s.places))
	for i, t := range s.places {
		values[i] = float32(all[t])
	}
	return values
}

// microBatches groups samples of similar length so that a batch, padding included, has at most budget tokens. A longer
// sample goes alone. Batches have a power of two of rows, so that few shapes are compiled.
func microBatches(samples []*sample, budget int) [][]*sample {
	sorted := append([]*sample{}, samples...)
	sort.SliceStable(sorted, func(i, j int) bool { return len(sorted[i].row.IDs) > len(sorted[j].row.IDs) })
	var batches [][]*sample
	for len(sorted) > 0 {
		width := nn.Bucket(len(sorted[0].row.IDs))
		n := 1
		for 2*n <= len(sorted) && 2*n*width <= budget {
			n *= 2
		}
		batches = append(batches, sorted[:n])
		sorted = sorted[n:]
	}
	return batches
}

// rows returns the samples as a padded batch.
func rows(samples []*sample) (*nn.Batch, error) {
	list := make([]nn.Row, len(samples))
	for i, s := range samples {
		list[i] = s.row
	}
	return nn.NewBatch(list, 0, false)
}

// share cuts the values of a batch's wanted tokens into those of each of its samples, in the order of the samples.
func share(samples []*sample, values []float32, give func(s *sample, values []float32)) {
	for _, s := range samples {
		n := len(s.places)
		give(s, values[:n:n])
		values = values[n:]
	}
}

// spread returns one value for each trained token of the samples, in the order of a batch's wanted tokens.
func spread(samples []*sample, value func(s *sample, token int) float32) []float32 {
	var out []float32
	for _, s := range samples {
		for t := range s.old {
			out = append(out, value(s, t))
		}
	}
	return out
}
