package learn

import (
	"fmt"
	"math"
	"testing"

	. "github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/grpo"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testdevice"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/policy"
)

// algorithms are the settings under which the tests of this file run, named after what config sets for each.
var algorithms = map[string]func(o *Options){
	"grpo":    func(o *Options) {},
	"dr_grpo": func(o *Options) { o.Advantage.DivideByStd, o.Aggregation = false, grpo.DrGRPO },
	"rloo": func(o *Options) {
		o.Estimator, o.Aggregation, o.KLInReward, o.Loss.KLEstimator = grpo.RLOO, grpo.DrGRPO, true, grpo.K1
	},
	"reinforce_pp": func(o *Options) {
		o.Estimator, o.KLInReward, o.Loss.KLEstimator, o.Advantage.Gamma = grpo.ReinforcePP, true, grpo.K1, 0.9
	},
	"reinforce_pp_baseline": func(o *Options) {
		o.Estimator, o.Loss.KLEstimator = grpo.ReinforcePPBaseline, grpo.K2
	},
	"ppo": func(o *Options) {
		o.Estimator, o.KLInReward, o.Loss.KLEstimator = grpo.GAE, true, grpo.K1
		o.Advantage.Gamma, o.Advantage.Lambda = 0.9, 0.8
	},
	"dapo": func(o *Options) { o.Loss.ClipHigh, o.Loss.KLCoef, o.DropZeroSignal = 0.28, 0, true },
	"gspo": func(o *Options) {
		o.Ratio, o.Aggregation, o.Loss.ClipLow, o.Loss.ClipHigh = grpo.SequenceRatio, grpo.SeqMean, 0.03, 0.04
	},
}

const testBeta, testValueClip = 0.5, 0.2

func optionsOf(name string) Options {
	opts := options()
	opts.Loss.KLCoef = testBeta
	algorithms[name](&opts)
	return opts
}

// setting is a learner of an algorithm with what belongs to it.
type setting struct {
	name      string
	opts      Options
	policy    *policy.Policy
	reference *policy.Policy
	learner   *Learner
	optimizer *AdamW
	critic    *Critic
}

func newSetting(t *testing.T, dev *device.Device, name string, adam AdamWOptions, change func(o *Options)) *setting {
	t.Helper()
	s := &setting{name: name, opts: optionsOf(name), policy: tiny(t, dev, 1)}
	if change != nil {
		change(&s.opts)
	}
	if s.opts.Loss.KLCoef > 0 {
		s.reference = tiny(t, dev, 2)
	}
	s.learner, s.optimizer = learner(t, s.policy, s.reference, adam, s.opts)
	if s.opts.Estimator.NeedsCritic() {
		s.critic = newTestCritic(t, s.policy, adam)
		s.learner.UseCritic(s.critic)
	}
	return s
}

// newTestCritic returns a critic whose head is not zero, so that its values differ.
func newTestCritic(t *testing.T, p *policy.Policy, adam AdamWOptions) *Critic {
	t.Helper()
	net, err := nn.NewCritic(p.Program, p.Params)
	require.NoError(t, err)
	head := make([]float32, p.Program.Config().HiddenSize)
	for i := range head {
		head[i] = 0.2 * float32(math.Sin(float64(3*i+1)))
	}
	require.NoError(t, net.Replace(len(net.Names())-2, upload(t, p, head, []int{len(head)})))
	c := NewCritic(net, adam, testValueClip)
	t.Cleanup(c.Free)
	shared := newAdamW(t, p, adam)
	c.optimizer.update, c.optimizer.squares = shared.update, shared.squares
	return c
}

func criticValues(t *testing.T, c *Critic) [][]float32 {
	t.Helper()
	var all [][]float32
	for i := range c.net.Names() {
		v, err := device.Values[float32](c.net.Master(i))
		require.NoError(t, err)
		all = append(all, v)
	}
	return all
}

