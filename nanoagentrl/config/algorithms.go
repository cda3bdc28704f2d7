package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// algorithms are the values that each algorithm brings along, as they would be written after --set; what is not listed
// keeps its default. docs/grpo_math.md derives the methods, docs/training.md has this table.
var algorithms = map[string]map[string]string{
	// GRPO (arXiv:2402.03300) is what Default says: group advantages divided by their standard deviation, a clip for
	// each token, k3 in the loss.
	"grpo": {},
	// Dr. GRPO (arXiv:2503.20783) leaves out what weighs questions and lengths unevenly.
	"dr_grpo": {"adv_std_norm": "false", "loss_agg": "dr_grpo"},
	// RLOO (arXiv:2402.14740) is REINFORCE on whole episodes: every token counts the same whatever the length, and the
	// KL penalty is part of the reward.
	"rloo": {"advantage": "rloo", "loss_agg": "dr_grpo", "kl_in": "reward", "kl_estimator": "k1"},
	// REINFORCE++ (arXiv:2501.03262) needs no groups.
	"reinforce_pp": {"advantage": "reinforce_pp", "kl_in": "reward", "kl_estimator": "k1"},
	// Its form with a group's mean as baseline, for rewards that are right or wrong.
	"reinforce_pp_baseline": {"advantage": "reinforce_pp_baseline", "kl_estimator": "k2"},
	// PPO (arXiv:1707.06347) with a critic, as language models are trained with it.
	"ppo": {"advantage": "gae", "kl_in": "reward", "kl_estimator": "k1"},
	// DAPO (arXiv:2503.14476): clip-higher, token mean, dynamic sampling, soft overlong punishment, no KL.
	"dapo": {"clip_high": "0.28", "loss_agg": "token_mean", "dynamic_sampling": "3", "drop_zero_signal": "true",
		"overlong_penalty": "1", "kl_coef": "0"},
	// GSPO (arXiv:2507.18071) clips whole sequences, within a range that is as narrow as their mean ratio is close to 1.
	"gspo": {"ratio": "sequence", "clip_low": "3e-4", "clip_high": "4e-4", "loss_agg": "seq_mean"},
}

// follow moves the keys that stand where the current algorithm put them to where the named one wants them. An unknown
// name, which Validate refuses, changes nothing.
func (c *Config) follow(name string) {
	if _, known := algorithms[name]; !known {
		return
	}
	before, after := presetOf(c.Algorithm), presetOf(name)
	for _, key := range algorithmKeys() {
		was, _ := before.field(key)
		is, _ := after.field(key)
		now, _ := c.field(key)
		if now.Interface() == was.Interface() {
			now.Set(is)
		}
	}
}

// presetOf returns the defaults of an algorithm.
func presetOf(name string) *Config {
	c := Default()
	for key, value := range algorithms[name] {
		if _, err := c.set(key, value); err != nil {
			panic(err) // a fault of the table above
		}
	}
	return c
}

// algorithmKeys are the keys that an algorithm may set, in alphabetic order.
func algorithmKeys() []string {
	all := map[string]bool{}
	for _, preset := range algorithms {
		for key := range preset {
			all[key] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// algorithmOf returns the algorithm that overrides choose, or "".
func algorithmOf(overrides []string) (name string) {
	for _, override := range overrides {
		if key, value, ok := strings.Cut(override, "="); ok && strings.TrimSpace(key) == "algorithm" {
			name = value
		}
	}
	return name
}

// algorithmIn returns the algorithm that a file chooses, or "".
func algorithmIn(root *yaml.Node) string {
	if root == nil || root.Kind != yaml.MappingNode {
		return ""
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == "algorithm" {
			return root.Content[i+1].Value
		}
	}
	return ""
}

// Deviations returns the keys whose values are not what the algorithm brings along, "key: its value -> ours" each: a run
// of DAPO without its wider clip is not quite DAPO. Keys that no algorithm sets are not looked at.
func (c *Config) Deviations() (deviations []string) {
	preset := presetOf(c.Algorithm)
	for _, key := range algorithmKeys() {
		its, _ := preset.field(key)
		ours, _ := c.field(key)
		if its.Interface() != ours.Interface() {
			deviations = append(deviations, fmt.Sprintf("%s: %s -> %s", key, format(its), format(ours)))
		}
	}
	return deviations
}

// Warnings returns what a run should say aloud before it starts: settings that are allowed, since one may want to study
// them, and that nobody should have by accident.
func (c *Config) Warnings() (warnings []string) {
	if !c.LossMask {
		warnings = append(warnings, "loss_mask is false: the policy is trained to write the retrieved passages itself, "+
			"which is known to ruin it. This is for showing that; for anything else remove the key")
	}
	if c.KLCoef > 0 && c.KLIn == "loss" && c.KLEstimator == "k1" {
		warnings = append(warnings, "kl_estimator k1 in the loss only adds noise: its gradient is 0 on average, so nothing "+
			"holds the policy to its reference. Take k2 or k3, or kl_in: reward")
	}
	return warnings
}
