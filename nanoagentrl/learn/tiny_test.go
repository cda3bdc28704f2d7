package learn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/tensors"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/grpo"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/policy"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
)

// vocabulary is that of all tiny policies: four tokens with a role and eight words.
const vocabulary = 12

var programs = map[device.Kind]*nn.Program{}

// tiny returns a small policy whose weights are far from symmetric. All of a device share their compiled graphs.
func tiny(t *testing.T, dev *device.Device, seed uint64) *policy.Policy {
	t.Helper()
	words := []string{tokenizer.WordUnk, tokenizer.WordPad, tokenizer.WordBOS, tokenizer.WordEOS}
	for i := len(words); i < vocabulary; i++ {
		words = append(words, fmt.Sprint("w", i))
	}
	tok, err := tokenizer.NewWords(words)
	require.NoError(t, err)
	cfg := nn.Config{ModelType: "qwen2", VocabSize: vocabulary, HiddenSize: 8, IntermediateSize: 12, NumLayers: 2,
		NumHeads: 2, NumKVHeads: 1, HeadDim: 4, MaxPositions: 64, RopeTheta: 10000, NormEps: 1e-6, AttentionBias: true,
		BOS: -1, Pad: -1, EOS: []int{3}}
	if programs[dev.Kind] == nil {
		programs[dev.Kind] = nn.NewProgram(dev, cfg)
	}
	params, err := nn.RandomParams(dev, cfg, dtypes.Float32, seed, 0.5)
	require.NoError(t, err)
	p := &policy.Policy{Program: programs[dev.Kind], Params: params, Tokenizer: tok, Name: "tiny",
		DType: dtypes.Float32}
	t.Cleanup(p.Free)
	p.ID, err = p.Hash()
	require.NoError(t, err)
	return p
}

// values are all weights of a policy, tensor by tensor.
func values(t *testing.T, p *policy.Policy) [][]float32 {
	t.Helper()
	var all [][]float32
	for _, name := range p.Params.Names() {
		v, err := p.Params.Host(name)
		require.NoError(t, err)
		all = append(all, v)
	}
	return all
}

// requireNear compares tensors element by element, relative to values above 1.
func requireNear(t *testing.T, want, got [][]float32, tolerance float64, message string) {
	t.Helper()
	require.Len(t, got, len(want), message)
	for i := range want {
		require.Len(t, got[i], len(want[i]), message)
		for j := range want[i] {
			difference := math.Abs(float64(want[i][j]) - float64(got[i][j]))
			require.LessOrEqual(t, difference, tolerance*max(1, math.Abs(float64(want[i][j]))), "%s: tensor %d, %d", message, i, j)
		}
	}
}

// exactOn is how far two runs of the same arithmetic may differ on a device.
func exactOn(dev *device.Device) float64 {
	if dev.Kind == device.Go {
		return 0
	}
	return 1e-6
}

// gradients returns reproducible gradients of the given size for every parameter but the last.
func gradients(t *testing.T, p *policy.Policy, seed uint64, scale float64) *nn.Gradients {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 3))
	grads := nn.NewGradients(p.Params.Config())
	params := p.Params.Config().Params()
	for i, param := range params[:len(params)-1] {
		v := make([]float32, p.Params.Master(i).Size())
		for j := range v {
			v[j] = float32(rng.NormFloat64() * scale)
		}
		grads.Tensors[i] = upload(t, p, v, param.Shape)
	}
	t.Cleanup(grads.Free)
	return grads
}

func upload(t *testing.T, p *policy.Policy, v []float32, shape []int) *tensors.Tensor {
	t.Helper()
	tensor, err := device.Upload(p.Program.Device(), v, shape...)
	require.NoError(t, err)
	return tensor
}

// piece is a stretch of an episode's tokens.
type piece struct {
	source episode.Source
	ids    []int
}

func prompt(ids ...int) piece { return piece{episode.Prompt, ids} }
func wrote(ids ...int) piece  { return piece{episode.Policy, ids} }
func env(ids ...int) piece    { return piece{episode.Environment, ids} }

// newEpisode makes an episode of pieces, with a turn for each stretch of the policy.
func newEpisode(group, sample int, reward float64, pieces ...piece) *episode.Episode {
	e := &episode.Episode{QuestionID: fmt.Sprint("q", group), Group: group, Sample: sample, Reward: reward,
		Stop: episode.StopAnswer}
	for _, p := range pieces {
		var logp []float32
		if p.source == episode.Policy {
			logp = make([]float32, len(p.ids))
			e.Turns = append(e.Turns, episode.Turn{Begin: len(e.IDs), End: len(e.IDs) + len(p.ids)})
		}
		e.Append(p.source, p.ids, logp)
	}
	return e
}

