package warmstart

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
)

// source makes the batches of all stages. A batch depends only on the recipe, the stage and its number within the
// stage, so that a training which was interrupted goes on with what would have come.
type source struct {
	recipe *Recipe
	copier *copier
	demos  *demonstrator
	// pool holds the demonstrations of some batches of a stage, from the same world.
	pool        []Example
	poolStage   int
	poolOfBatch int
}

func newSource(r *Recipe, tok *tokenizer.Words) *source {
	return &source{recipe: r, copier: newCopier(tok), demos: newDemonstrator(r, tok), poolStage: -1}
}

// batch returns batch n, counted from 0, of a stage.
func (s *source) batch(ctx context.Context, stage, n int) ([]Example, error) {
	st := &s.recipe.Stages[stage]
	rng := rand.New(rand.NewPCG(s.recipe.Seed<<20^uint64(stage), uint64(n)))
	var examples []Example
	for range st.copies() {
		examples = append(examples, s.copier.sequence(rng, st))
	}
	demos := st.Batch - len(examples)
	if demos == 0 {
		return examples, nil
	}
	fresh := s.recipe.World.Fresh
	if first := n - n%fresh; s.poolStage != stage || s.poolOfBatch != first {
		seed := rand.New(rand.NewPCG(s.recipe.Seed<<20^uint64(stage), uint64(first)<<1|1)).Uint64()
		pool, err := s.demos.play(ctx, st, demos*fresh, seed)
		if err != nil {
			return nil, err
		}
		s.pool, s.poolStage, s.poolOfBatch = pool, stage, first
	}
	at := n % fresh * demos
	return append(examples, s.pool[at:at+demos]...), nil
}

// part is a padded batch that goes through the model at once, with the places of its values among the wanted tokens.
type part struct {
	batch  *nn.Batch
	values []int
	// tokens is the number of tokens without padding.
	tokens int
}

// cut turns examples into padded batches: those of similar length together, in widths and numbers of rows of which
// there are few, since each combination is compiled.
func cut(examples []Example) ([]part, error) {
	sorted := slices.Clone(examples)
	slices.SortStableFunc(sorted, func(a, b Example) int { return trained(b.Episode) - trained(a.Episode) })
	var parts []part
	for len(sorted) > 0 {
		n, width := 1, bucket(trained(sorted[0].Episode))
		for n < len(sorted) && 3*bucket(trained(sorted[n].Episode)) >= 2*width {
			n++
		}
		p, err := pad(sorted[:n], width)
		if err != nil {
			return nil, err
		}
		parts, sorted = append(parts, p), sorted[n:]
	}
	return parts, nil
}

// bucket rounds a length up to 32, 96, 160, 224 …
func bucket(n int) int { return 32 + max(n-32+63, 0)/64*64 }

// trained is the length of an episode up to the policy's last token; what follows it cannot matter.
func trained(e *episode.Episode) int { return 1 + lastIndex(e.Sources, episode.Policy) }

func lastIndex[T comparable](list []T, v T) int {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i] == v {
			return i
		}
	}
	return -1
}

// pad makes a part of examples, with empty rows up to a multiple of four.
func pad(examples []Example, width int) (part, error) {
	var p part
	rows := make([]nn.Row, (len(examples)+3)/4*4)
	wanted := 0
	for i, x := range examples {
		n := trained(x.Episode)
		rows[i] = nn.Row{IDs: x.Episode.IDs[:n], Mask: x.Episode.Mask()[:n]}
		p.tokens += n
		for at, m := range rows[i].Mask {
			if m == 0 {
				continue
			}
			if slices.Contains(x.Values, at) {
				p.values = append(p.values, wanted)
			}
			wanted++
		}
	}
	var err error
	p.batch, err = nn.NewBatch(rows, width, false)
	return p, err
}

// score adds up how well the tokens of a batch were predicted.
type score struct {
	// loss is the sum of -log p over tokens trained tokens, in nats.
	loss   float64
	tokens int
	// right counts the values that had more than half of the probability, which makes them the likeliest.
	right, values int
}

func (s *score) add(p part, logProbs []float32) {
	for _, l := range logProbs {
		s.loss -= float64(l)
	}
	s.tokens += len(logProbs)
	for _, at := range p.values {
		if float64(logProbs[at]) > -math.Ln2 {
			s.right++
		}
	}
	s.values += len(p.values)
}

// accuracy is the share of values that were right, NaN if there were none.
func (s *score) accuracy() float64 { return float64(s.right) / float64(s.values) }
