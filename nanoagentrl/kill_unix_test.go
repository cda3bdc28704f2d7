//go:build unix

package nanoagentrl

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
)

// The environment variables that make this test binary a process that trains and kills itself.
const (
	killConfig = "NANOAGENTRL_TEST_KILL_CONFIG"
	killPoint  = "NANOAGENTRL_TEST_KILL_POINT"
)

// TestMain lets a test start this binary again as a training run that is killed, or as a search server.
func TestMain(m *testing.M) {
	if address := os.Getenv(serveAddress); address != "" {
		fmt.Fprintln(os.Stderr, serveTinyWorld(address))
		os.Exit(1)
	}
	if path := os.Getenv(killConfig); path != "" {
		if err := trainAndDie(path, os.Getenv(killPoint)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// die ends the process as the kernel does when memory runs out: nothing is flushed, nothing deferred is run.
func die() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) }

// killPoints name the places where a process can be killed. Steps, evaluations and checkpoints are those of
// tinySettings: evaluations and checkpoints after steps 2 and 4.
var killPoints = map[string]func(r *Run, rec *recorder, ctx *dyingContext){
	"in the rollout of step 3": func(_ *Run, rec *recorder, ctx *dyingContext) {
		rec.onPhase = func(step int, what string) {
			if step == 3 && what == "rolling out" {
				ctx.left = 5 // in the midst of decoding
			}
		}
	},
	"between the weight updates of step 3": func(_ *Run, rec *recorder, ctx *dyingContext) {
		rec.onPhase = func(step int, what string) {
			if step == 3 && what == "training" {
				ctx.left = 2
			}
		}
	},
	// With PPO the learner asks once for the scoring pass, once for each of two minibatches, then once for each of the
	// critic's.
	"between the policy's and the critic's updates of step 3": func(_ *Run, rec *recorder, ctx *dyingContext) {
		rec.onPhase = func(step int, what string) {
			if step == 3 && what == "training" {
				ctx.left = 4
			}
		}
	},
	"in a further round of step 3": func(_ *Run, rec *recorder, ctx *dyingContext) {
		rec.onPhase = func(step int, what string) {
			if step == 3 && strings.HasSuffix(what, "more questions") {
				ctx.left = 3
			}
		}
	},
	"in the evaluation of step 2": func(_ *Run, rec *recorder, ctx *dyingContext) {
		rec.onPhase = func(step int, what string) {
			if step == 2 && strings.HasPrefix(what, "evaluating") {
				ctx.left = 3
			}
		}
	},
	// The model is written, the optimiser and the manifest are not.
	"in the midst of the first save": func(r *Run, _ *recorder, _ *dyingContext) {
		r.Policy.Tokenizer = &dyingTokenizer{r.Policy.Tokenizer, 1}
	},
	"in the midst of the last save": func(r *Run, _ *recorder, _ *dyingContext) {
		r.Policy.Tokenizer = &dyingTokenizer{r.Policy.Tokenizer, 2}
	},
	"after the last save, before its evaluation is logged": func(_ *Run, rec *recorder, _ *dyingContext) {
		rec.onSaved = func(dir string) {
			if dir == "step-000004" {
				die()
			}
		}
	},
}

// dyingContext kills the process when Err has been asked left more times; 0 never does.
type dyingContext struct {
	context.Context
	left int
}

func (c *dyingContext) Err() error {
	if c.left > 0 {
		if c.left--; c.left == 0 {
			die()
		}
	}
	return c.Context.Err()
}

// dyingTokenizer kills the process when it is saved for the n-th time.
type dyingTokenizer struct {
	tokenizer.Stored
	left int
}

func (d *dyingTokenizer) Save(dir string) error {
	if d.left--; d.left == 0 {
		die()
	}
	return d.Stored.Save(dir)
}

func trainAndDie(path, point string) error {
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	ctx, rec := &dyingContext{Context: context.Background()}, record()
	r, err := Open(ctx, cfg, Options{Reporter: rec})
	if err != nil {
		return err
	}
	defer r.Close()
	killPoints[point](r, rec, ctx)
	return r.Train(ctx)
}

// A run that was killed anywhere and started again ends with the same samples, metrics and weights, bit for bit, as one
// that was never killed.
func TestKilledRunEndsAsIfItHadNeverBeenKilled(t *testing.T) {
	points := slices.Collect(maps.Keys(killPoints))
	killAt(t, slices.DeleteFunc(points, func(point string) bool {
		return strings.Contains(point, "critic") || strings.Contains(point, "further")
	}))
}

// The same with a critic, whose updates of a step come after the policy's, and with the further questions of dynamic
// sampling.
func TestKilledRunOfPPOAndDAPOEndsAsIfItHadNeverBeenKilled(t *testing.T) {
	points := []string{"in the rollout of step 3", "between the weight updates of step 3", "in the midst of the last save"}
	t.Run("ppo", func(t *testing.T) {
		killAt(t, append(points, "between the policy's and the critic's updates of step 3"), "algorithm=ppo", "critic_lr=0.05")
	})
	t.Run("dapo", func(t *testing.T) {
		killAt(t, append(points, "in a further round of step 3"), "algorithm=dapo", "group_size=2", "prompts_per_step=4",
			"reward_format=0.5")
	})
}

func killAt(t *testing.T, points []string, changes ...string) {
	never := trained(t, tiny(t, changes...))
	for _, point := range points {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			cfg := tiny(t, changes...)
			path := filepath.Join(t.TempDir(), "config.yaml")
			require.NoError(t, cfg.Save(path))
			child := exec.Command(os.Args[0])
			child.Env = append(os.Environ(), killConfig+"="+path, killPoint+"="+point)
			output, err := child.CombinedOutput()
			require.ErrorContains(t, err, "killed", string(output))

			steps := map[string]string{"in the midst of the first save": "", "in the evaluation of step 2": "",
				"after the last save, before its evaluation is logged": "step-000004"}
			last, ok := steps[point]
			if !ok {
				last = "step-000002"
			}
			o := trained(t, cfg)
			if last == "" {
				require.NotContains(t, o.out, "resume   from", "there was nothing to go on from")
			} else {
				require.Contains(t, o.out, "resume   from step "+last[len(last)-1:])
			}
			if strings.Contains(point, "midst of the") {
				require.Contains(t, o.out, "which a killed run had left behind")
			}
			requireSameRun(t, never, o)
			require.NotContains(t, strings.Join(listing(t, cfg.RunDir), " "), ".tmp")
		})
	}
}