// record writes into the episodes the log-probabilities that p would have sampled their tokens with, shifted by shift
// times a number that is different for every token.
func record(t *testing.T, p *policy.Policy, episodes []*episode.Episode, shift float64) {
	t.Helper()
	for n, e := range episodes {
		logp := logProbs(t, p, e)
		for i := range e.LogProbs {
			if e.Sources[i] == episode.Policy {
				e.LogProbs[i] = float32(logp[0] + shift*math.Sin(float64(10*n+i)))
				logp = logp[1:]
			}
		}
	}
}

// logProbs scores the policy tokens of one episode by itself.
func logProbs(t *testing.T, p *policy.Policy, e *episode.Episode) []float64 {
	t.Helper()
	batch, err := nn.NewBatch([]nn.Row{{IDs: e.IDs, Mask: e.Mask()}}, 0, false)
	require.NoError(t, err)
	logp, _, err := p.Program.LogProbs(p.Params, batch, 1)
	require.NoError(t, err)
	var out []float64
	for _, l := range logp {
		out = append(out, float64(l))
	}
	return out
}

// twoGroups are episodes of different lengths, some of several turns, with rewards that differ within each group.
func twoGroups(t *testing.T, p *policy.Policy, shift float64) []*episode.Episode {
	t.Helper()
	episodes := []*episode.Episode{
		newEpisode(0, 0, 1, prompt(4, 5), wrote(6, 7), env(8, 9, 10), wrote(11, 4), env(5), wrote(6, 3)),
		newEpisode(0, 1, 0, prompt(4, 5), wrote(9, 3)),
		newEpisode(0, 2, 0.5, prompt(4, 5), wrote(6, 6, 6, 3), env(7)),
		newEpisode(0, 3, 0, prompt(4, 5), wrote(8, 8, 3)),
		newEpisode(1, 0, 0, prompt(10, 11, 4), wrote(5, 6), env(9, 9), wrote(7, 3)),
		newEpisode(1, 1, 1, prompt(10, 11, 4), wrote(5)),
		newEpisode(1, 2, 1, prompt(10, 11, 4), wrote(7, 8, 9, 10, 11)),
		newEpisode(1, 3, 0, prompt(10, 11, 4), wrote(3)),
	}
	record(t, p, episodes, shift)
	return episodes
}

// options are those of most tests; MicroBatchTokens puts four of the episodes of twoGroups into a batch.
func options() Options {
	return Options{Advantage: grpo.DefaultAdvantageOptions(), Loss: grpo.LossOptions{ClipLow: 0.2, ClipHigh: 0.2},
		Aggregation: grpo.TokenMean, ConstantLength: 8, Temperature: 1, InnerEpochs: 1, Minibatches: 1,
		MicroBatchTokens: 64}
}

// rawGradients are the AdamW options under which the first moment is the gradient itself after a step.
var rawGradients = AdamWOptions{Beta1: 0, Beta2: 0.9, Eps: 1e-8}

var compiled = map[device.Kind]*AdamW{}

// newAdamW is NewAdamW for p; all of a device share their compiled graphs.
func newAdamW(t *testing.T, p *policy.Policy, opts AdamWOptions) *AdamW {
	t.Helper()
	dev := p.Program.Device()
	o := NewAdamW(dev, len(p.Params.Names()), opts)
	if compiled[dev.Kind] == nil {
		compiled[dev.Kind] = o
	}
	o.update, o.squares = compiled[dev.Kind].update, compiled[dev.Kind].squares
	t.Cleanup(o.Free)
	return o
}

// learner returns a learner of p and its optimiser.
func learner(t *testing.T, p, reference *policy.Policy, adam AdamWOptions, opts Options) (*Learner, *AdamW) {
	t.Helper()
	optimizer := newAdamW(t, p, adam)
	l, err := NewLearner(p, reference, optimizer, opts)
	require.NoError(t, err)
	return l, optimizer
}

func update(t *testing.T, l *Learner, episodes []*episode.Episode, lr float64) Stats {
	t.Helper()
	stats, err := l.Update(t.Context(), episodes, lr)
	require.NoError(t, err)
	return stats
}

// firstMoments are the optimiser's first moments, nil where there is none.
func firstMoments(t *testing.T, o *AdamW) [][]float32 {
	t.Helper()
	all := make([][]float32, len(o.m))
	for i := range o.m {
		if m, _ := o.Moments(i); m != nil {
			v, err := device.Values[float32](m)
			require.NoError(t, err)
			all[i] = v
		}
	}
	return all
}