// plainStep is a step of an algorithm written out once more, one episode at a time, in float64 and without the code
// under test: only the policy tokens of an episode exist in it.
type plainStep struct {
	advantages, returns, values, old, logp, ref [][]float64
	weights                                     []float64
}

func newPlainStep(t *testing.T, s *setting, episodes []*episode.Episode) *plainStep {
	t.Helper()
	step := &plainStep{}
	rewards := make([]float64, len(episodes))
	penalties := make([][]float64, len(episodes))
	for i, e := range episodes {
		rewards[i] = e.Reward
		var old []float64
		for at, source := range e.Sources {
			if source == episode.Policy {
				old = append(old, float64(e.LogProbs[at]))
			}
		}
		penalties[i] = make([]float64, len(old))
		step.old, step.logp = append(step.old, old), append(step.logp, logProbs(t, s.policy, e))
		var ref []float64
		if s.reference != nil {
			ref = logProbs(t, s.reference, e)
		}
		step.ref = append(step.ref, ref)
		if s.opts.KLInReward {
			for j := range old {
				penalties[i][j] = testBeta * (old[j] - ref[j]) // k1
				rewards[i] -= penalties[i][j]
			}
		}
		step.values = append(step.values, plainValues(t, s.critic, e))
	}
	step.setAdvantages(s, episodes, rewards, penalties)
	step.setWeights(s, episodes)
	return step
}

func plainValues(t *testing.T, c *Critic, e *episode.Episode) []float64 {
	t.Helper()
	if c == nil {
		return nil
	}
	batch, err := nn.NewBatch([]nn.Row{{IDs: e.IDs, Mask: e.Mask()}}, 0, false)
	require.NoError(t, err)
	values, err := c.net.Values(batch)
	require.NoError(t, err)
	return float64s(values)
}

// meanAndStd are those of a sample.
func meanAndStd(values []float64) (mean, std float64) {
	for _, v := range values {
		mean += v / float64(len(values))
	}
	for _, v := range values {
		std += (v - mean) * (v - mean) / float64(len(values)-1)
	}
	return mean, math.Sqrt(std)
}

func (p *plainStep) setAdvantages(s *setting, episodes []*episode.Episode, rewards []float64, penalties [][]float64) {
	byGroup := map[int][]float64{}
	for i, e := range episodes {
		byGroup[e.Group] = append(byGroup[e.Group], rewards[i])
	}
	for i, e := range episodes {
		n := len(p.old[i])
		advantages, returns := make([]float64, n), make([]float64, n)
		mean, std := meanAndStd(byGroup[e.Group])
		g := float64(len(byGroup[e.Group]))
		later, laterValue := 0.0, 0.0
		for j := n - 1; j >= 0; j-- {
			reward := -penalties[i][j]
			if j == n-1 {
				reward += e.Reward
			}
			switch s.name {
			case "grpo", "dapo", "gspo":
				advantages[j] = (rewards[i] - mean) / (std + 1e-6)
			case "dr_grpo", "reinforce_pp_baseline":
				advantages[j] = rewards[i] - mean
			case "rloo":
				advantages[j] = rewards[i] - (g*mean-rewards[i])/(g-1)
			case "reinforce_pp":
				later = reward + 0.9*later
				advantages[j] = later
			case "ppo":
				later = reward + 0.9*laterValue - p.values[i][j] + 0.9*0.8*later
				laterValue = p.values[i][j]
				advantages[j], returns[j] = later, later+p.values[i][j]
			}
		}
		p.advantages, p.returns = append(p.advantages, advantages), append(p.returns, returns)
	}
	if s.name == "reinforce_pp" || s.name == "reinforce_pp_baseline" || s.name == "ppo" {
		var all []float64
		for _, row := range p.advantages {
			all = append(all, row...)
		}
		mean, std := meanAndStd(all)
		for _, row := range p.advantages {
			for j := range row {
				row[j] = (row[j] - mean) / (std + 1e-6)
			}
		}
	}
}

