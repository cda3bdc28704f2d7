package probe

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
)

// TestMain plays the children that a real backend would need bad luck for.
func TestMain(m *testing.M) {
	switch os.Getenv(variable) {
	case "crash":
		fmt.Println(mark + `{"kind":"xla","gflops_f32":7}`)
		fmt.Fprintln(os.Stderr, "I0000 00:00:17 1 pjrt.cc:1] fine so far")
		fmt.Fprintln(os.Stderr, "F0000 00:00:17 1 parse_flags_from_env.cc:234] Unknown flag in XLA_FLAGS: --nonsense")
		fmt.Fprintln(os.Stderr, "    @ 0x7f stack")
		os.Exit(1)
	case "hang":
		time.Sleep(time.Minute)
	case "mute":
		os.Exit(0)
	case "noisy":
		fmt.Println("a plugin says hello")
		fmt.Print("no newline, ", mark, `{"kind":"go","gflops_f32":3}`, "\n")
		os.Exit(0)
	}
	Serve()
	os.Exit(m.Run())
}

func TestMeasuresPureGo(t *testing.T) {
	r, err := Measure(context.Background(), "go", time.Minute)
	require.NoError(t, err)
	assert.Equal(t, device.Go, r.Kind)
	assert.Greater(t, r.GFLOPSF32, 0.0)
	assert.Zero(t, r.GFLOPSBF16)
}

func TestUnknownBackendIsAnError(t *testing.T) {
	_, err := Measure(context.Background(), "quantum", time.Minute)
	assert.ErrorContains(t, err, `backend "quantum" is unknown`)
}

func TestCrashKeepsWhatWasMeasuredAndSaysWhy(t *testing.T) {
	r, err := Measure(context.Background(), "crash", time.Minute)
	require.Error(t, err)
	assert.Equal(t, Result{Kind: device.XLA, GFLOPSF32: 7}, r)
	assert.Equal(t, "backend crash: it crashed (exit status 1): Unknown flag in XLA_FLAGS: --nonsense "+
		"(correct or unset XLA_FLAGS)", err.Error())
}

func TestHangEndsAtTheLimit(t *testing.T) {
	start := time.Now()
	_, err := Measure(context.Background(), "hang", 300*time.Millisecond)
	assert.EqualError(t, err, "backend hang: no answer within 300ms; it was stopped")
	assert.Less(t, time.Since(start), 20*time.Second)
}

func TestInterruptIsPassedOn(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := Measure(ctx, "hang", time.Minute)
	assert.ErrorIs(t, err, context.Canceled)
}

func TestMuteChildIsAnError(t *testing.T) {
	_, err := Measure(context.Background(), "mute", time.Minute)
	assert.ErrorContains(t, err, "probe.Serve")
}

func TestNoiseOnStandardOutputDoesNoHarm(t *testing.T) {
	r, err := Measure(context.Background(), "noisy", time.Minute)
	require.NoError(t, err)
	assert.Equal(t, 3.0, r.GFLOPSF32)
}

func TestUnknownXLAFlagDoesNotTakeTheProcessDown(t *testing.T) {
	needXLA(t)
	t.Setenv("XLA_FLAGS", "--xla_no_such_flag=1")
	r, err := Measure(context.Background(), "auto", time.Minute)
	require.Error(t, err)
	assert.ErrorContains(t, err, "--xla_no_such_flag")
	assert.ErrorContains(t, err, "correct or unset XLA_FLAGS")
	assert.Zero(t, r.GFLOPSF32)
}

// go-xla panics in whatever program comes across such a file.
func TestDamagedPluginFileIsAnErrorNotAPanic(t *testing.T) {
	if !device.HasXLA {
		t.Skip("skipped: built without cgo")
	}
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "pjrt_c_api_cpu_plugin.so"), []byte("\x7fELF, cut short"), 0o644))
	t.Setenv(device.PluginPathVariable, folder)
	_, err := Measure(context.Background(), "xla", time.Minute)
	assert.ErrorContains(t, err, "damaged")
	assert.ErrorContains(t, err, "setup_xla --force")
	r, err := Measure(context.Background(), "auto", time.Minute)
	require.NoError(t, err)
	assert.Equal(t, device.Go, r.Kind)
	assert.Contains(t, r.Reason, "damaged")
}

func TestMeasuresXLAInBothTypes(t *testing.T) {
	needXLA(t)
	r, err := Measure(context.Background(), "xla", time.Minute)
	require.NoError(t, err)
	assert.Equal(t, device.XLA, r.Kind)
	assert.Greater(t, r.GFLOPSF32, 0.0)
	assert.Greater(t, r.GFLOPSBF16, 0.0)
	assert.FileExists(t, r.Plugin)
}

func TestLastWords(t *testing.T) {
	for _, c := range []struct{ stderr, want string }{
		{"", "it left no message"},
		{"one\ntwo\n\n", "two"},
		{"E0000 1] an error\nF0107 00:00:17.1 12 client.cc:4] Check failed: x\n*** Aborted\n", "Check failed: x"},
		{"panic: boom\n\ngoroutine 1 [running]:\nmain.main()\n", "panic: boom"},
		{"SIGBUS: bus error\nPC=0x7f m=0 sigcode=2\n\ngs 0x0\n", "SIGBUS: bus error"},
		{"Failed to open\n", "Failed to open"},
	} {
		assert.Equal(t, c.want, lastWords(c.stderr), c.stderr)
	}
}

func needXLA(t *testing.T) {
	t.Helper()
	if _, err := device.PluginPath(); err != nil {
		t.Skipf("skipped: %v", err)
	}
}
