package learn

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/grpo"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testdevice"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/policy"
)

// byHand is the loss of a step, summed over policy tokens one episode at a time in float64.
type byHand struct {
	t                   *testing.T
	reference           *policy.Policy
	episodes            []*episode.Episode
	weights, advantages []float64
	loss                grpo.LossOptions
}

// newByHand takes the weight of each policy token of an episode from the definition of the aggregation.
func newByHand(t *testing.T, reference *policy.Policy, episodes []*episode.Episode, opts Options) *byHand {
	h := &byHand{t: t, reference: reference, episodes: episodes, loss: opts.Loss}
	tokens, sequences := 0, 0
	for _, e := range episodes {
		tokens += e.CountTokens(episode.Policy)
		sequences++
	}
	mean := map[int]float64{}
	for _, e := range episodes {
		mean[e.Group] += e.Reward / 4
	}
	square := map[int]float64{}
	for _, e := range episodes {
		square[e.Group] += (e.Reward - mean[e.Group]) * (e.Reward - mean[e.Group]) / 3
	}
	for _, e := range episodes {
		n := float64(e.CountTokens(episode.Policy))
		h.weights = append(h.weights, map[grpo.Aggregation]float64{
			grpo.TokenMean: 1 / float64(tokens), grpo.SeqMean: 1 / (float64(sequences) * n),
			grpo.DrGRPO: 1 / (float64(sequences) * 8)}[opts.Aggregation])
		h.advantages = append(h.advantages, (e.Reward-mean[e.Group])/(math.Sqrt(square[e.Group])+1e-6))
	}
	return h
}

// tokenLoss returns the loss over the policy tokens of one episode.
func (h *byHand) tokenLoss(p *policy.Policy, i int) *grpo.LossResult {
	e := h.episodes[i]
	logp := logProbs(h.t, p, e)
	var old, adv, weight, ref []float64
	var mask []bool
	for at, source := range e.Sources {
		if source == episode.Policy {
			old, adv = append(old, float64(e.LogProbs[at])), append(adv, h.advantages[i])
			weight, mask = append(weight, h.weights[i]), append(mask, true)
		}
	}
	if h.reference != nil {
		ref = logProbs(h.t, h.reference, e)
	}
	out, err := grpo.TokenLossFloat64(logp, old, ref, adv, mask, weight, h.loss)
	require.NoError(h.t, err)
	return out
}

// value returns the loss of all episodes.
func (h *byHand) value(p *policy.Policy) (loss float64) {
	for i := range h.episodes {
		loss += h.tokenLoss(p, i).Loss
	}
	return loss
}

// gradient carries the derivative of each token's log-probability back, one episode at a time.
func (h *byHand) gradient(p *policy.Policy) [][]float32 {
	grads := nn.NewGradients(p.Params.Config())
	defer grads.Free()
	for i, e := range h.episodes {
		batch, err := nn.NewBatch([]nn.Row{{IDs: e.IDs, Mask: e.Mask()}}, 0, false)
		require.NoError(h.t, err)
		var w []float32
		for _, d := range h.tokenLoss(p, i).DLogP {
			w = append(w, float32(-d))
		}
		_, err = p.Program.Backward(p.Params, batch, 1, nn.NegativeLogLikelihood(w), grads)
		require.NoError(h.t, err)
	}
	var out [][]float32
	for _, g := range grads.Tensors {
		v, err := device.Values[float32](g)
		require.NoError(h.t, err)
		out = append(out, v)
	}
	return out
}

func TestGradientEqualsTheLossSummedByHandOverPolicyTokens(t *testing.T) {
	testdevice.Each(t, func(t *testing.T, dev *device.Device) {
		for _, agg := range []grpo.Aggregation{grpo.TokenMean, grpo.SeqMean, grpo.DrGRPO} {
			p, reference := tiny(t, dev, 1), tiny(t, dev, 2)
			opts := options()
			opts.Aggregation, opts.Loss.KLCoef = agg, 0.5
			episodes := twoGroups(t, p, 0.4)
			hand := newByHand(t, reference, episodes, opts)
			want, before := hand.gradient(p), hand.value(p)

			l, o := learner(t, p, reference, rawGradients, opts)
			stats := update(t, l, episodes, 0)
			requireNear(t, want, firstMoments(t, o), 2e-6, string(agg))
			require.InDelta(t, before, stats["train/policy_loss"]+stats["train/kl_loss"], 1e-5)
			require.Positive(t, stats["train/clip_frac"], "some tokens are clipped")
			require.Equal(t, 26.0, stats["train/trained_tokens"], "every policy token, and no other")
		}
	})
}