func (p *plainStep) setWeights(s *setting, episodes []*episode.Episode) {
	tokens := 0.0
	for _, old := range p.old {
		tokens += float64(len(old))
	}
	for _, old := range p.old {
		n, sequences := float64(len(old)), float64(len(episodes))
		p.weights = append(p.weights, map[grpo.Aggregation]float64{grpo.TokenMean: 1 / tokens,
			grpo.SeqMean: 1 / (sequences * n), grpo.DrGRPO: 1 / (sequences * 8)}[s.opts.Aggregation])
	}
}

// derivatives are those of the loss for each log-probability of episode i.
func (p *plainStep) derivatives(s *setting, i int) (out []float64, clipped int) {
	logRatio := func(j int) float64 { return p.logp[i][j] - p.old[i][j] }
	mean := 0.0
	for j := range p.old[i] {
		mean += logRatio(j) / float64(len(p.old[i]))
	}
	for j, adv := range p.advantages[i] {
		r := math.Exp(logRatio(j))
		if s.name == "gspo" {
			r = math.Exp(mean)
		}
		d := -r * adv
		if adv > 0 && r > 1+s.opts.Loss.ClipHigh || adv < 0 && r < 1-s.opts.Loss.ClipLow {
			d = 0
			clipped++
		}
		if s.opts.Loss.KLCoef > 0 && !s.opts.KLInReward {
			gap := p.ref[i][j] - p.logp[i][j]
			if s.opts.Loss.KLEstimator == grpo.K2 {
				d -= testBeta * gap
			} else {
				d += testBeta * (1 - math.Exp(gap))
			}
		}
		out = append(out, p.weights[i]*d)
	}
	return out, clipped
}

// given is the loss whose derivatives are given.
func given(derivatives []float64) nn.Loss {
	d := make([]float32, len(derivatives))
	for i := range d {
		d[i] = float32(derivatives[i])
	}
	return nn.Loss{Name: "given", Extras: [][]float32{d}, Fn: func(x, inside *Node, extras []*Node) (*Node, *Node) {
		return Mul(inside, extras[0]), ExpandAxes(ReduceAllSum(x), 0)
	}}
}

// gradients are those of the policy and, if there is one, the critic.
func (p *plainStep) gradients(t *testing.T, s *setting, episodes []*episode.Episode) (
	ofPolicy, ofCritic [][]float32, clipped int) {
	t.Helper()
	grads := nn.NewGradients(s.policy.Params.Config())
	defer grads.Free()
	var criticGrads *nn.Gradients
	if s.critic != nil {
		criticGrads = s.critic.net.NewGradients()
		defer criticGrads.Free()
	}
	for i, e := range episodes {
		batch, err := nn.NewBatch([]nn.Row{{IDs: e.IDs, Mask: e.Mask()}}, 0, false)
		require.NoError(t, err)
		derivatives, n := p.derivatives(s, i)
		clipped += n
		_, err = s.policy.Program.Backward(s.policy.Params, batch, 1, given(derivatives), grads)
		require.NoError(t, err)
		if s.critic == nil {
			continue
		}
		var dvalues []float64 // before the first update no value has moved, so none is clipped
		for j := range p.values[i] {
			dvalues = append(dvalues, p.weights[i]*(p.values[i][j]-p.returns[i][j]))
		}
		_, err = s.critic.net.Backward(batch, given(dvalues), criticGrads)
		require.NoError(t, err)
	}
	read := func(g *nn.Gradients) (all [][]float32) {
		for _, tensor := range g.Tensors {
			v, err := device.Values[float32](tensor)
			require.NoError(t, err)
			all = append(all, v)
		}
		return all
	}
	if s.critic != nil {
		ofCritic = read(criticGrads)
	}
	return read(grads), ofCritic, clipped
}

