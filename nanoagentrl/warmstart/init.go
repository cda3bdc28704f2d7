package warmstart

import (
	"fmt"
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
		NumLayers: m.Layers, NumHeads: m.Heads, NumKVHeads: m.KVHeads, HeadDim: m.headDim(),
		MaxPositions: m.MaxPositions, RopeTheta: m.RopeTheta, NormEps: 1e-6, AttentionBias: true, TieEmbeddings: true,
		BOS: -1, Pad: -1, EOS: tokenizer.EndIDs(tok),
	}
	first := &initial{model: m, cfg: &cfg, rng: rand.New(rand.NewPCG(r.Seed, 0x1717)),
		circuit: newCircuit(&m, &cfg, r.Seed)}
	params, err := nn.NewParams(dev, cfg, dtypes.Float32, first.values)
	if err != nil {
		return nil, err
	}
	p := &policy.Policy{Program: nn.NewProgram(dev, cfg), Params: params, Tokenizer: tok, DType: dtypes.Float32,
		Name: fmt.Sprintf("untrained (seed %d)", r.Seed)}
	p.ID, err = p.Hash()
	return p, err
}

// initial draws the first weights: matrices normal with standard deviation InitStd, but those that write into the
// residual stream 0, norms 1, biases 0; over them the heads of a circuit. What comes out is an ordinary model of the
// family.
type initial struct {
	model   Model
	cfg     *nn.Config
	rng     *rand.Rand
	circuit *circuit
}

// values implements the load function of nn.NewParams.
func (n *initial) values(name string, shape []int) ([]float32, error) {
	size := 1
	for _, d := range shape {
		size *= d
	}
	values := make([]float32, size)
	if !strings.HasSuffix(name, ".bias") {
		n.draw(name, values)
	}
	n.circuit.apply(name, values)
	return values, nil
}

func (n *initial) draw(name string, values []float32) {
	if strings.HasSuffix(name, "o_proj.weight") || strings.HasSuffix(name, "down_proj.weight") {
		return
	}
	norm := strings.HasSuffix(name, "norm.weight")
	for i := range values {
		values[i] = 1
		if !norm {
			values[i] = float32(n.rng.NormFloat64() * n.model.InitStd)
		}
	}
}
