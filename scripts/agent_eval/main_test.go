package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func command(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(context.Background(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestPublishedCommandPrintsTheFiveFigures(t *testing.T) {
	code, stdout, stderr := command("--method", "search-r1", "--benchmark", "scalemcp-mini", "--episodes", "120",
		"--seed", "42", "--json")
	require.Equal(t, 0, code, stderr)
	for _, line := range []string{`"joint_success": 1.0,`, `"average_cost": 2.75,`, `"search_queries": 240,`,
		`"masked_retrieved_tokens": 1800,`, `"outcome_policy_updates": 120`} {
		assert.Contains(t, stdout, "\n  "+line)
	}
	var object map[string]any
	require.NoError(t, json.Unmarshal([]byte(stdout), &object))
	assert.Equal(t, "search-r1", object["method"])
	assert.Contains(t, object["note"], "not comparable with the exact match of a paper")
}

func TestAllMethodsStandInOneTable(t *testing.T) {
	code, stdout, _ := command()
	require.Equal(t, 0, code)
	lines := strings.Split(stdout, "\n")
	assert.Equal(t, "scalemcp-mini, 120 episodes, seed 42", lines[0])
	assert.Equal(t, []string{"search-r1", "1.0", "2.75", "240", "1800", "120"}, strings.Fields(lines[3]))
	assert.Equal(t, []string{"never-search", "0.0", "0.75", "0", "0", "120"}, strings.Fields(lines[4]))
	assert.Equal(t, []string{"random-tool", "0.0083", "2.75", "240", "1800", "120"}, strings.Fields(lines[5]))
	assert.Contains(t, stdout, "not comparable with the exact match of a paper")
}

func TestAllMethodsAsJSON(t *testing.T) {
	code, stdout, _ := command("--json", "--episodes", "6")
	require.Equal(t, 0, code)
	var object struct {
		Results []struct {
			Method string `json:"method"`
			Tokens int    `json:"masked_retrieved_tokens"`
		} `json:"results"`
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &object))
	require.Len(t, object.Results, 3)
	assert.Equal(t, 90, object.Results[0].Tokens)
}

func TestBadInputIsOneLineAndStatusTwo(t *testing.T) {
	for want, args := range map[string][]string{
		`unknown method "ppo"; choose search-r1`:        {"--method", "ppo"},
		`unknown method ""`:                             {"--method="},
		`unknown benchmark "gaia"; there is scalemcp-`:  {"--benchmark", "gaia"},
		"--episodes is 0, must be from 1 to":            {"--episodes", "0"},
		`unexpected argument "search-r1"; see --help`:   {"search-r1"},
		"unknown flag: --metod; see --help":             {"--metod", "x"},
		`invalid argument "-1" for "--seed" flag: must`: {"--seed", "-1"},
	} {
		code, stdout, stderr := command(args...)
		assert.Equal(t, 2, code, args)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, want)
		assert.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
	}
	code, stdout, _ := command("--help")
	assert.Equal(t, 0, code)
	assert.Contains(t, stdout, "--episodes")
}

func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out, errs bytes.Buffer
	assert.Equal(t, 130, run(ctx, nil, &out, &errs))
	assert.Contains(t, errs.String(), "interrupted")
}
