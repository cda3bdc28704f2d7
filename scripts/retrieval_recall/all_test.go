package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAllDataSetsInOneTable(t *testing.T) {
	dir, _ := sets(t)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "bare"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bare", "corpus.jsonl"), []byte(`{"id": "0", "contents": "a"}`), 0o644))
	code, stdout, stderr := command(t, "--data_dir", dir, "--all", "--k", "1,3")
	require.Equal(t, 0, code, stderr)
	assert.Regexp(t, `^\| data set \| passages \| questions \| gold, first 1 / 3 \| all gold \| answer \|\n\|---`, stdout)
	assert.Regexp(t, `\n\| people \| 40 \| \d+ \| 100\.0 / 100\.0 \| `, stdout)
	assert.NotContains(t, stdout, "bare")
	assert.Contains(t, stderr, "bare: left out")

	code, _, stderr = command(t, "--all")
	assert.Equal(t, 2, code)
	assert.Contains(t, stderr, "--all needs --data_dir")
	code, _, stderr = command(t, "--all", "--data_dir", dir, "--split", "people")
	assert.Equal(t, 2, code)
	assert.Contains(t, stderr, "--split does not go with --all")
	code, _, stderr = command(t, "--all", "--data_dir", t.TempDir())
	assert.Equal(t, 2, code)
	assert.Contains(t, stderr, "has a corpus.jsonl")
}
