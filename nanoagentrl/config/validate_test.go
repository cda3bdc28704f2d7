package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestValidateNamesTheKeyAndTheWayOut(t *testing.T) {
	for overrides, message := range map[string]string{
		"backend=gpu":                           `backend: got "gpu", want one of auto, xla, cuda, go`,
		"bm25_b=1.5":                            "bm25_b: got 1.5, want at most 1",
		"topk=0":                                "topk: got 0, want at least 1",
		"topk=1000000000":                       "topk: got 1000000000, want at most 1000",
		"temperature=0":                         "temperature: got 0, want more than 0",
		"lr=-1":                                 "lr: got -1, want at least 0",
		"lr=.nan":                               "lr: got NaN, want a finite number",
		"reward_em=.inf":                        "reward_em: got +Inf, want a finite number",
		"group_size=1":                          "group_size: got 1, want at least 2: the baseline is the mean reward of the group",
		"group_size=0":                          "group_size: got 0, want at least 2",
		"group_size=1000000000000":              "group_size: got 1000000000000, with 16 prompts a step more than 1000000 episodes",
		"minibatches=3":                         "minibatches: 3 does not divide prompts_per_step (16)",
		"minibatches=0":                         "minibatches: got 0, want at least 1",
		"random_hidden=66":                      "random_hidden: 66 is not a multiple of 2 x random_heads (8)",
		"random_kv_heads=3":                     "random_kv_heads: 3 does not divide random_heads (4)",
		"random_heads=0":                        "random_heads: got 0, want at least 1",
		"model=":                                "model: is empty",
		"run_dir=":                              "run_dir: is empty",
		"corpus=":                               "corpus: is empty; task search needs a corpus or a retriever_url",
		"train_data=x.jsonl":                    "corpus: tiny does not hold the answers to the questions of x.jsonl",
		"corpus=x.jsonl":                        "corpus: x.jsonl does not hold the answers to the questions of tiny",
		"train_data=facts:train":                "corpus: tiny does not hold the answers to the questions of facts:train",
		"corpus=facts":                          "corpus: facts does not hold the answers to the questions of tiny",
		"train_data=facts:dev":                  `train_data: got "facts:dev", want facts:train, facts:val or facts:test`,
		"eval_data=[sums]":                      `eval_data: got "sums", want sums:train, sums:val or sums:test (a folder of this name is ./sums)`,
		"eval_data=[sums:test]":                 "eval_data: sums:test goes with task: gsm8k",
		"task=gsm8k train_data=facts:train":     "train_data: facts:train goes with task: search",
		"world_hops=three":                      `world_hops: got "three", want one of one, two, mixed`,
		"world_noise=2":                         "world_noise: got 2, want at most 1",
		"retriever_url=localhost:8000":          `retriever_url: got "localhost:8000", want an address such as http://`,
		"opensearch_url=http://h:9200 corpus=x": "opensearch_url: and opensearch_index go together",
		"opensearch_index=x corpus=x":           "opensearch_url: and opensearch_index go together",
		"opensearch_url=http://h opensearch_index=x":                                "corpus: tiny is made in memory and cannot lie in opensearch_index",
		"opensearch_url=http://h opensearch_index=x corpus= retriever_url=http://h": "retriever_url: is http://h, and opensearch_url is set too",
		"opensearch_url=http://h opensearch_index=x corpus= index=d":                "index: is d, and opensearch_url is set too",
		"retriever_url=http://":          `retriever_url: got "http://", want an address such as http://`,
		"user_prompt=Answer!":            "user_prompt: has no {question}",
		"reward_em=0":                    "reward_em: is 0 and so is every other reward_ key",
		"task=gsm8k reward_f1=1":         "reward_f1: and reward_lenient are for task search",
		"eval_data=[]":                   "eval_data: is empty; name a file, or set eval_every: 0 and eval_at_start: false",
		"eval_data=[tiny,tiny]":          "eval_data: two files give the split ._tiny; copy or rename one",
		"eval_samples=4":                 "eval_samples: is 4, but with eval_temperature 0 all samples are the same",
		"max_context=1024":               "max_context: max_new_tokens + max_obs_tokens (1024) leaves no room for a prompt",
		"task=gsm8k max_new_tokens=2048": "max_context: max_new_tokens (2048) leaves no room for a prompt in 2048 tokens",
		"keep_last=0":                    "keep_last: got 0, want at least 1",
		"adam_beta2=1":                   "adam_beta2: got 1, want at most",
	} {
		_, _, err := Open(write(t, valid), strings.Fields(overrides))
		if assert.Error(t, err, overrides) {
			assert.Contains(t, err.Error(), ": "+message, overrides)
		}
	}
}

