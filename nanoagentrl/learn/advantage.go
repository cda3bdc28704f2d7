package learn

import (
	"cmp"
	"context"
	"fmt"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/grpo"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
)

// samples returns a sample for each episode, nil for those that cannot be trained on.
func (l *Learner) samples(episodes []*episode.Episode) []*sample {
	samples := make([]*sample, len(episodes))
	for i, e := range episodes {
		if e.Trainable() {
			samples[i] = newSample(e, l.opts.TrainEnvironment)
		}
	}
	return samples
}

// score computes what has to be known of the episodes before their advantages: the reference's log-probabilities
// where the KL penalty is in the reward, the critic's values, and the policy's own log-probabilities of tokens that it
// did not sample but is to be trained on. In plain GRPO there is nothing to do.
func (l *Learner) score(ctx context.Context, samples []*sample) error {
	if !l.opts.TrainEnvironment && !l.penalised() && l.critic == nil {
		return nil
	}
	var all []*sample
	for _, s := range samples {
		if s != nil {
			all = append(all, s)
		}
	}
	for _, micro := range microBatches(all, l.opts.MicroBatchTokens) {
		if err := ctx.Err(); err != nil {
			return err
		}
		batch, err := rows(micro)
		if err != nil {
			return err
		}
		if err := l.scoreBatch(micro, batch); err != nil {
			return err
		}
	}
	return nil
}

func (l *Learner) scoreBatch(micro []*sample, batch *nn.Batch) error {
	if l.opts.TrainEnvironment {
		logp, err := l.logProbs(batch)
		if err != nil {
			return err
		}
		share(micro, logp, (*sample).setEnvironmentOld)
	}
	if l.penalised() {
		if err := l.setReference(micro, batch); err != nil {
			return err
		}
	}
	if l.critic == nil {
		return nil
	}
	values, err := l.critic.net.Values(batch)
	if err != nil {
		return fmt.Errorf("scoring with the critic: %w", err)
	}
	share(micro, values, func(s *sample, values []float32) { s.values = values })
	return nil
}

// setEnvironmentOld takes the policy's own log-probabilities, as it scores them before the step, for those of tokens
// that were not sampled: their ratio is 1 until the first update.
func (s *sample) setEnvironmentOld(logp []float32) {
	for i, t := range s.places {
		if s.ep.Sources[t] != episode.Policy {
			s.old[i] = logp[i]
		}
	}
}

// penalised reports whether a KL penalty is taken off the reward.
func (l *Learner) penalised() bool { return l.opts.KLInReward && l.opts.Loss.KLCoef > 0 }

// estimator is the one of the options; none is grpo.Group.
func (l *Learner) estimator() grpo.Estimator { return cmp.Or(l.opts.Estimator, grpo.Group) }

// setAdvantages writes the advantages into the episodes, and what the critic should have predicted into the samples. It
// returns what carried no signal, and the mean penalty of an episode. Episodes that cannot be trained on are left out of
// all comparisons.
func (l *Learner) setAdvantages(episodes []*episode.Episode, samples []*sample) (*grpo.AdvantageStats, float64, error) {
	batch := make([]grpo.Trajectory, len(episodes))
	penalty, trainable := 0.0, 0
	for i, e := range episodes {
		t := grpo.Trajectory{Group: e.Group, Reward: e.Reward, Excluded: samples[i] == nil, Mask: make([]bool, len(e.IDs))}
		if s := samples[i]; s != nil {
			t.Mask = s.mask()
			t.Values = s.scatter(s.values)
			if l.penalised() {
				var err error
				loss := l.opts.Loss
				t.Penalty, err = loss.KLEstimator.Penalties(s.scatter(s.old), s.scatter(s.ref), t.Mask, loss.KLCoef)
				if err != nil {
					return nil, 0, err
				}
				for _, p := range t.Penalty {
					penalty += p
				}
			}
			trainable++
		} else if l.critic != nil {
			t.Values = make([]float64, len(e.IDs))
		}
		batch[i] = t
	}
	estimates, err := l.estimator().Estimate(batch, l.opts.Advantage)
	if err != nil {
		return nil, 0, err
	}
	for i, e := range episodes {
		e.SetAdvantages(estimates.Advantages[i], batch[i].Mask)
		if s := samples[i]; s != nil {
			s.noSignal = estimates.Stats.NoSignal[i]
			if estimates.Returns != nil {
				s.returns = s.gather(estimates.Returns[i])
			}
		}
	}
	return estimates.Stats, penalty / float64(max(trainable, 1)), nil
}
