package nanoagentrl

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// jsonl writes a file of lines and returns its path.
func jsonl(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644))
	return path
}

func question(text string) string {
	return fmt.Sprintf(`{"question": %q, "golden_answers": ["x"]}`, text)
}

// A prompt that does not fit would otherwise end the run whenever its question happens to be drawn.
func TestPromptLongerThanTheContextIsFoundBeforeTheFirstStep(t *testing.T) {
	corpus := jsonl(t, `{"id": "1", "contents": "\"T\"\nx"}`)
	good, bad := question("who ?"), question(strings.Repeat("word ", 300)+"?")
	short, long := jsonl(t, good, good, good), jsonl(t, good, bad, good)
	for name, files := range map[string][2]string{"training": {long, short}, "evaluation": {short, long}} {
		cfg := tiny(t, "corpus="+corpus, "train_data="+files[0], "eval_data=["+files[1]+"]")
		_, err := Open(t.Context(), cfg, Options{})
		require.ErrorContains(t, err, long+": 1 of 3 prompts are too long, the first: ", name)
		require.ErrorContains(t, err, "a prompt of 301 tokens and a turn of 6 do not fit into max_context (192)", name)
		require.Empty(t, listing(t, cfg.RunDir))
	}
	cfg := tiny(t, "corpus="+corpus, "train_data="+long, "eval_data=["+long+"]", "long_prompt=skip", "prompts_per_step=3",
		"minibatches=1", "steps=2", "best_metric=")
	rec := record()
	o, err := train(t, t.Context(), cfg, rec)
	require.NoError(t, err)
	require.Contains(t, o.out, "1 of 3 prompts of "+long+" are too long for max_context and are left out")
	require.Equal(t, 1.0, rec.stats[0]["train/skipped_prompts"])
	require.Equal(t, 2.0, rec.stats[1]["train/skipped_prompts"])
	require.Equal(t, 1.0, o.metrics[0]["eval/skipped_prompts_data"])
	for _, s := range o.samples {
		require.Equal(t, "who ?", s.Episode.PromptText, "no prompt is ever cut")
	}
	_, err = Open(t.Context(), tiny(t, "corpus="+corpus, "train_data="+jsonl(t, bad), "eval_data=["+short+"]",
		"long_prompt=skip"), Options{})
	require.ErrorContains(t, err, "all 1 prompts are too long")
}

func TestBestMetricThatNoEvaluationHasIsFoundBeforeTheFirstStep(t *testing.T) {
	cfg := tiny(t, "best_metric=eval/em_nq")
	_, err := Open(t.Context(), cfg, Options{})
	require.ErrorContains(t, err, `best_metric: no evaluation gives "eval/em_nq"; choose one of `)
	require.ErrorContains(t, err, "eval/em_tiny, ")
	require.Empty(t, listing(t, cfg.RunDir))
	r, err := Open(t.Context(), tiny(t, "best_metric=eval/em_nq", "eval_every=0"), Options{})
	require.NoError(t, err, "without evaluations it is not used")
	r.Close()
}

func TestEvaluationNeedsNoTrainingData(t *testing.T) {
	cfg := tiny(t)
	trained(t, cfg)
	model := filepath.Join(cfg.RunDir, "checkpoints", "step-000004")
	elsewhere := tiny(t, "model="+model)
	elsewhere.TrainData = filepath.Join(t.TempDir(), "missing.jsonl")
	elsewhere.EvalData, elsewhere.Corpus = []string{jsonl(t, question("where was Ada Bell born ?"))},
		jsonl(t, `{"id": "1", "contents": "\"T\"\nx"}`)
	var out bytes.Buffer
	r, err := Open(t.Context(), elsewhere, Options{Out: &out, EvalOnly: true})
	require.NoError(t, err)
	defer r.Close()
	metrics, err := r.Evaluate(t.Context())
	require.NoError(t, err)
	require.Contains(t, metrics, "eval/em")
	require.Contains(t, out.String(), "data     1 to evaluate from data\n")
	_, err = Open(t.Context(), elsewhere, Options{})
	require.ErrorContains(t, err, "missing.jsonl")
}

func TestEvaluationWithoutQuestionsIsAnError(t *testing.T) {
	cfg := tiny(t, "eval_data=[]", "eval_every=0", "eval_at_start=false")
	_, err := Open(t.Context(), cfg, Options{EvalOnly: true})
	require.ErrorContains(t, err, "eval_data is empty")
}

// What is trained on a model that was loaded from a folder: the reference is that folder's weights.
func TestRunFromAFolderMeasuresItsPenaltyFromThatFolder(t *testing.T) {
	base := tiny(t)
	trained(t, base)
	model := filepath.Join(base.RunDir, "checkpoints", "step-000004")
	rec := record()
	o, err := train(t, t.Context(), tiny(t, "model="+model, "kl_coef=1", "steps=2", "lr=0.05",
		"minibatches=1"), rec)
	require.NoError(t, err)
	require.Contains(t, o.out, "model    "+model)
	require.InDelta(t, 0, rec.stats[0]["train/kl"], 1e-6)
	require.Greater(t, rec.stats[1]["train/kl"], 1e-3)
}
