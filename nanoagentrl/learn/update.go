package learn

import (
	"context"
	"errors"
	"fmt"
	"math"

	. "github.com/gomlx/gomlx/pkg/core/graph"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/grpo"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/policy"
)

// Options are the settings of the weight updates of a step.
type Options struct {
	Advantage grpo.AdvantageOptions
	Loss      grpo.LossOptions
	// Aggregation averages the losses of tokens; ConstantLength is the divisor of grpo.DrGRPO.
	Aggregation    grpo.Aggregation
	ConstantLength int
	// Temperature is the one the episodes were sampled with: log-probabilities are taken under the same distribution.
	Temperature float64
	// InnerEpochs is how often the episodes are used, Minibatches the number of weight updates in one use.
	InnerEpochs, Minibatches int
	// DropZeroSignal leaves groups without signal out of the loss and its divisors.
	DropZeroSignal bool
	// Estimator turns rewards into advantages (empty is grpo.Group), Ratio says what is compared with the policy that
	// sampled (empty is grpo.TokenRatio).
	Estimator grpo.Estimator
	Ratio     grpo.Ratio
	// KLInReward takes the KL penalty off the rewards of tokens, where the loss would have it.
	KLInReward bool
	// TrainEnvironment also trains on what the environment wrote, which ruins a policy; for showing that.
	TrainEnvironment bool
	// MicroBatchTokens bounds the tokens that go through the model at once.
	MicroBatchTokens int
}

// Learner changes the weights of a policy so that episodes with a positive advantage become more likely.
type Learner struct {
	policy *policy.Policy
	// reference is nil if no KL penalty is taken.
	reference *policy.Policy
	optimizer *AdamW
	// critic is nil if the estimator needs none.
	critic *Critic
	opts   Options
}

// NewLearner returns a Learner. reference may be nil if the KL coefficient is 0. grpo.GAE also takes UseCritic.
func NewLearner(p, reference *policy.Policy, optimizer *AdamW, opts Options) (*Learner, error) {
	if reference == nil && opts.Loss.KLCoef > 0 {
		return nil, errors.New("learn: a KL penalty needs a reference policy")
	}
	return &Learner{policy: p, reference: reference, optimizer: optimizer, opts: opts}, nil
}

// Stats is what an update reports, under the names of the metrics.
type Stats map[string]float64

// UseCritic gives the learner a critic, which it asks for values before each step and trains after the policy.
func (l *Learner) UseCritic(c *Critic) { l.critic = c }

// Rates are the learning rates of a step.
type Rates struct{ Policy, Critic float64 }

// Update is UpdateAt with one learning rate.
func (l *Learner) Update(ctx context.Context, episodes []*episode.Episode, lr float64) (Stats, error) {
	return l.UpdateAt(ctx, episodes, Rates{lr, lr})
}

// UpdateAt makes InnerEpochs x Minibatches weight updates from the episodes of one step, whose rewards are set, and as
// many of the critic if there is one. When ctx ends before the first of them, nothing has changed; once it is made, all
// are made, so that a step is never left half done.
func (l *Learner) UpdateAt(ctx context.Context, episodes []*episode.Episode, rates Rates) (Stats, error) {
	if l.estimator().NeedsCritic() != (l.critic != nil) {
		return nil, fmt.Errorf("learn: a critic goes with advantage %s and with no other, not with %s", grpo.GAE, l.estimator())
	}
	samples := l.samples(episodes)
	if err := l.score(ctx, samples); err != nil {
		return nil, err
	}
	signal, penalty, err := l.setAdvantages(episodes, samples)
	if err != nil {
		return nil, err
	}
	total := &tally{}
	parts := l.minibatches(episodes, samples)
	for epoch := range l.opts.InnerEpochs {
		for _, part := range parts {
			if err := l.updateOnce(ctx, l.withGradient(part), epoch == 0, rates.Policy, total); err != nil {
				return nil, err
			}
		}
	}
	stats := total.stats(l.reference != nil)
	stats["train/zero_signal_group_frac"] = signal.ZeroSignalFrac()
	stats["train/non_finite_rewards"] = float64(signal.NonFinite)
	stats["train/lr"] = rates.Policy
	if l.penalised() {
		stats["train/kl_penalty"] = penalty
	}
	if l.opts.TrainEnvironment {
		stats["train/trained_environment_tokens"] = environmentTokens(parts)
	}
	if l.critic == nil {
		return stats, nil
	}
	return stats, l.critic.update(ctx, total.updates > 0, parts, l.opts, rates.Critic, stats)
}

