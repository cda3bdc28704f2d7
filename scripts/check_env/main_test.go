package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device/probe"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/envcheck"
)

func TestMain(m *testing.M) {
	probe.Serve()
	os.Exit(m.Run())
}

func command(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(ctx, args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestJSONIsOneObjectAndNothingElse(t *testing.T) {
	code, stdout, stderr := command(context.Background(), "--json")
	assert.Equal(t, 0, code)
	assert.Empty(t, stderr)
	decoder := json.NewDecoder(strings.NewReader(stdout))
	decoder.DisallowUnknownFields()
	var r envcheck.Report
	require.NoError(t, decoder.Decode(&r))
	assert.False(t, decoder.More())
	assert.True(t, r.Ready)
	assert.Greater(t, r.Backend.GFLOPSF32, 0.0)
	assert.Equal(t, device.HasXLA, r.Go.Cgo)
}

func TestTableBeginsWithTheVerdict(t *testing.T) {
	code, stdout, _ := command(context.Background())
	assert.Equal(t, 0, code)
	assert.True(t, strings.HasPrefix(stdout, "Ready to train with "), stdout)
}

func TestCrashingPluginDoesNotTakeTheCommandDown(t *testing.T) {
	if _, err := device.PluginPath(); err != nil {
		t.Skipf("skipped: %v", err)
	}
	t.Setenv("XLA_FLAGS", "--xla_no_such_flag=1")
	code, stdout, _ := command(context.Background())
	assert.Equal(t, 0, code)
	assert.Contains(t, stdout, "Ready to train with pure Go")
	assert.Contains(t, stdout, "--xla_no_such_flag")
}

func TestBadInput(t *testing.T) {
	code, stdout, _ := command(context.Background(), "--help")
	assert.Equal(t, 0, code)
	assert.Contains(t, stdout, "check_env --json")
	code, stdout, stderr := command(context.Background(), "--jsn")
	assert.Equal(t, 2, code)
	assert.Empty(t, stdout)
	assert.Equal(t, "check_env: unknown flag: --jsn; see --help\n", stderr)
	code, _, stderr = command(context.Background(), "now")
	assert.Equal(t, 2, code)
	assert.Contains(t, stderr, `unexpected argument "now"`)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	code, stdout, stderr = command(ctx, "--json")
	assert.Equal(t, 130, code)
	assert.Empty(t, stdout)
	assert.Equal(t, "check_env: interrupted\n", stderr)
}
