package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func command(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(context.Background(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// fakeJupyter stands in for the jupyter command: it copies a made-up result to where nbconvert would write it.
func fakeJupyter(t *testing.T, result string) (folder string) {
	t.Helper()
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("there is no shell")
	}
	folder = t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "venv", "bin"), 0o755))
	script := `#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in --output-dir) dir=$2 ;; --output) name=$2 ;; esac
  shift
done
cp "` + result + `" "$dir/$name"
`
	require.NoError(t, os.WriteFile(filepath.Join(folder, "venv", "bin", "jupyter"), []byte(script), 0o755))
	return folder
}

const badEnds = "../../nanoagentrl/notebook/ipynb/testdata/bad_ends.ipynb"

func TestANotebookWhoseCellsEndBadlyFails(t *testing.T) {
	folder := fakeJupyter(t, must(filepath.Abs(badEnds)))
	code, stdout, stderr := command("--folder", folder, badEnds)
	assert.Equal(t, 1, code, stderr)
	assert.Contains(t, stdout, "FAILED  "+badEnds)
	assert.Contains(t, stdout, `cell 2: its program ended with "exit status 2"`)
	assert.Contains(t, stdout, "no cell shows an image")
}

func TestAFailedRunIsNotWritten(t *testing.T) {
	folder := fakeJupyter(t, must(filepath.Abs(badEnds)))
	path := filepath.Join(t.TempDir(), "n.ipynb")
	before := []byte(`{"nbformat": 4, "cells": []}`)
	require.NoError(t, os.WriteFile(path, before, 0o644))
	code, _, _ := command("--folder", folder, "--write", path)
	assert.Equal(t, 1, code)
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, before, after)
}

func TestAGoodRunPassesAndIsWritten(t *testing.T) {
	notebooks, err := filepath.Glob("../../notebooks/*.ipynb")
	require.NoError(t, err)
	require.NotEmpty(t, notebooks)
	good, err := os.ReadFile(notebooks[0])
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "n.ipynb")
	require.NoError(t, os.WriteFile(path, good, 0o644))
	folder := fakeJupyter(t, must(filepath.Abs(notebooks[0])))
	code, stdout, stderr := command("--folder", folder, path)
	assert.Equal(t, 0, code, stdout+stderr)

	require.NoError(t, os.WriteFile(path, []byte(`{"nbformat": 4, "cells": []}`), 0o644))
	code, stdout, _ = command("--folder", folder, path)
	assert.Equal(t, 1, code)
	assert.Contains(t, stdout, "cells instead of 0", "the file holds another notebook")
	code, _, _ = command("--folder", folder, "--write", path)
	assert.Equal(t, 0, code)
	written, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(good), string(written))
}

func TestBadInput(t *testing.T) {
	code, stdout, _ := command("--help")
	assert.Equal(t, 0, code)
	assert.Contains(t, stdout, "--write")
	code, _, stderr := command("--wrte")
	assert.Equal(t, 2, code)
	assert.Contains(t, stderr, "unknown flag: --wrte; see --help")
	code, stdout, _ = command("--folder", t.TempDir(), "none.ipynb")
	assert.Equal(t, 1, code)
	assert.Contains(t, stdout, "none.ipynb: no such file")
	code, stdout, _ = command("--folder", t.TempDir(), badEnds)
	assert.Equal(t, 1, code)
	assert.Contains(t, stdout, "run go run ./scripts/setup_notebooks")
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
