package config

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSavedFileLoadsToTheSameConfig(t *testing.T) {
	c := open(t, valid, "lr=1e-5", "eval_data=[tiny]", "seed=18446744073709551615",
		"system_prompt=null", "user_prompt=  a: \"b\" # no comment\n\n{question}\n ", "best_metric=",
		"run_dir=/a/ä b")
	path := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, c.Save(path))
	again, err := Load(path)
	require.NoError(t, err)
	assert.Equal(t, c, again)

	before, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, again.Save(path))
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(before), string(after))
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	assert.Len(t, entries, 1, "no temporary file stays")
}

func TestSavedFileHoldsEveryKeyWithItsComment(t *testing.T) {
	text, err := open(t, valid).YAML()
	require.NoError(t, err)
	last := -1
	for _, key := range Keys() {
		d := docs()[key]
		require.NotEmpty(t, d.lines, key)
		assert.True(t, strings.HasPrefix(d.lines[0], key+" "), "comment of %s begins with %q", key, d.lines[0])
		at := strings.Index(string(text), "# "+strings.Join(d.lines, "\n# ")+"\n"+key+": ")
		assert.Greater(t, at, last, "%s is missing or out of order", key)
		last = at
	}
	assert.Contains(t, string(text), "\n# --- rollout ---\n")
	assert.Contains(t, string(text), "\nlr: 1e-06\n")
}

func TestSaveToAMissingFolderNamesThePath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing", "config.yaml")
	require.ErrorContains(t, open(t, valid).Save(path), path)
}

func TestHashCoversExactlyTheKeysThatChangeTheResult(t *testing.T) {
	values := map[string]string{ // another valid value for each key
		"run_dir": "elsewhere", "seed": "1", "backend": "go", "dtype": "bf16", "model": "m",
		"offline": "true", "reference": "r", "random_layers": "3", "random_hidden": "128", "random_heads": "8",
		"random_kv_heads": "1", "random_intermediate": "64", "task": "gsm8k", "train_data": "t",
		"eval_data": "[e]", "max_train_questions": "1", "max_eval_questions": "1", "corpus": "c", "data_dir": "d", "index": "i", "retriever_max_failures": "1",
		"retriever_kind": "dense", "encoder": "e", "retriever_url": "http://h/r", "opensearch_url": "http://h", "opensearch_index": "i",
		"retriever_timeout_sec": "1", "retriever_retries": "1", "bm25_k1": "1",
		"bm25_b": "1", "prompt_source": "row", "system_prompt": "s", "user_prompt": "{question}",
		"chat_template": "never", "prompts_per_step": "1", "group_size": "2", "temperature": "2", "max_turns": "1",
		"max_new_tokens": "1", "max_turn_tokens": "1", "topk": "1", "max_obs_tokens": "32", "max_context": "4096",
		"long_prompt": "skip", "rollout_batch": "1", "reward_em": "2", "reward_f1": "1", "reward_lenient": "1",
		"reward_format": "1", "reward_valid_turns": "1", "format_anneal_steps": "1", "overlong_penalty": "1",
		"overlong_buffer": "1", "algorithm": "gspo", "advantage": "gae", "gamma": "0.9", "gae_lambda": "0.9",
		"adv_std_norm": "false", "adv_eps": "1", "ratio": "sequence", "clip_low": "0.1", "clip_high": "0.1",
		"kl_coef": "0", "kl_estimator": "k1", "kl_in": "reward", "loss_mask": "false", "dynamic_sampling": "1",
		"critic_lr": "1", "value_clip": "1", "stop_on_collapse": "true", "loss_agg": "dr_grpo", "inner_epochs": "2", "minibatches": "2", "drop_zero_signal": "true",
		"steps": "1", "lr": "1", "lr_schedule": "linear", "warmup_steps": "1", "weight_decay": "1",
		"adam_beta1": "0.8", "adam_beta2": "0.8", "adam_eps": "1", "max_grad_norm": "2", "micro_batch_tokens": "1",
		"activation_gb": "1", "showcase": "true", "figure": "f.png",
		"eval_every": "1", "eval_at_start": "false", "eval_temperature": "1", "eval_samples": "2",
		"sample_every": "1", "save_every": "1", "keep_last": "1", "keep_every": "1", "best_metric": "b",
		"world_seed": "2", "world_people": "50", "world_eval_people": "50", "world_hops": "two", "world_facts": "1",
		"world_noise": "0", "world_sums": "9", "world_eval_sums": "9", "world_steps": "1", "world_largest": "24",
		"shuffle_passages": "true",
	}
	free := []string{
		"data_dir", "index", "retriever_max_failures",
		"run_dir", "backend", "offline", "eval_data", "max_eval_questions", "retriever_timeout_sec",
		"retriever_retries", "rollout_batch", "micro_batch_tokens", "activation_gb", "showcase", "figure", "eval_every", "eval_at_start",
		"eval_temperature", "eval_samples", "sample_every", "save_every", "keep_last", "keep_every", "best_metric",
		"stop_on_collapse", "steps",
	}
	assert.ElementsMatch(t, Keys(), slices.Collect(maps.Keys(values)))
	base := open(t, valid)
	for key, value := range values {
		c := open(t, valid)
		change, err := c.Set(key, value)
		require.NoError(t, err, key)
		require.NotEmpty(t, change, key)
		changed := Changed(base.Fingerprint(), c.Fingerprint())
		if slices.Contains(free, key) {
			assert.Equal(t, base.Hash(), c.Hash(), key)
			assert.Empty(t, changed, key)
		} else {
			assert.NotEqual(t, base.Hash(), c.Hash(), key)
			assert.Contains(t, changed, change)
		}
	}
}

func TestStepsBelongToTheHashOnlyWithASchedule(t *testing.T) {
	hash := func(overrides ...string) string { return open(t, valid, overrides...).Hash() }
	assert.Equal(t, hash("steps=10"), hash("steps=20"))
	assert.NotEqual(t, hash("steps=10", "lr_schedule=cosine"), hash("steps=20", "lr_schedule=cosine"))
}

func TestChangedNamesAddedAndRemovedKeys(t *testing.T) {
	before := map[string]string{"a": "1", "b": "2", "c": "3"}
	assert.Equal(t, []string{"a: 1 -> (none)", "b: 2 -> 4", "d: (none) -> 5"},
		Changed(before, map[string]string{"b": "4", "c": "3", "d": "5"}))
	assert.Empty(t, Changed(before, before))
	assert.Equal(t, []string{"a: (none) -> 1"}, Changed(nil, map[string]string{"a": "1"}))
}

func TestSummaryPrintsTheEffectiveBatch(t *testing.T) {
	summary := open(t, valid, "prompts_per_step=4", "group_size=6", "minibatches=2", "inner_epochs=3",
		"steps=10").Summary()
	assert.Contains(t, summary, "4 prompts x 6 samples = 24 episodes a step")
	assert.Contains(t, summary, "6 weight updates a step, each over 12 episodes")
	assert.Contains(t, summary, "10 steps = 40 prompts, 240 episodes")
	assert.Contains(t, summary, "BM25 in process over tiny, top 3, at most 4 turns")
	assert.LessOrEqual(t, strings.Count(summary, "\n"), 6)
}