func TestValidateAccepts(t *testing.T) {
	for _, overrides := range []string{
		"minibatches=4",
		"train_data=facts:train eval_data=[facts:val,facts:test] corpus=facts",
		"train_data=./facts eval_data=[] eval_every=0 eval_at_start=false corpus=facts.jsonl",
		"task=gsm8k train_data=sums:train eval_data=[sums:test]",
		"eval_data=[] eval_every=0 eval_at_start=false",
		"eval_samples=4 eval_temperature=0.7",
		"corpus= retriever_url=https://host/retrieve",
		"corpus= opensearch_url=https://host:9200 opensearch_index=wiki-18",
		"train_data=nq:train eval_data=[hotpotqa,2wiki:dev] corpus=hotpotqa index=x data_dir=d",
		"task=gsm8k corpus=",
		"prompt_source=row user_prompt=unused",
		"max_context=0 max_new_tokens=100000",
		"steps=0", "kl_coef=0", "max_grad_norm=0", "lr=0", "max_new_tokens=128 max_turn_tokens=256",
	} {
		_, _, err := Open(write(t, valid), strings.Fields(overrides))
		assert.NoError(t, err, overrides)
	}
}

func TestValidateCollectsAllFaults(t *testing.T) {
	path := write(t, valid)
	_, _, err := Open(path, []string{"group_size=1", "lr=-1", "backend=gpu"})
	require.Error(t, err)
	lines := strings.Split(err.Error(), "\n")
	assert.Len(t, lines, 3)
}

// TestTagsOfFields guards against a tag that checkField would silently not read.
func TestTagsOfFields(t *testing.T) {
	typ := reflect.TypeFor[Config]()
	keys := map[string]bool{}
	for i := range typ.NumField() {
		field := typ.Field(i)
		key := field.Tag.Get("yaml")
		assert.Regexp(t, "^[a-z0-9_]+$", key, field.Name)
		assert.False(t, keys[key], "%s twice", key)
		keys[key] = true
		for _, tag := range []string{"min", "max", "above"} {
			if text, ok := field.Tag.Lookup(tag); ok {
				assert.Regexp(t, `^[0-9.]+$`, text, key)
				assert.Contains(t, []reflect.Kind{reflect.Int, reflect.Float64}, field.Type.Kind(), key)
			}
		}
		_, free := field.Tag.Lookup("free")
		assert.Equal(t, free, field.Tag.Get("free") == "true", key)
		if _, ok := field.Tag.Lookup("oneof"); ok {
			assert.Equal(t, reflect.String, field.Type.Kind(), key)
		}
	}
	assert.Len(t, Keys(), typ.NumField())
}

func TestContextFor(t *testing.T) {
	c := open(t, valid)
	limit, err := c.ContextFor(8192)
	require.NoError(t, err)
	assert.Equal(t, 2048, limit)
	_, err = c.ContextFor(1024)
	require.EqualError(t, err, "max_context: got 2048, but the model takes at most 1024 tokens")

	c.MaxContext = 0
	limit, err = c.ContextFor(8192)
	require.NoError(t, err)
	assert.Equal(t, 8192, limit)
	_, err = c.ContextFor(1024)
	require.ErrorContains(t, err, "max_new_tokens + max_obs_tokens (1024) leaves no room")
}

func TestEvalSplitsAreToldApart(t *testing.T) {
	for _, test := range []struct{ paths, splits []string }{
		{[]string{"tiny"}, []string{"tiny"}},
		{[]string{"data/nq.jsonl", "data/test.v2.parquet"}, []string{"nq", "test.v2"}},
		{[]string{"data/nq/test.jsonl", "data/hotpotqa/test.parquet"}, []string{"nq_test", "hotpotqa_test"}},
		{[]string{"nq", "hotpotqa:dev", "facts:test"}, []string{"nq", "hotpotqa_dev", "facts_test"}},
		{[]string{"nq:dev", "nq:test", "my.v1:x"}, []string{"nq_dev", "nq_test", "my"}},
		{nil, []string{}},
	} {
		assert.Equal(t, test.splits, (&Config{EvalData: test.paths}).EvalSplits())
	}
}
