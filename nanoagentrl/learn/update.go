package learn

import (
	"context"
	"errors"
	"fmt"
	"math"

	. "github.com/gomlx/gomlx/pkg/core/graph"

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
	// MicroBatchTokens bounds the tokens that go through the model at once.
	MicroBatchTokens int
}

// Learner changes the weights of a policy so that episodes with a positive advantage become more likely.
type Learner struct {
	policy *policy.Policy
	// reference is nil if no KL penalty is taken.
	reference *policy.Policy
	optimizer *AdamW
	opts      Options
}

// NewLearner returns a Learner. reference may be nil if the KL coefficient is 0.
func NewLearner(p, reference *policy.Policy, optimizer *AdamW, opts Options) (*Learner, error) {
	if reference == nil && opts.Loss.KLCoef > 0 {
		return nil, errors.New("learn: a KL penalty needs a reference policy")
	}
	return &Learner{policy: p, reference: reference, optimizer: optimizer, opts: opts}, nil
}

// Stats is what an update reports, under the names of the metrics.
type Stats map[string]float64

// SetAdvantages writes the group-relative advantage of each episode and returns what carried no signal. Episodes that
// cannot be trained on are left out of their group's baseline.
func SetAdvantages(episodes []*episode.Episode, opts grpo.AdvantageOptions) (*grpo.AdvantageStats, error) {
	rewards, groups, excluded := make([]float64, len(episodes)), make([]int, len(episodes)), make([]bool, len(episodes))
	for i, e := range episodes {
		rewards[i], groups[i], excluded[i] = e.Reward, e.Group, !e.Trainable()
	}
	advantages, stats, err := grpo.Advantages(rewards, groups, excluded, opts)
	if err != nil {
		return nil, err
	}
	for i, e := range episodes {
		e.Advantage = advantages[i]
	}
	return stats, nil
}

// Update makes InnerEpochs x Minibatches weight updates from the episodes of one step, whose rewards are set. When ctx
// ends before the first of them, nothing has changed; once it is made, all are made, so that a step is never left half
// done.
func (l *Learner) Update(ctx context.Context, episodes []*episode.Episode, lr float64) (Stats, error) {
	signal, err := SetAdvantages(episodes, l.opts.Advantage)
	if err != nil {
		return nil, err
	}
	total := &tally{}
	parts := l.minibatches(episodes, signal)
	for epoch := range l.opts.InnerEpochs {
		for _, part := range parts {
			if err := l.updateOnce(ctx, part, epoch == 0, lr, total); err != nil {
				return nil, err
			}
		}
	}
	stats := total.stats(l.reference != nil)
	stats["train/zero_signal_group_frac"] = signal.ZeroSignalFrac()
	stats["train/non_finite_rewards"] = float64(signal.NonFinite)
	stats["train/lr"] = lr
	return stats, nil
}

// minibatches cuts the step into parts of whole groups and gives each sample its weight in its part. Samples whose
// gradient is 0, for lack of signal and of a KL penalty, count in the weights of the others but need not be computed.
// A part none of whose samples has a gradient is empty.
func (l *Learner) minibatches(episodes []*episode.Episode, signal *grpo.AdvantageStats) [][]*sample {
	groups := 0
	for _, e := range episodes {
		groups = max(groups, e.Group+1)
	}
	perPart := max(1, (groups+l.opts.Minibatches-1)/l.opts.Minibatches)
	var parts [][]*sample
	for first := 0; first < groups; first += perPart {
		var members []*episode.Episode
		var lengths []int
		for i, e := range episodes {
			if e.Group < first || e.Group >= first+perPart {
				continue
			}
			length := e.CountTokens(episode.Policy)
			if !e.Trainable() || l.opts.DropZeroSignal && signal.NoSignal[i] {
				length = 0
			}
			members, lengths = append(members, e), append(lengths, length)
		}
		weights, err := grpo.TokenWeights(lengths, l.opts.Aggregation, l.opts.ConstantLength)
		if err != nil {
			panic(err) // the options were checked when the run began
		}
		var part []*sample
		for i, e := range members {
			if lengths[i] > 0 && (e.Advantage != 0 || l.opts.Loss.KLCoef > 0) {
				part = append(part, newSample(e, weights[i]))
			}
		}
		parts = append(parts, part)
	}
	return parts
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
		batch, err := rows(micro)
		if err != nil {
			return err
		}
		if first && l.reference != nil {
			if err := l.setReference(micro, batch); err != nil {
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

// setReference scores the policy tokens of the samples with the frozen reference.
func (l *Learner) setReference(samples []*sample, batch *nn.Batch) error {
	logp, _, err := l.reference.Program.LogProbs(l.reference.Params, batch, l.opts.Temperature)
	if err != nil {
		return fmt.Errorf("scoring with the reference: %w", err)
	}
	for _, s := range samples {
		s.ref, logp = logp[:len(s.old)], logp[len(s.old):]
	}
	return nil
}

// loss is GRPO's token loss over the policy tokens of the samples.
func (l *Learner) loss(samples []*sample) nn.Loss {
	opts := l.opts.Loss
	loss := nn.Loss{
		Name: fmt.Sprintf("grpo %+v reference %v", opts, l.reference != nil),
		Extras: [][]float32{
			spread(samples, func(s *sample, t int) float32 { return s.old[t] }),
			spread(samples, func(s *sample, _ int) float32 { return float32(s.ep.Advantage) }),
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
	measured := func(ok bool, value float64) float64 {
		if !ok {
			return math.NaN()
		}
		return value
	}
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
