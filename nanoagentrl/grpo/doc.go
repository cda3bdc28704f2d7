// Package grpo is the mathematics of Group Relative Policy Optimization (DeepSeekMath, arXiv:2402.03300): group
// advantages, the clipped surrogate of PPO (arXiv:1707.06347), the k3 estimate of the KL divergence to a reference
// policy, and the weights that turn a sum over tokens into a mean. It knows only numbers: no models, no episodes, no
// files. docs/grpo_math.md derives every formula and works the examples that the tests check.
//
// Its relatives differ in few places, each a file: an Estimator makes advantages of rewards in other ways (rloo.go,
// reinforce_pp.go, ppo.go), SequenceOld gives the loss the ratio of whole sequences (gspo.go), a KLEstimator another
// penalty (kl.go), and ValueLoss trains PPO's critic (value_loss.go).
//
// One update over a batch reads
//
//	advantages, stats, err := grpo.Advantages(rewards, groups, excluded, grpo.DefaultAdvantageOptions())
//	weights, err := grpo.TokenWeights(lengths, grpo.TokenMean, 0) // one weight per sequence, from the whole batch
//	for each micro-batch:
//		loss, dlogp, metrics := grpo.TokenLoss(logp, old, ref, adv, mask, weight, opts) // in a graph
//		// feed dlogp, the gradient of the loss with respect to each log-probability, to the model's backward pass
//
// Since the weights are fixed before the batch is cut, losses, gradients and metrics of micro-batches simply add up.
//
// The loss exists twice: TokenLossFloat64 is plain Go and is the reference to read; TokenLoss builds the same thing as
// gomlx graph code. The tests hold them together.
package grpo
