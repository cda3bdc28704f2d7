package warmstart

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/gomlx/gomlx/pkg/core/dtypes"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/policy"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/world"
)

// Tokenizer returns the word-level tokenizer of a task.
func Tokenizer(task string) (*tokenizer.Words, error) {
	if task == Sums {
		return tokenizer.NewWords(world.SumsVocabulary())
	}
	return tokenizer.NewWords(world.FactsVocabulary())
}

// NewPolicy makes the untrained model of a recipe.
func NewPolicy(dev *device.Device, r *Recipe) (*policy.Policy, error) {
	tok, err := Tokenizer(r.Task)
	if err != nil {
		return nil, err
	}
	m := r.Model
	cfg := nn.Config{
		ModelType: "qwen2", VocabSize: tok.VocabSize(), HiddenSize: m.Hidden, IntermediateSize: m.Intermediate,
		NumLayers: m.Layers, NumHeads: m.Heads, NumKVHeads: m.KVHeads, HeadDim: m.Hidden / m.Heads,
		MaxPositions: m.MaxPositions, RopeTheta: m.RopeTheta, NormEps: 1e-6, AttentionBias: true, TieEmbeddings: true,
		BOS: -1, Pad: -1, EOS: tokenizer.EndIDs(tok),
	}
	first := &initial{model: m, cfg: &cfg, rng: rand.New(rand.NewPCG(r.Seed, 0x1717))}
	params, err := nn.NewParams(dev, cfg, dtypes.Float32, first.values)
	if err != nil {
		return nil, err
	}
	p := &policy.Policy{Program: nn.NewProgram(dev, cfg), Params: params, Tokenizer: tok, DType: dtypes.Float32,
		Name: fmt.Sprintf("untrained (seed %d)", r.Seed)}
	p.ID, err = p.Hash()
	return p, err
}

// initial draws the first weights: matrices normal with standard deviation InitStd, the feed-forward layers' output
// matrices InitStd/√(2·layers), norms 1, biases 0.
//
// The first heads of the first layer look back n = 1, 2, 3 … tokens by their biases alone. For a pair of coordinates
// that rotary positions turn by w > 0.1 a token, the key's bias is (a, 0) and the query's (a·cos(n·w), -a·sin(n·w)), so
// that a query scores a²·cos((distance-n)·w): highest at distance n. a² = 8·√(head size) makes that 8 for each pair.
// These heads share their value and output maps, the latter small, since the same must be done with whatever they find.
// What comes out is an ordinary model of the family.
type initial struct {
	model Model
	cfg   *nn.Config
	rng   *rand.Rand
}

// backMapStd is the standard deviation of the output map that heads which look back share.
const backMapStd = 0.01

// minTurn is the slowest rotation, in radians a token, that heads which look back make use of.
const minTurn = 0.1

// values implements the load function of nn.NewParams.
func (n *initial) values(name string, shape []int) ([]float32, error) {
	size := 1
	for _, d := range shape {
		size *= d
	}
	values := make([]float32, size)
	if strings.HasSuffix(name, ".bias") {
		n.setBias(name, values)
		return values, nil
	}
	std := n.model.InitStd
	if strings.HasSuffix(name, "down_proj.weight") {
		std /= math.Sqrt(2 * float64(n.cfg.NumLayers))
	}
	for i := range values {
		values[i] = 1
		if !strings.HasSuffix(name, "norm.weight") {
			values[i] = float32(n.rng.NormFloat64() * std)
		}
	}
	n.share(name, values)
	return values, nil
}

// setBias writes the biases of the heads that look back; see initial.
func (n *initial) setBias(name string, values []float32) {
	if n.model.PreviousHeads == 0 {
		return
	}
	e := n.cfg.HeadDim
	a := math.Sqrt(8 * math.Sqrt(float64(e)))
	for pair := range e / 2 {
		turn := math.Pow(n.cfg.RopeTheta, -2*float64(pair)/float64(e))
		if turn <= minTurn {
			continue
		}
		switch name {
		case "model.layers.0.self_attn.k_proj.bias":
			for head := range n.keyHeads() {
				values[head*e+pair] = float32(a)
			}
		case "model.layers.0.self_attn.q_proj.bias":
			for head := range n.model.PreviousHeads {
				back := float64(head+1) * turn
				values[head*e+pair] = float32(a * math.Cos(back))
				values[head*e+pair+e/2] = float32(-a * math.Sin(back))
			}
		}
	}
}

// keyHeads is the number of key heads that the heads which look back use.
func (n *initial) keyHeads() int {
	group := n.cfg.NumHeads / n.cfg.NumKVHeads
	return (n.model.PreviousHeads + group - 1) / group
}

// share gives the heads that look back the value and output maps of the first of them.
func (n *initial) share(name string, values []float32) {
	e, d := n.cfg.HeadDim, n.cfg.HiddenSize
	switch name {
	case "model.layers.0.self_attn.v_proj.weight": // [key heads x E, D]
		for head := 1; head < n.keyHeads(); head++ {
			copy(values[head*e*d:(head+1)*e*d], values[:e*d])
		}
	case "model.layers.0.self_attn.o_proj.weight": // [D, heads x E]
		width := n.cfg.NumHeads * e
		for head := range n.model.PreviousHeads {
			for row := range d {
				for i := range e {
					first := &values[row*width+i]
					if head == 0 {
						*first *= float32(backMapStd / n.model.InitStd)
					}
					values[row*width+head*e+i] = *first
				}
			}
		}
	}
}
