package learn

import (
	"sort"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
)

// sample is an episode that takes part in an update.
type sample struct {
	ep *episode.Episode
	// weight is the aggregation weight of each of its policy tokens.
	weight float64
	// row is the episode up to its last policy token; what follows it cannot matter.
	row nn.Row
	// old and ref are the log-probabilities of the policy tokens when they were sampled, and under the reference.
	old, ref []float32
}

// newSample cuts an episode for the model.
func newSample(e *episode.Episode, weight float64) *sample {
	mask := e.Mask()
	end := 0
	s := &sample{ep: e, weight: weight}
	for i, m := range mask {
		if m != 0 {
			end = i + 1
			s.old = append(s.old, e.LogProbs[i])
		}
	}
	s.row = nn.Row{IDs: e.IDs[:end], Mask: mask[:end]}
	return s
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

// spread returns one value for each policy token of the samples, in the order of a batch's wanted tokens.
func spread(samples []*sample, value func(s *sample, token int) float32) []float32 {
	var out []float32
	for _, s := range samples {
		for t := range s.old {
			out = append(out, value(s, t))
		}
	}
	return out
}