// environmentTokens counts the trained tokens that the environment wrote.
func environmentTokens(parts [][]*sample) (n float64) {
	for _, part := range parts {
		for _, s := range part {
			n += float64(len(s.places) - s.ep.CountTokens(episode.Policy))
		}
	}
	return n
}

// minibatches cuts the step into parts of whole groups, without the episodes that are left out of the loss, and gives
// each sample its weight in its part.
func (l *Learner) minibatches(episodes []*episode.Episode, samples []*sample) [][]*sample {
	groups := 0
	for _, e := range episodes {
		groups = max(groups, e.Group+1)
	}
	perPart := max(1, (groups+l.opts.Minibatches-1)/l.opts.Minibatches)
	var parts [][]*sample
	for first := 0; first < groups; first += perPart {
		var part []*sample
		var lengths []int
		for i, e := range episodes {
			s := samples[i]
			if e.Group < first || e.Group >= first+perPart || s == nil || l.opts.DropZeroSignal && s.noSignal {
				continue
			}
			part, lengths = append(part, s), append(lengths, len(s.places))
		}
		weights, err := grpo.TokenWeights(lengths, l.opts.Aggregation, l.opts.ConstantLength)
		if err != nil {
			panic(err) // the options were checked when the run began
		}
		for i, s := range part {
			s.weight = weights[i]
		}
		parts = append(parts, part)
	}
	return parts
}

// withGradient leaves out the samples whose gradient is 0, for lack of an advantage and of a KL penalty: they count in
// the weights of the others but need not be computed.
func (l *Learner) withGradient(part []*sample) (some []*sample) {
	for _, s := range part {
		if s.ep.Advantage != 0 || s.ep.Advantages != nil || l.lossOptions().KLCoef > 0 {
			some = append(some, s)
		}
	}
	return some
}

// lossOptions are those of the loss: a penalty that is in the reward is not in it.
func (l *Learner) lossOptions() grpo.LossOptions {
	opts := l.opts.Loss
	if l.opts.KLInReward {
		opts.KLCoef = 0
	}
	return opts
}

// updateOnce makes one weight update; a part without gradient makes none.
func (l *Learner) updateOnce(ctx context.Context, part []*sample, first bool, lr float64, total *tally) error {
	if len(part) == 0 {
		total.skipped++
		return nil
	}
	grads := nn.NewGradients(l.policy.Program.Config())
	defer grads.Free()
	for _, micro := range microBatches(part, l.opts.MicroBatchTokens) {
		if err := ctx.Err(); err != nil && total.updates == 0 {
			return err
		}
		device.Relieve()
		batch, err := rows(micro)
		if err != nil {
			return err
		}
		if first && l.reference != nil && !l.penalised() {
			if err := l.setReference(micro, batch); err != nil {
				return err
			}
		}
		if l.opts.Ratio == grpo.SequenceRatio {
			if err := l.setSequenceBase(micro, batch); err != nil {
				return err
			}
		}
		outcome, err := l.policy.Program.Backward(l.policy.Params, batch, l.opts.Temperature, l.loss(micro), grads)
		if err != nil {
			return err
		}
		if err := total.add(outcome); err != nil {
			return err
		}
	}
	device.Relieve()
	norm, err := l.optimizer.Apply(l.policy.Params, grads, lr)
	if errors.Is(err, ErrNotFinite) {
		total.notFinite++
		return nil
	}
	if err != nil {
		return err
	}
	total.updates++
	total.norm += norm
	return nil
}

// setReference scores the trained tokens of the samples with the frozen reference.
func (l *Learner) setReference(samples []*sample, batch *nn.Batch) error {
	logp, _, err := l.reference.Program.LogProbs(l.reference.Params, batch, l.opts.Temperature)
	if err != nil {
		return fmt.Errorf("scoring with the reference: %w", err)
	}
	share(samples, logp, func(s *sample, logp []float32) { s.ref = logp })
	return nil
}

