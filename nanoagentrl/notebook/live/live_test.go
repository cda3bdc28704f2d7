package live

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/learn"
)

const tiny = `
backend: go
model: random
random_layers: 1
random_hidden: 16
random_heads: 2
random_kv_heads: 1
random_intermediate: 16
train_data: tiny
eval_data: [tiny]
corpus: tiny
max_eval_questions: 2
system_prompt: ""
user_prompt: "{question}"
chat_template: never
prompts_per_step: 1
group_size: 2
max_turns: 2
max_new_tokens: 8
max_obs_tokens: 48
max_context: 128
reward_format: 0.5
steps: 2
lr: 0.25
eval_every: 2
`

// A cell that is run again, because a later one is, must not train again.
func TestACompleteRunIsShownAndNotTrainedAgain(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "tiny.yaml")
	require.NoError(t, os.WriteFile(file, []byte("run_dir: "+filepath.Join(dir, "run")+tiny), 0o644))
	cfg, _, err := config.Open(file, nil)
	require.NoError(t, err)

	first, err := Train(context.Background(), "tiny", cfg)
	require.NoError(t, err)
	assert.Equal(t, 2.0, first[len(first)-1]["step"])
	log := filepath.Join(cfg.RunDir, learn.MetricsName)
	before, err := os.ReadFile(log)
	require.NoError(t, err)

	again, err := Train(context.Background(), "tiny", cfg)
	require.NoError(t, err)
	assert.Equal(t, len(first), len(again))
	after, err := os.ReadFile(log)
	require.NoError(t, err)
	assert.Equal(t, string(before), string(after), "no step was added")
}

func TestReporterKeepsWhatItIsTold(t *testing.T) {
	r := NewReporter("x")
	r.Phase(1, 4, "rollout")
	r.Step(1, 4, learn.Stats{"train/reward_mean": 0.5, "train/em": 0.25, "train/num_searches": 1})
	r.Eval(1, "test", map[string]float64{"eval/em": 0.75})
	r.Warn(1, "clipped")
	require.Len(t, r.metrics, 2)
	assert.Equal(t, map[string]float64{"step": 1, "eval/em": 0.75}, r.metrics[1])
	assert.Regexp(t, `^reward 0.50, EM 25 %, searches 1.00, about \S+ left$`, r.line(1, 4, learn.Stats(r.metrics[0])))
	assert.NotContains(t, r.line(4, 4, learn.Stats(r.metrics[0])), "left")
	require.NoError(t, r.Done(1, 4, r.metrics))
	require.NoError(t, r.Done(0, 4, nil), "a run without a step has empty panels")

	_, err := Train(context.Background(), "x", config.Default())
	assert.ErrorContains(t, err, "model")
}