// The derivative of the float64 loss along the learner's gradient is the gradient's length.
func TestGradientAgreesWithFiniteDifferencesOfTheWholeLoss(t *testing.T) {
	p, reference := tiny(t, testdevice.Open(t, device.Go), 1), tiny(t, testdevice.Open(t, device.Go), 2)
	opts := options()
	opts.Loss.KLCoef = 0.5
	episodes := twoGroups(t, p, 0.05)
	l, o := learner(t, p, reference, rawGradients, opts)
	norm := update(t, l, episodes, 0)["train/grad_norm"]
	grads, start := firstMoments(t, o), values(t, p)
	hand := newByHand(t, reference, episodes, opts)
	lossAt := func(distance float64) float64 {
		for i, param := range p.Params.Config().Params() {
			moved := make([]float32, len(start[i]))
			for j := range moved {
				moved[j] = start[i][j] + float32(distance*float64(grads[i][j])/norm)
			}
			require.NoError(t, p.Params.Replace(i, upload(t, p, moved, param.Shape)))
		}
		return hand.value(p)
	}
	const h = 2e-3
	require.InEpsilon(t, norm, (lossAt(h)-lossAt(-h))/(2*h), 5e-3)
}

func TestMicroBatchesDoNotChangeTheUpdate(t *testing.T) {
	testdevice.Each(t, func(t *testing.T, dev *device.Device) {
		for _, agg := range []grpo.Aggregation{grpo.TokenMean, grpo.SeqMean, grpo.DrGRPO} {
			after := func(budget int) ([][]float32, Stats) {
				p := tiny(t, dev, 1)
				opts := options()
				opts.Aggregation, opts.Loss.KLCoef, opts.MicroBatchTokens = agg, 0.1, budget
				l, _ := learner(t, p, tiny(t, dev, 2), AdamWOptions{Beta1: 0.9, Beta2: 0.99, Eps: 1e-3, MaxGradNorm: 1}, opts)
				stats := update(t, l, twoGroups(t, p, 0.2), 0.02)
				return values(t, p), stats
			}
			one, oneStats := after(8 * 16)
			eight, eightStats := after(1)
			requireNear(t, one, eight, 1e-6, string(agg))
			for name, value := range oneStats {
				require.InDelta(t, value, eightStats[name], 1e-5, name)
			}
		}
	})
}

func TestMicroBatchesKeepToTheBudget(t *testing.T) {
	var samples []*sample
	for _, length := range []int{5, 16, 17, 40, 3, 100, 16, 9} {
		samples = append(samples, &sample{row: nn.Row{IDs: make([]int, length)}})
	}
	for _, budget := range []int{1, 16, 64, 1 << 20} {
		seen := 0
		for _, batch := range microBatches(samples, budget) {
			seen += len(batch)
			width := 0
			for _, s := range batch {
				width = max(width, nn.Bucket(len(s.row.IDs)))
			}
			require.True(t, len(batch) == 1 || len(batch)*width <= budget, "%d rows of %d", len(batch), width)
			require.Zero(t, len(batch)&(len(batch)-1), "a power of two of rows")
		}
		require.Equal(t, len(samples), seen)
	}
}

// What stands in Episode.LogProbs at prompt and environment tokens must not be read.
func TestLogProbsAtMaskedTokensChangeNothing(t *testing.T) {
	testdevice.Each(t, func(t *testing.T, dev *device.Device) {
		after := func(filler float32) ([][]float32, Stats) {
			p := tiny(t, dev, 1)
			opts := options()
			opts.Loss.KLCoef = 0.1
			l, _ := learner(t, p, tiny(t, dev, 2), AdamWOptions{Beta1: 0.9, Beta2: 0.99, Eps: 1e-3}, opts)
			episodes := twoGroups(t, p, 0.2)
			for _, e := range episodes {
				for i, source := range e.Sources {
					if source != episode.Policy {
						e.LogProbs[i] = filler
					}
				}
			}
			return values(t, p), update(t, l, episodes, 0.1)
		}
		want, stats := after(0)
		for _, filler := range []float32{float32(math.NaN()), 1e9, -1e9, float32(math.Inf(1)), 1} {
			got, gotStats := after(filler)
			require.Equal(t, want, got, "filler %v", filler)
			require.Equal(t, stats, gotStats, "filler %v", filler)
		}
	})
}

// Batches are padded with token 0, and some models pad with their end token (3 here): both are trained on like any other
// token where the policy wrote them. Padding is a matter of place, not of the token's id.
func TestPaddingAndEndTokensWrittenByThePolicyAreTrained(t *testing.T) {
	p := tiny(t, testdevice.Open(t, device.Go), 1)
	opts := options()
	episodes := []*episode.Episode{
		newEpisode(0, 0, 1, prompt(0, 3), wrote(0, 3, 0, 3)), newEpisode(0, 1, 0, prompt(0, 3), wrote(3)),
		newEpisode(0, 2, 1, prompt(0, 3), wrote(5, 0)), newEpisode(0, 3, 0, prompt(0, 3), wrote(6, 7, 8, 9, 10, 3)),
	}
	record(t, p, episodes, 0.1)
	hand := newByHand(t, nil, episodes, opts)
	want := hand.gradient(p)
	l, o := learner(t, p, nil, rawGradients, opts)
	require.Equal(t, 13.0, update(t, l, episodes, 0)["train/trained_tokens"])
	requireNear(t, want, firstMoments(t, o), 2e-6, "padding")
}

