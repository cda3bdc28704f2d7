package learn

import (
	"context"
	"errors"
	"fmt"

	. "github.com/gomlx/gomlx/pkg/core/graph"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/grpo"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
)

// Critic predicts what an episode will be worth, before each token of the policy (PPO, arXiv:1707.06347). It has weights
// and an optimiser of its own, so it is trained apart from the policy: its targets and the advantages are fixed before
// either moves.
type Critic struct {
	net       *nn.Critic
	optimizer *AdamW
	// clip bounds how far the loss lets a value move from what it was before the step; 0 does not bound it.
	clip float64
}

// NewCritic returns a critic to be given to Learner.UseCritic. opts are those of its AdamW.
func NewCritic(net *nn.Critic, opts AdamWOptions, clip float64) *Critic {
	return &Critic{net: net, clip: clip, optimizer: NewAdamW(net.Program().Device(), len(net.Names()), opts)}
}

// Step returns the number of updates made.
func (c *Critic) Step() int { return c.optimizer.Step() }

// Free releases weights and moments.
func (c *Critic) Free() {
	c.net.Free()
	c.optimizer.Free()
}

// update makes opts.InnerEpochs weight updates from each part and adds what it found to stats. Until the first weight
// update of the step, which started says the policy has made, it ends with ctx.
func (c *Critic) update(ctx context.Context, started bool, parts [][]*sample, opts Options, lr float64,
	stats Stats) error {
	total := &criticTally{}
	for range opts.InnerEpochs {
		for _, part := range parts {
			var usable []*sample
			for _, s := range part {
				if !s.noSignal {
					usable = append(usable, s)
				}
			}
			if err := ctx.Err(); err != nil && !started && total.updates == 0 {
				return err
			}
			if err := c.updateOnce(usable, opts.MicroBatchTokens, lr, total); err != nil {
				return fmt.Errorf("critic: %w", err)
			}
		}
	}
	total.addTo(stats)
	stats["train/critic_lr"] = lr
	addPredictions(stats, parts)
	return nil
}

// updateOnce makes one weight update; an empty part makes none.
func (c *Critic) updateOnce(part []*sample, budget int, lr float64, total *criticTally) error {
	if len(part) == 0 {
		return nil
	}
	grads := c.net.NewGradients()
	defer grads.Free()
	for _, micro := range microBatches(part, budget) {
		batch, err := rows(micro)
		if err != nil {
			return err
		}
		sums, err := c.net.Backward(batch, c.loss(micro), grads)
		if err != nil {
			return err
		}
		m, err := grpo.ValueMetricsFromVector(sums)
		if err != nil {
			return err
		}
		total.metrics.Add(m)
	}
	norm, err := c.optimizer.Apply(c.net, grads, lr)
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

// loss is the clipped squared error over the trained tokens of the samples.
func (c *Critic) loss(samples []*sample) nn.Loss {
	return nn.Loss{
		Name: fmt.Sprintf("value clip %g", c.clip),
		Extras: [][]float32{
			spread(samples, func(s *sample, t int) float32 { return s.values[t] }),
			spread(samples, func(s *sample, t int) float32 { return s.returns[t] }),
			spread(samples, func(s *sample, _ int) float32 { return float32(s.weight) }),
		},
		Fn: func(values, inside *Node, extras []*Node) (*Node, *Node) {
			return grpo.ValueLoss(values, extras[0], extras[1], inside, extras[2], c.clip)
		},
	}
}

// criticTally adds up what the updates of a step report.
type criticTally struct {
	metrics            grpo.ValueMetrics
	norm               float64
	updates, notFinite int
}

func (t *criticTally) addTo(stats Stats) {
	some := t.metrics.Tokens > 0
	stats["train/critic_updates"] = float64(t.updates)
	stats["train/critic_non_finite_updates"] = float64(t.notFinite)
	stats["train/value_loss"] = measured(some, t.metrics.Loss)
	stats["train/value_clip_frac"] = measured(some, t.metrics.Clipped/t.metrics.Tokens)
	stats["train/critic_grad_norm"] = measured(t.updates > 0, t.norm/float64(t.updates))
}

// addPredictions adds how well the critic knew the returns before the step: the means of both and the share of the
// returns' variance that it explained, 1 - Var(R - V)/Var(R), which is below 0 if it does worse than a constant.
func addPredictions(stats Stats, parts [][]*sample) {
	var value, target, missed moments
	for _, part := range parts {
		for _, s := range part {
			if s.noSignal {
				continue
			}
			for t := range s.places {
				value.add(float64(s.values[t]))
				target.add(float64(s.returns[t]))
				missed.add(float64(s.returns[t]) - float64(s.values[t]))
			}
		}
	}
	stats["train/value_mean"] = measured(value.n > 0, value.mean())
	stats["train/return_mean"] = measured(target.n > 0, target.mean())
	stats["train/explained_variance"] = measured(target.variance() > 0, 1-missed.variance()/target.variance())
}

// moments are sums of numbers and their squares.
type moments struct{ n, sum, squares float64 }

func (m *moments) add(x float64) {
	m.n++
	m.sum += x
	m.squares += x * x
}

func (m *moments) mean() float64 { return m.sum / m.n }

func (m *moments) variance() float64 { return max(0, m.squares/m.n-m.mean()*m.mean()) }