func TestGradientOfEveryAlgorithmEqualsPlainGo(t *testing.T) {
	testdevice.Each(t, func(t *testing.T, dev *device.Device) {
		for name := range algorithms {
			if dev.Kind != device.Go && name != "ppo" && name != "gspo" && name != "reinforce_pp_baseline" {
				continue // no graph of its own, and it takes long to compile
			}
			t.Run(name, func(t *testing.T) {
				s := newSetting(t, dev, name, rawGradients, nil)
				episodes := twoGroups(t, s.policy, 0.4)
				plain := newPlainStep(t, s, episodes)
				want, wantCritic, clipped := plain.gradients(t, s, episodes)
				require.Positive(t, clipped, "the test needs clipped tokens")

				stats := update(t, s.learner, episodes, 0)
				requireNear(t, want, firstMoments(t, s.optimizer), 5e-6, name)
				require.Equal(t, 26.0, stats["train/trained_tokens"], "every policy token, and no other")
				require.InDelta(t, float64(clipped)/26, stats["train/clip_frac"], 1e-9)
				if s.critic != nil {
					requireNear(t, wantCritic, firstMoments(t, s.critic.optimizer), 5e-6, name+" critic")
				}
				for i, e := range episodes { // the advantages stand in the episodes, at their tokens
					j := 0
					for at, source := range e.Sources {
						if source == episode.Policy {
							require.InDelta(t, plain.advantages[i][j], e.AdvantageAt(at), 2e-5)
							j++
						} else if e.Advantages != nil {
							require.Zero(t, e.Advantages[at])
						}
					}
				}
			})
		}
	})
}

func TestMicroBatchesChangeTheUpdateOfNoAlgorithm(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	adam := AdamWOptions{Beta1: 0.9, Beta2: 0.99, Eps: 1e-3, MaxGradNorm: 1}
	for name := range algorithms {
		after := func(budget int) (weights, critic [][]float32, stats Stats) {
			s := newSetting(t, dev, name, adam, func(o *Options) { o.MicroBatchTokens, o.InnerEpochs = budget, 2 })
			stats = update(t, s.learner, twoGroups(t, s.policy, 0.2), 0.02)
			if s.critic != nil {
				critic = criticValues(t, s.critic)
			}
			return values(t, s.policy), critic, stats
		}
		one, oneCritic, oneStats := after(8 * 16)
		eight, eightCritic, eightStats := after(1)
		requireNear(t, one, eight, 2e-6, name)
		requireNear(t, oneCritic, eightCritic, 2e-6, name)
		for key, value := range oneStats {
			require.InDelta(t, value, eightStats[key], 2e-5, "%s: %s", name, key)
		}
	}
}

func TestFillerAtEnvironmentTokensChangesNoAlgorithm(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	for name := range algorithms {
		after := func(filler float32) ([][]float32, Stats) {
			s := newSetting(t, dev, name, rawGradients, nil)
			episodes := twoGroups(t, s.policy, 0.2)
			for _, e := range episodes {
				for i, source := range e.Sources {
					if source != episode.Policy {
						e.LogProbs[i] = filler
					}
				}
			}
			stats := update(t, s.learner, episodes, 0.05)
			weights := values(t, s.policy)
			if s.critic != nil {
				weights = append(weights, criticValues(t, s.critic)...)
			}
			return weights, stats
		}
		want, wantStats := after(0)
		for _, filler := range []float32{float32(math.NaN()), 1e9} {
			got, stats := after(filler)
			require.Equal(t, want, got, "%s filler %v", name, filler)
			require.Equal(t, fmt.Sprint(wantStats), fmt.Sprint(stats), "%s filler %v", name, filler) // with NaN as a text
		}
	}
}

