package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func command(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(context.Background(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestCheckChangesNothingAndSaysWhatIsMissing(t *testing.T) {
	t.Setenv("JUPYTER_DATA_DIR", t.TempDir())
	folder := t.TempDir()
	code, stdout, stderr := command("--check", "--folder", folder)
	assert.Equal(t, 1, code)
	assert.Contains(t, stderr, "3 parts are missing; go run ./scripts/setup_notebooks installs them")
	assert.Equal(t, 3, strings.Count(stdout, "missing  "))
	assert.Contains(t, stdout, "there is no gonb")
	assert.NoDirExists(t, folder+"/bin")
}

func TestBadInput(t *testing.T) {
	code, stdout, _ := command("--help")
	assert.Equal(t, 0, code)
	for _, text := range []string{"--check", "--no_lab", "--folder", "--python", "pinned versions"} {
		assert.Contains(t, stdout, text)
	}
	code, _, stderr := command("--chek")
	assert.Equal(t, 2, code)
	assert.Equal(t, "setup_notebooks: unknown flag: --chek; see --help\n", stderr)
	code, _, stderr = command("lab")
	assert.Equal(t, 2, code)
	assert.Contains(t, stderr, `unexpected argument "lab"`)
}
