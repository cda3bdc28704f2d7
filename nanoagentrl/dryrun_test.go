package nanoagentrl

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testenv"
)

// A shipped config runs through everything on pure Go, and really does what it is about: it searches, earns rewards that
// differ, and moves its weights. Here that is one config of each kind; the others are only read, and `.ci/run dry_run`
// drives them all.
func TestDryRunOfShippedConfigs(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(testenv.Root(), "configs", "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	kinds := []string{"quickstart", "quickstart_two_hop", "gsm8k_smollm2_cpu", "search_qwen05b_t4"}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		if strings.HasPrefix(name, "warmstart_") {
			continue // a recipe of scripts/warmstart
		}
		t.Run(name, func(t *testing.T) {
			cfg, _, err := config.Open(path, []string{"backend=go"})
			require.NoError(t, err)
			if !slices.Contains(kinds, name) {
				return
			}
			var out bytes.Buffer
			rec := record()
			t.Setenv("TMPDIR", t.TempDir())
			require.NoError(t, DryRun(t.Context(), cfg, Options{Out: &out, Reporter: rec}))
			require.Contains(t, out.String(), "dry run  passed")
			require.Len(t, rec.stats, drySteps)
			require.Equal(t, []int{0, 2, 3}, rec.evals)
			require.Equal(t, []string{"step-000001", "step-000002", "step-000003"}, rec.saved)
			sums := map[string]float64{}
			for _, s := range rec.stats {
				for _, name := range []string{"train/num_searches", "train/obs_len", "train/grad_norm", "train/reward_std"} {
					if value := s[name]; value > 0 {
						sums[name] += value
					}
				}
			}
			require.Positive(t, sums["train/reward_std"])
			require.Greater(t, sums["train/grad_norm"], 0.1)
			if cfg.Task == "search" {
				require.Positive(t, sums["train/num_searches"])
				require.Positive(t, sums["train/obs_len"])
			}
			require.Empty(t, listing(t, filepath.Join(filepath.Dir(path), "runs")), "nothing is left behind")
		})
	}
}

func TestDryRunLeavesTheConfigAndTheRunFolderAlone(t *testing.T) {
	cfg := tiny(t)
	before := *cfg
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	require.NoError(t, DryRun(t.Context(), cfg, Options{}))
	require.Equal(t, before, *cfg)
	require.Empty(t, listing(t, cfg.RunDir))
	require.Empty(t, listing(t, tmp))
}

// The configs for GPUs can be tried on a laptop. The test runs in a process that finds no plugin, so that the best there
// is is pure Go: plugins are looked for when a process begins.
func TestDryRunWithoutTheBackendOfTheConfigTakesTheBestThereIs(t *testing.T) {
	if empty := os.Getenv(device.PluginPathVariable); filepath.Base(empty) != "no-plugins" {
		child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		child.Env = append(os.Environ(), device.PluginPathVariable+"="+filepath.Join(t.TempDir(), "no-plugins"))
		output, err := child.CombinedOutput()
		require.NoError(t, err, string(output))
		require.Contains(t, string(output), "PASS: "+t.Name())
		return
	}
	var out bytes.Buffer
	require.NoError(t, DryRun(t.Context(), tiny(t, "backend=cuda", "steps=1"), Options{Out: &out}))
	require.Contains(t, out.String(), `dry run  with backend auto: backend "cuda": `)
	require.Contains(t, out.String(), "device   pure Go")
	require.Contains(t, out.String(), "dry run  passed")
}

// On XLA, too, a run that was interrupted and resumed ends with the weights of one that was not.
func TestDryRunOnXLA(t *testing.T) {
	if os.Getenv("XLA_FLAGS") == "" {
		t.Setenv("XLA_FLAGS", "--xla_backend_optimization_level=0") // compiling is all that takes time here
	}
	dev, err := device.Open("xla")
	if err != nil {
		t.Skipf("skipped: %v", err)
	}
	dev.Close()
	var out bytes.Buffer
	require.NoError(t, DryRun(t.Context(), tiny(t, "backend=xla", "eval_at_start=false"), Options{Out: &out}))
	require.Contains(t, out.String(), "device   XLA on the CPU")
	require.Contains(t, out.String(), "dry run  passed")
}

func TestDryRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	rec := record()
	rec.onStep = func(int) { cancel() }
	err := DryRun(ctx, tiny(t), Options{Reporter: rec})
	require.ErrorIs(t, err, context.Canceled)
}

func TestDryRunChecksTheConfig(t *testing.T) {
	cfg := tiny(t)
	cfg.GroupSize = 1
	require.ErrorContains(t, DryRun(t.Context(), cfg, Options{}), "group_size: got 1, want at least 2")
}
