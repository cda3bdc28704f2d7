package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/embed/embedtest"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/recall"
)

func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// sets writes the tiny world as a data set, and records in which the agent asks for the name alone.
func sets(t *testing.T) (dir, records string) {
	t.Helper()
	dir = t.TempDir()
	folder := filepath.Join(dir, "people")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	passages, questions := data.TinyWorld(1, 40)
	var corpus, qa, samples bytes.Buffer
	for _, p := range passages {
		require.NoError(t, json.NewEncoder(&corpus).Encode(p))
	}
	for i, q := range questions {
		require.NoError(t, json.NewEncoder(&qa).Encode(q))
		name := strings.Join(strings.Fields(strings.Trim(q.Text, "?"))[2:4], " ")
		if i%2 == 0 {
			name = "zzzz"
		}
		e := episode.Episode{QuestionID: q.ID, Question: q.Text, Stop: episode.StopAnswer,
			Turns: []episode.Turn{{Action: episode.ActionSearch, Content: name}}}
		require.NoError(t, json.NewEncoder(&samples).Encode(map[string]any{"step": 1, "split": "test", "episode": e}))
	}
	records = filepath.Join(dir, "samples.jsonl")
	for path, text := range map[string][]byte{filepath.Join(folder, "corpus.jsonl"): corpus.Bytes(),
		filepath.Join(folder, "qa.jsonl"): qa.Bytes(), records: samples.Bytes()} {
		require.NoError(t, os.WriteFile(path, text, 0o644))
	}
	return dir, records
}

func TestQuestionsAsTheyStand(t *testing.T) {
	dir, _ := sets(t)
	out := filepath.Join(t.TempDir(), "out")
	code, stdout, stderr := command(t, "--data_dir", dir, "--split", "people", "--k", "1,3", "--out", out)
	require.Equal(t, 0, code, stderr)
	assert.Contains(t, stdout, "people: 80 questions")
	assert.Regexp(t, `(?m)^all +gold +1 +80 +100\.0 \(100\.0 to 100\.0\)`, stdout)
	assert.FileExists(t, filepath.Join(out, "recall.png"))
	assert.FileExists(t, filepath.Join(out, "recall.svg"))
	assert.NoFileExists(t, filepath.Join(out, disagreementsName))

	byPath, _, _ := command(t, "--split", filepath.Join(dir, "people", "qa.jsonl"), "--out", out)
	assert.Equal(t, 0, byPath, "the corpus beside the file of questions")
}

func TestAgentBesideTheQuestions(t *testing.T) {
	dir, records := sets(t)
	out := filepath.Join(t.TempDir(), "out")
	code, stdout, stderr := command(t, "--data_dir", dir, "--split", "people", "--records", records, "--out", out, "--json")
	require.Equal(t, 0, code, stderr)
	assert.Contains(t, stderr, "80 episodes of 80 questions")
	var row recall.Row
	require.NoError(t, json.Unmarshal([]byte(strings.SplitN(stdout, "\n", 2)[0]), &row))
	require.NotNil(t, row.Paired)
	assert.Less(t, row.Paired.Agent, 0.6, "half of the queries find nothing")
	assert.Less(t, row.Paired.High, 0.0)
	text, err := os.ReadFile(filepath.Join(out, disagreementsName))
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	var d recall.Disagreement
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &d))
	assert.Equal(t, "raw", d.Found)
	assert.Equal(t, [][]string{{"zzzz"}}, d.AgentQueries)
	assert.Equal(t, 3, d.K)

	code, stdout, _ = command(t, "--data_dir", dir, "--split", "people", "--records", records, "--out", out)
	assert.Equal(t, 0, code)
	assert.Contains(t, stdout, "difference (95 %)")
}

func TestKindsOfSearchAreCompared(t *testing.T) {
	dir, _ := sets(t)
	out, vectors := filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "vectors")
	model := embedtest.Write(t, 1, nil)
	args := []string{"--data_dir", dir, "--split", "people", "--k", "1,3", "--out", out, "--max_questions", "20", "--backend",
		"go", "--model", model}
	code, stdout, stderr := command(t, append(args, "--kind", "bm25,dense,hybrid", "--dense_index", vectors)...)
	require.Equal(t, 0, code, stderr)
	assert.Regexp(t, `(?m)^kind +found +@1 +@3`, stdout)
	assert.Regexp(t, `(?m)^bm25 +gold +100\.0 +100\.0`, stdout)
	for _, kind := range kinds {
		assert.Regexp(t, `(?m)^`+kind+` +gold +[\d.]+ +[\d.]+`, stdout)
		assert.FileExists(t, filepath.Join(out, kind, "recall.jsonl"))
	}
	assert.FileExists(t, filepath.Join(vectors, "vectors.f16"))
	code, alone, stderr := command(t, append(args, "--kind", "dense")...)
	require.Equal(t, 0, code, stderr)
	assert.Regexp(t, `(?m)^all +gold +1 +20 +[\d.]+ \(`, alone)
}

func TestBadInputIsOneLine(t *testing.T) {
	dir, records := sets(t)
	for want, args := range map[string][]string{
		"give --split DATA":                                  nil,
		"--k is [0 3]; want numbers from 1 to 1000":          {"--split", "x", "--k", "3,0"},
		`--kind is ["bm24"]; want some of [bm25 dense h`:     {"--split", "x", "--kind", "bm24"},
		"--kind dense and hybrid need --model":               {"--split", "x", "--kind", "hybrid"},
		"--index and --retriever_url are of no use":          {"--split", "x", "--kind", "dense", "--model", "m", "--index", "z"},
		"exclude each other":                                 {"--split", "x", "--corpus", "y", "--index", "z"},
		"--resamples is 5":                                   {"--split", "x", "--resamples", "5"},
		`unexpected argument "x"`:                            {"x"},
		"unknown flag: --splitt":                             {"--splitt", "x"},
		"none.jsonl":                                         {"--split", "none.jsonl"},
		"there is no finished index":                         {"--data_dir", dir, "--split", "people", "--index", dir},
		"no retrieval server answers at http://127.0.0.1:1/": {"--data_dir", dir, "--split", "people", "--retriever_url", "http://127.0.0.1:1"},
		"holds no episode of these questions":                {"--data_dir", dir, "--split", "people", "--records", records, "--step", "9"},
	} {
		code, stdout, stderr := command(t, args...)
		assert.Equal(t, 2, code, want)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, want)
	}
	code, stdout, _ := command(t, "--help")
	assert.Equal(t, 0, code)
	assert.Contains(t, stdout, "--records")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	assert.Equal(t, 130, run(ctx, []string{"--data_dir", dir, "--split", "people"}, &out, &errs))
}

func TestNamesOfFolders(t *testing.T) {
	for split, want := range map[string]string{"hotpotqa": "hotpotqa", "nq:dev": "nq_dev", "data/search/test.jsonl": "search_test",
		"./x.parquet": "x", "/a/b": "a_b"} {
		assert.Equal(t, want, nameOf(split))
	}
}