// setSequenceBase makes the ratio of each token that of its whole sequence. The tokens of a sequence may lie in several
// chunks of the head, so their log-probabilities have to be known before the loss is taken: a forward pass of its own.
func (l *Learner) setSequenceBase(samples []*sample, batch *nn.Batch) (err error) {
	logp, err := l.logProbs(batch)
	if err != nil {
		return err
	}
	share(samples, logp, func(s *sample, logp []float32) {
		base, failed := grpo.SequenceOld(logp, s.old)
		s.base, err = base, errors.Join(err, failed)
	})
	return err
}

// logProbs scores the trained tokens of a batch with the policy as it is.
func (l *Learner) logProbs(batch *nn.Batch) ([]float32, error) {
	logp, _, err := l.policy.Program.LogProbs(l.policy.Params, batch, l.opts.Temperature)
	if err != nil {
		return nil, fmt.Errorf("scoring with the policy: %w", err)
	}
	return logp, nil
}

// loss is the clipped token loss over the trained tokens of the samples.
func (l *Learner) loss(samples []*sample) nn.Loss {
	opts := l.lossOptions()
	loss := nn.Loss{
		Name: fmt.Sprintf("grpo %+v reference %v", opts, l.reference != nil),
		Extras: [][]float32{
			spread(samples, func(s *sample, t int) float32 { return s.ratioBase()[t] }),
			spread(samples, func(s *sample, t int) float32 { return s.ep.AdvantageAt(s.places[t]) }),
			spread(samples, func(s *sample, _ int) float32 { return float32(s.weight) }),
		},
		Fn: func(logp, inside *Node, extras []*Node) (*Node, *Node) {
			var ref *Node
			if len(extras) > 3 {
				ref = extras[3]
			}
			_, dlogp, metrics := grpo.TokenLoss(logp, extras[0], ref, extras[1], inside, extras[2], opts)
			return dlogp, metrics
		},
	}
	if l.reference != nil {
		loss.Extras = append(loss.Extras, spread(samples, func(s *sample, t int) float32 { return s.ref[t] }))
	}
	return loss
}

// ratioBase are the log-probabilities that ratios are taken with.
func (s *sample) ratioBase() []float32 {
	if s.base != nil {
		return s.base
	}
	return s.old
}

// tally adds up what the updates of a step report.
type tally struct {
	metrics                     grpo.Metrics
	entropy, tokens             float64
	norm                        float64
	updates, skipped, notFinite int
}

func (t *tally) add(o *nn.Outcome) error {
	m, err := grpo.MetricsFromVector(o.Sums)
	if err != nil {
		return err
	}
	t.metrics.Add(m)
	for _, e := range o.Entropy {
		t.entropy += float64(e)
	}
	t.tokens += float64(len(o.Entropy))
	return nil
}

// stats returns the means. What was not measured is NaN, not 0: everything that is taken per token in a step without
// trained tokens, the gradient's norm without an update, and the KL without a reference.
func (t *tally) stats(reference bool) Stats {
	some := t.tokens > 0
	return Stats{
		"train/updates": float64(t.updates), "train/skipped_updates": float64(t.skipped),
		"train/non_finite_updates": float64(t.notFinite), "train/trained_tokens": t.tokens,
		"train/policy_loss": t.metrics.PolicyLoss, "train/kl_loss": t.metrics.KLLoss,
		"train/kl":         measured(some && reference, t.metrics.MeanK3()),
		"train/kl_k1":      measured(some && reference, t.metrics.MeanK1()),
		"train/clip_frac":  measured(some, t.metrics.ClipFrac()),
		"train/ratio_mean": measured(some, t.metrics.MeanRatio()),
		"train/entropy":    measured(some, t.entropy/t.tokens),
		"train/grad_norm":  measured(t.updates > 0, t.norm/float64(t.updates)),
	}
}

// measured returns value, or NaN if it was not measured.
func measured(ok bool, value float64) float64 {
	if !ok {
		return math.NaN()
	}
	return value
}
