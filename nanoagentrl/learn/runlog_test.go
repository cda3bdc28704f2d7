package learn

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
)

func openLog(t *testing.T, dir string, step int) *RunLog {
	t.Helper()
	log, err := OpenRunLog(dir, step)
	require.NoError(t, err)
	return log
}

func readSteps(t *testing.T, dir string) (steps []float64) {
	t.Helper()
	lines, err := ReadMetrics(dir)
	require.NoError(t, err)
	for _, line := range lines {
		steps = append(steps, line["step"])
	}
	return steps
}

func TestMetricsAreReadBackWithNaNAsNull(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "runs", "new")
	log := openLog(t, dir, 0)
	require.NoError(t, log.Metrics(1, Stats{"train/em": 0.25, "train/kl": math.NaN(), "train/kl_k1": math.Inf(-1)}))
	text, err := os.ReadFile(filepath.Join(dir, MetricsName))
	require.NoError(t, err)
	require.Equal(t, `{"step":1,"train/em":0.25,"train/kl":null,"train/kl_k1":null}`+"\n", string(text))
	lines, err := ReadMetrics(dir)
	require.NoError(t, err)
	require.Len(t, lines, 1)
	require.Equal(t, 0.25, lines[0]["train/em"])
	require.True(t, math.IsNaN(lines[0]["train/kl"]))
}

func TestLaterStepsAreDroppedOnResume(t *testing.T) {
	dir := t.TempDir()
	log := openLog(t, dir, 0)
	for step := 1; step <= 4; step++ {
		require.NoError(t, log.Metrics(step, Stats{}))
		require.NoError(t, log.Sample(step, "train", &episode.Episode{QuestionID: "q"}))
	}
	openLog(t, dir, 2)
	require.Equal(t, []float64{1, 2}, readSteps(t, dir))
	samples, err := os.ReadFile(filepath.Join(dir, SamplesName))
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(samples), "\n"))
	var line struct {
		Step    int
		Split   string
		Episode episode.Episode
	}
	require.NoError(t, json.Unmarshal([]byte(strings.Split(string(samples), "\n")[1]), &line))
	require.Equal(t, 2, line.Step)
	require.Equal(t, "train", line.Split)
	require.Equal(t, "q", line.Episode.QuestionID)
}

func TestNewRunStartsWithEmptyFiles(t *testing.T) {
	dir := t.TempDir()
	log := openLog(t, dir, 0)
	require.NoError(t, log.Metrics(0, Stats{evalSeconds + "x": 1}))
	log = openLog(t, dir, 0)
	require.Empty(t, readSteps(t, dir))
	require.Equal(t, -1, log.Evaluated())
}

func TestCutLastLineIsDroppedOnResumeAndNotRead(t *testing.T) {
	for name, cut := range map[string]string{
		"in the middle": `{"step":2,"train/e`, "before its end": `{"step":2}`, "to nothing but a brace": `{`,
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, MetricsName)
		require.NoError(t, os.WriteFile(path, []byte(`{"step":1}`+"\n"+cut), 0o644))
		require.Equal(t, []float64{1}, readSteps(t, dir), name)
		log := openLog(t, dir, 2)
		require.NoError(t, log.Metrics(3, Stats{}))
		require.Equal(t, []float64{1, 3}, readSteps(t, dir), name)
	}
}

func TestFileWithNothingToDropIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	log := openLog(t, dir, 0)
	require.NoError(t, log.Metrics(1, Stats{}))
	path := filepath.Join(dir, MetricsName)
	before, err := os.Stat(path)
	require.NoError(t, err)
	openLog(t, dir, 1)
	after, err := os.Stat(path)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after))
	require.Equal(t, before.ModTime(), after.ModTime())
}

func TestBrokenLineInTheMiddleIsNamed(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, MetricsName), []byte("{\"step\":1}\nnonsense\n{\"step\":2}\n"), 0o644))
	_, err := ReadMetrics(dir)
	require.ErrorContains(t, err, MetricsName+": line 2")
	_, err = ReadMetrics(t.TempDir())
	require.ErrorContains(t, err, "no such file")
}

func TestLogKnowsTheLastEvaluation(t *testing.T) {
	dir := t.TempDir()
	log := openLog(t, dir, 0)
	require.NoError(t, log.Metrics(1, Stats{"train/em": 1}))
	require.Equal(t, -1, log.Evaluated())
	require.NoError(t, log.Metrics(1, Stats{"eval/em": 1, evalSeconds + "nq": 2}))
	require.Equal(t, 1, log.Evaluated())
	require.NoError(t, log.Metrics(2, Stats{"train/em": 1}))
	require.Equal(t, 1, openLog(t, dir, 2).Evaluated(), "also when the file is opened again")
	require.NoError(t, log.Metrics(2, Stats{evalSeconds + "nq": 2}))
	require.Equal(t, 2, openLog(t, dir, 2).Evaluated())
	require.Equal(t, 1, openLog(t, dir, 1).Evaluated(), "what was dropped was not evaluated")
}

func TestRunFolderThatCannotBeMadeIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	_, err := OpenRunLog(filepath.Join(file, "run"), 0)
	require.ErrorContains(t, err, "run folder: ")
	require.ErrorContains(t, err, file)
}

// A power cut may take lines of steps that a checkpoint holds; curves with a gap are not passed over in silence.
func TestMissingLinesAreCounted(t *testing.T) {
	dir := t.TempDir()
	log := openLog(t, dir, 0)
	require.NoError(t, log.Sync(), "nothing was written yet")
	for _, step := range []int{1, 2, 5} {
		require.NoError(t, log.Metrics(step, Stats{rewardMetric: 0}))
	}
	require.NoError(t, log.Metrics(3, Stats{evalSeconds + "test": 1}))
	require.NoError(t, log.Sync())
	missing, err := openLog(t, dir, 6).Missing(6)
	require.NoError(t, err)
	require.Equal(t, 3, missing, "3, 4 and 6")
}
