package main

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
)

func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestBadInputIsStatusTwo(t *testing.T) {
	for want, args := range map[string][]string{
		"give --data_dir DIR":               {},
		"--k is 0, must be from 1 to 100":   {"--data_dir", "x", "--k", "0"},
		`unexpected argument "y"`:           {"--data_dir", "x", "y"},
		"unknown flag: --set; see --help":   {"--set", "x"},
		"at least one of --sets; see --hel": {"--data_dir", "x", "--sets", ""},
	} {
		code, _, stderr := command(t, args...)
		assert.Equal(t, 2, code, args)
		assert.Contains(t, stderr, want)
	}
	code, stdout, _ := command(t, "--help")
	assert.Equal(t, 0, code)
	assert.Contains(t, stdout, "Examples:")
}

// Without Java or the jar it says what is missing; the comparison with the real engine is in package anserini.
func TestMissingEngineIsNamed(t *testing.T) {
	code, _, stderr := command(t, "--data-dir", t.TempDir(), "--jar", filepath.Join(t.TempDir(), "none.jar"))
	assert.Equal(t, 1, code)
	assert.Regexp(t, `none\.jar|Java development kit`, stderr)
}
