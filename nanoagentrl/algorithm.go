package nanoagentrl

import (
	"fmt"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/grpo"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/learn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/reward"
)

// learnOptions are the settings of the weight updates.
func learnOptions(cfg *config.Config) learn.Options {
	return learn.Options{
		Advantage: grpo.AdvantageOptions{DivideByStd: cfg.AdvStdNorm, Eps: cfg.AdvEps, Gamma: cfg.Gamma, Lambda: cfg.GAELambda},
		Loss: grpo.LossOptions{ClipLow: cfg.ClipLow, ClipHigh: cfg.ClipHigh, KLCoef: cfg.KLCoef,
			KLEstimator: grpo.KLEstimator(cfg.KLEstimator)},
		Estimator: grpo.Estimator(cfg.Advantage), Ratio: grpo.Ratio(cfg.Ratio), KLInReward: cfg.KLIn == "reward",
		Aggregation: grpo.Aggregation(cfg.LossAgg), ConstantLength: cfg.MaxNewTokens, Temperature: cfg.Temperature,
		InnerEpochs: cfg.InnerEpochs, Minibatches: cfg.Minibatches, DropZeroSignal: cfg.DropZeroSignal,
		TrainEnvironment: !cfg.LossMask, MicroBatchTokens: cfg.MicroBatchTokens,
	}
}

// adamWOptions are those of policy and critic.
func adamWOptions(cfg *config.Config) learn.AdamWOptions {
	return learn.AdamWOptions{Beta1: cfg.AdamBeta1, Beta2: cfg.AdamBeta2, Eps: cfg.AdamEps, WeightDecay: cfg.WeightDecay,
		MaxGradNorm: cfg.MaxGradNorm}
}

// newScorer returns the scorer of training and evaluation, with the format's full weight.
func newScorer(cfg *config.Config) (*reward.Scorer, error) {
	s, err := reward.NewScorer(reward.Weights{EM: cfg.RewardEM, EMNumber: cfg.RewardEM, F1: cfg.RewardF1,
		EMLenient: cfg.RewardLenient, Format: cfg.RewardFormat, ValidTurns: cfg.RewardValidTurns}, false)
	if err != nil || cfg.OverlongPenalty == 0 {
		return s, err
	}
	buffer := cfg.OverlongBuffer
	if buffer == 0 {
		buffer = max(1, cfg.MaxNewTokens/5)
	}
	return s.Penalise(reward.Overlong{Weight: cfg.OverlongPenalty, Limit: cfg.MaxNewTokens, Buffer: buffer})
}

// openCritic makes the critic, from the policy's weights, if the algorithm has one.
func (r *Run) openCritic() error {
	cfg := r.Config
	if !grpo.Estimator(cfg.Advantage).NeedsCritic() {
		return nil
	}
	net, err := nn.NewCritic(r.Policy.Program, r.Policy.Params)
	if err != nil {
		return err
	}
	r.critic = learn.NewCritic(net, adamWOptions(cfg), cfg.ValueClip)
	fmt.Fprintf(r.opts.Out, "critic   the policy's shape and weights, with a value head; lr %g\n", cfg.CriticLR)
	return nil
}