// Groups of equal rewards, a reward that is NaN, groups of one, and prompts without a token of the policy: no algorithm
// makes NaN of them, and none moves the policy where there is nothing to learn.
func TestDegenerateStepsOfEveryAlgorithm(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	for name := range algorithms {
		t.Run(name, func(t *testing.T) {
			run := func(change func(all []*episode.Episode) []*episode.Episode) (*setting, Stats) {
				s := newSetting(t, dev, name, rawGradients, func(o *Options) { o.Loss.KLCoef, o.Advantage.Gamma = 0, 1 })
				stats := update(t, s.learner, change(twoGroups(t, s.policy, 0)), 0.05)
				for _, tensor := range values(t, s.policy) {
					for _, v := range tensor {
						require.False(t, math.IsNaN(float64(v)))
					}
				}
				return s, stats
			}
			start := values(t, tiny(t, dev, 1))
			s, stats := run(func(all []*episode.Episode) []*episode.Episode {
				for _, e := range all {
					e.Reward = 0.5
				}
				return all
			})
			require.Equal(t, 1.0, stats["train/zero_signal_group_frac"])
			if name != "ppo" { // its critic is surprised
				require.Zero(t, stats["train/updates"], "zero std")
				require.Equal(t, start, values(t, s.policy))
			}
			s, stats = run(func(all []*episode.Episode) []*episode.Episode { return all[:1] })
			if name != "ppo" { // whose tokens are compared with its critic
				require.Zero(t, stats["train/updates"], "n = 1")
				require.Equal(t, start, values(t, s.policy))
			}
			_, stats = run(func(all []*episode.Episode) []*episode.Episode {
				all[1].Reward = math.NaN()
				return all
			})
			require.Equal(t, 1.0, stats["train/non_finite_rewards"])
			require.Equal(t, 1.0, stats["train/updates"])
			_, stats = run(func([]*episode.Episode) []*episode.Episode {
				return []*episode.Episode{newEpisode(0, 0, 1, prompt(4, 5)), newEpisode(0, 1, 0, prompt(4, 5), env(6, 7))}
			})
			require.Zero(t, stats["train/updates"])
			require.Zero(t, stats["train/trained_tokens"])
		})
	}
}

func TestSequenceRatioIsOneFirstAndMovesInTheSecondInnerEpoch(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	ratio := func(epochs int) float64 {
		s := newSetting(t, dev, "gspo", AdamWOptions{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8}, func(o *Options) {
			o.InnerEpochs, o.Loss.KLCoef = epochs, 0
		})
		return update(t, s.learner, twoGroups(t, s.policy, 0), 0.02)["train/ratio_mean"]
	}
	require.InDelta(t, 1, ratio(1), 1e-6)
	require.Greater(t, math.Abs(2*ratio(2)-ratio(1)-1), 1e-3)
}

func TestPenaltyInTheRewardIsNotInTheLossAndStillMeasured(t *testing.T) {
	s := newSetting(t, testdevice.Open(t, device.Go), "rloo", rawGradients, nil)
	episodes := twoGroups(t, s.policy, 0)
	plain := newPlainStep(t, s, episodes)
	stats := update(t, s.learner, episodes, 0)
	want := 0.0
	for i := range plain.old {
		for j := range plain.old[i] {
			want += testBeta * (plain.old[i][j] - plain.ref[i][j]) / 8
		}
	}
	require.InDelta(t, want, stats["train/kl_penalty"], 1e-5)
	require.Zero(t, stats["train/kl_loss"])
	require.Positive(t, stats["train/kl"])
}

func TestCriticGoesWithGAEAndNothingElse(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	p := tiny(t, dev, 1)
	opts := optionsOf("ppo")
	opts.Loss.KLCoef = 0
	l, _ := learner(t, p, nil, rawGradients, opts)
	_, err := l.Update(t.Context(), twoGroups(t, p, 0), 0)
	require.ErrorContains(t, err, "a critic goes with advantage gae")
	l, _ = learner(t, p, nil, rawGradients, options())
	l.UseCritic(newTestCritic(t, p, rawGradients))
	_, err = l.Update(t.Context(), twoGroups(t, p, 0), 0)
	require.ErrorContains(t, err, "a critic goes with advantage gae")
}