func TestUntrainableEpisodesAreLeftOut(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	after := func(change func([]*episode.Episode) []*episode.Episode) ([][]float32, Stats) {
		p := tiny(t, dev, 1)
		opts := options()
		opts.Loss.KLCoef = 0.1
		l, _ := learner(t, p, tiny(t, dev, 2), rawGradients, opts)
		stats := update(t, l, change(twoGroups(t, p, 0.2)), 0.1)
		return values(t, p), stats
	}
	want, wantStats := after(func(all []*episode.Episode) []*episode.Episode { return append(all[:2:2], all[3:7]...) })
	got, stats := after(func(all []*episode.Episode) []*episode.Episode {
		all[2].Stop, all[2].Reward = episode.StopRetriever, 17
		all[7].Stop, all[7].Reward = episode.StopRetriever, -3
		return all
	})
	require.Equal(t, want, got)
	require.Equal(t, wantStats, stats)
	require.Equal(t, 21.0, stats["train/trained_tokens"])
}

func TestDroppedZeroSignalGroupsLeaveLossAndDivisors(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	after := func(drop bool, episodes func(all []*episode.Episode) []*episode.Episode) ([][]float32, Stats) {
		p := tiny(t, dev, 1)
		opts := options()
		opts.Loss.KLCoef, opts.DropZeroSignal = 0.1, drop
		l, _ := learner(t, p, tiny(t, dev, 2), rawGradients, opts)
		stats := update(t, l, episodes(twoGroups(t, p, 0.2)), 0.1)
		return values(t, p), stats
	}
	flat := func(all []*episode.Episode) []*episode.Episode {
		for _, e := range all[4:] {
			e.Reward = 1
		}
		return all
	}
	dropped, stats := after(true, flat)
	require.Equal(t, 0.5, stats["train/zero_signal_group_frac"])
	require.Equal(t, 15.0, stats["train/trained_tokens"])
	alone, _ := after(true, func(all []*episode.Episode) []*episode.Episode { return all[:4] })
	require.Equal(t, alone, dropped, "as if the group were not there")
	kept, stats := after(false, flat)
	require.NotEqual(t, dropped, kept)
	require.Equal(t, 26.0, stats["train/trained_tokens"], "kept for its KL penalty")
}

func TestMinibatchesAreWholeGroupsAndOneUpdateEach(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	adam := AdamWOptions{Beta1: 0.9, Beta2: 0.99, Eps: 1e-6, MaxGradNorm: 1}
	together := tiny(t, dev, 1)
	opts := options()
	opts.Minibatches = 2
	l, o := learner(t, together, nil, adam, opts)
	stats := update(t, l, twoGroups(t, together, 0), 0.05)
	require.Equal(t, 2.0, stats["train/updates"])
	require.Equal(t, 2, o.Step())

	apart := tiny(t, dev, 1)
	episodes := twoGroups(t, apart, 0)
	l, _ = learner(t, apart, nil, adam, options())
	update(t, l, episodes[:4], 0.05)
	update(t, l, episodes[4:], 0.05)
	require.Equal(t, values(t, together), values(t, apart))
}

// endingContext ends after Err was asked a number of times.
type endingContext struct {
	context.Context
	asked, lives int
}

func (c *endingContext) Err() error {
	if c.asked++; c.asked > c.lives {
		return context.Canceled
	}
	return nil
}

// A step whose first weight update is made is made to its end: half a step must never be saved.
func TestInterruptedUpdateIsDroppedWholeOrFinished(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	run := func(lives int) ([][]float32, int, int, error) {
		p := tiny(t, dev, 1)
		opts := options()
		opts.Minibatches, opts.InnerEpochs, opts.MicroBatchTokens = 2, 2, 32 // two micro-batches in each of 4 updates
		l, o := learner(t, p, nil, rawGradients, opts)
		ctx := &endingContext{Context: t.Context(), lives: lives}
		_, err := l.Update(ctx, twoGroups(t, p, 0), 0.05)
		return values(t, p), o.Step(), ctx.asked, err
	}
	whole, updates, asked, err := run(1 << 30)
	require.NoError(t, err)
	require.Equal(t, 4, updates)
	require.Equal(t, 8, asked)
	start := values(t, tiny(t, dev, 1))
	for lives := range asked {
		got, updates, _, err := run(lives)
		if lives < 2 {
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, start, got)
			require.Zero(t, updates)
		} else {
			require.NoError(t, err)
			require.Equal(t, whole, got)
		}
	}
}

func TestPenaltyWithoutReferenceIsAnError(t *testing.T) {
	p := tiny(t, testdevice.Open(t, device.Go), 1)
	opts := options()
	opts.Loss.KLCoef = 0.1
	_, err := NewLearner(p, nil, nil, opts)
	require.ErrorContains(t, err, "needs a reference")
}
