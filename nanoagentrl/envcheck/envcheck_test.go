package envcheck

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device/probe"
)

// machine is a made-up one with nothing on it, whose backends answer as given.
func machine(t *testing.T, answers map[string]any) Options {
	t.Helper()
	root := t.TempDir()
	work := filepath.Join(root, "repo")
	require.NoError(t, os.Mkdir(work, 0o755))
	t.Setenv("NANOAGENTRL_SHARED", filepath.Join(root, "shared"))
	driver := ""
	return Options{
		WorkDir: work, driver: &driver, pluginFolder: filepath.Join(root, "plugins"),
		hubFolder: filepath.Join(root, "hub"), modelFolder: filepath.Join(root, "models"),
		measure: func(_ context.Context, choice string, _ time.Duration) (probe.Result, error) {
			if err, failed := answers[choice].(error); failed {
				return probe.Result{}, err
			}
			return answers[choice].(probe.Result), nil
		},
	}
}

var (
	onGo  = probe.Result{Kind: device.Go, Reason: "no plugin", GFLOPSF32: 9}
	onXLA = probe.Result{Kind: device.XLA, Reason: "the CPU plugin", GFLOPSF32: 200, GFLOPSBF16: 400}
)

func write(t *testing.T, text string, elem ...string) {
	t.Helper()
	path := filepath.Join(elem...)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
}

// todo returns what is to be done about a thing, or "".
func todo(r *Report, what string) string {
	for _, m := range r.Missing {
		if strings.Contains(m.What, what) {
			return m.Do
		}
	}
	return ""
}

func text(t *testing.T, r *Report) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, r.WriteText(&out))
	return out.String()
}

func TestBareMachineCanTrainAndIsToldWhatToDo(t *testing.T) {
	r := Collect(context.Background(), machine(t, map[string]any{"auto": onGo}))
	assert.True(t, r.Ready)
	assert.False(t, r.Plugin.Installed)
	assert.Contains(t, todo(r, "XLA plugin"), "go run ./scripts/setup_xla")
	assert.Contains(t, todo(r, "pretrained model"), r.Models.Folder)
	assert.Contains(t, todo(r, "training data"), "quickstart needs none")
	assert.Empty(t, todo(r, "CUDA"))
	table := text(t, r)
	assert.True(t, strings.HasPrefix(table, "Ready to train with pure Go: 9 GFLOPS in f32.\n"), table)
	assert.Contains(t, table, "auto picks go: no plugin")
	assert.Contains(t, table, "Next: go run ./scripts/train --config configs/quickstart.yaml")
}

func TestMachineWithEverythingHasNothingToDo(t *testing.T) {
	o := machine(t, map[string]any{"auto": onXLA})
	program, err := os.Executable() // Has a library's form.
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(o.pluginFolder, 0o755))
	name := "pjrt_c_api_cpu_plugin.so"
	if runtime.GOOS == "windows" {
		name = "pjrt_c_api_cpu_plugin.dll"
	}
	require.NoError(t, os.Symlink(program, filepath.Join(o.pluginFolder, name)))
	write(t, "GGUF....", o.modelFolder, "m.gguf")
	write(t, "{}\n", o.WorkDir, "data", "gsm8k", "train.jsonl")
	r := Collect(context.Background(), o)
	assert.True(t, r.Ready)
	assert.True(t, r.Plugin.Installed)
	assert.Len(t, r.Plugin.SHA256, 64)
	r.Go.Cgo = true                                              // Whatever these tests were built with,
	r.Memory.AvailableBytes, r.Disk.FreeBytes = 100<<30, 100<<30 // and whatever the machine.
	assert.Empty(t, r.missing(o.pluginFolder))
	r.Missing = nil
	assert.NotContains(t, text(t, r), "To do")
	assert.Contains(t, text(t, r), "200 GFLOPS in f32, 400 in bf16")
}

func TestCrashOfThePluginLeavesPureGo(t *testing.T) {
	crash := errors.New("it crashed: Unknown flag")
	r := Collect(context.Background(), machine(t, map[string]any{"auto": crash, "go": onGo}))
	assert.True(t, r.Ready)
	assert.Equal(t, "go", r.Backend.Kind)
	assert.Equal(t, "it crashed: Unknown flag", r.Backend.AutoError)
	assert.Equal(t, "it crashed: Unknown flag; until then train with --set backend=go", todo(r, "auto picks"))
	assert.Contains(t, text(t, r), "auto cannot be used")
	assert.Contains(t, text(t, r), "quickstart.yaml --set backend=go\n")
}

func TestNoBackendAtAllIsNotReady(t *testing.T) {
	r := Collect(context.Background(), machine(t, map[string]any{"auto": errors.New("a"), "go": errors.New("b")}))
	assert.False(t, r.Ready)
	assert.Contains(t, todo(r, "backend that works"), "(b)")
	assert.True(t, strings.HasPrefix(text(t, r), "Not ready to train"))
}

func TestDamagedPluginIsSaid(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("skipped: damage is looked for in ELF files only")
	}
	o := machine(t, map[string]any{"auto": onGo})
	write(t, "\x7fELF cut", o.pluginFolder, "pjrt_c_api_cpu_plugin.so")
	r := Collect(context.Background(), o)
	assert.False(t, r.Plugin.Installed)
	assert.Contains(t, todo(r, "sound XLA plugin"), "is damaged")
	assert.Contains(t, todo(r, "sound XLA plugin"), "--force")
}

func TestDriverWithoutCUDAPluginIsSaid(t *testing.T) {
	o := machine(t, map[string]any{"auto": onXLA})
	driver := "580.65.06"
	o.driver = &driver
	r := Collect(context.Background(), o)
	assert.Contains(t, todo(r, "CUDA plugin"), "setup_xla --cuda")
	r.Backend.Kind = "cuda"
	r.Missing = r.missing(o.pluginFolder)
	assert.Empty(t, todo(r, "CUDA plugin"))
}

func TestLittleMemoryAndDiskAreSaid(t *testing.T) {
	r := &Report{Memory: Memory{8e9, 3.9e9}, Disk: Disk{"/d", 9.9e9}}
	r.Missing = r.missing("")
	assert.Contains(t, todo(r, "memory"), "only 3.9 GB")
	assert.Contains(t, todo(r, "disk space"), "only 9.9 GB are free in /d")
	r = &Report{Memory: Memory{8e9, 4e9}, Disk: Disk{"/d", 10e9}}
	r.Missing = r.missing("")
	assert.Empty(t, todo(r, "memory")+todo(r, "disk space"))
}

func TestContainerLimitCounts(t *testing.T) {
	m := Memory{TotalBytes: 100, AvailableBytes: 80}
	assert.Equal(t, m, m.limitedTo(0, 7))
	assert.Equal(t, m, m.limitedTo(1000, 7))
	assert.Equal(t, Memory{50, 43}, m.limitedTo(50, 7))
	assert.Equal(t, Memory{90, 80}, m.limitedTo(90, 7))
	assert.Equal(t, Memory{50, 0}, m.limitedTo(50, 60))
}

func TestThisMachineIsMeasured(t *testing.T) {
	m := memory()
	assert.Greater(t, m.TotalBytes, uint64(100e6))
	assert.LessOrEqual(t, m.AvailableBytes, m.TotalBytes)
	assert.Positive(t, freeSpace(".").FreeBytes)
	assert.True(t, filepath.IsAbs(freeSpace(".").Folder))
	t.Setenv("CC", "no-such-compiler -O2")
	assert.Empty(t, goTools().CCompiler)
	t.Setenv("CC", "go env")
	assert.NotEmpty(t, goTools().CCompiler)
}

func TestModelsAreFound(t *testing.T) {
	o := machine(t, map[string]any{"auto": onGo})
	write(t, "GGUF1234", o.modelFolder, "a.gguf")
	write(t, "oops", o.modelFolder, "b.gguf")
	write(t, "{}", o.modelFolder, "org", "hf", "config.json")
	write(t, "12345", o.modelFolder, "org", "hf", "model-1.safetensors")
	write(t, "678", o.modelFolder, "org", "hf", "model-2.safetensors")
	write(t, "{}", o.modelFolder, "no-weights", "config.json")
	write(t, "text", o.modelFolder, "README.md")
	snapshots := filepath.Join(o.hubFolder, "models--Qwen--Qwen2.5-0.5B", "snapshots")
	write(t, "{}", snapshots, "aaa", "config.json") // Its weights were never fetched.
	write(t, "{}", snapshots, "bbb", "config.json")
	write(t, "weights", o.hubFolder, "blobs", "x")
	blob := filepath.Join(o.hubFolder, "blobs", "x")
	require.NoError(t, os.Symlink(blob, filepath.Join(snapshots, "bbb", "model.safetensors")))
	write(t, "{}", o.hubFolder, "models--org--incomplete", "snapshots", "c", "config.json")
	write(t, "GGUF", o.hubFolder, "models--org--quantised", "snapshots", "d", "q8.gguf")

	r := Collect(context.Background(), o)
	hf := filepath.Join("org", "hf")
	assert.Equal(t, []Model{{"a.gguf", "gguf", 8}, {"b.gguf", "damaged", 4}, {hf, "safetensors", 8}}, r.Models.Found)
	assert.Equal(t, []Model{{"Qwen/Qwen2.5-0.5B", "safetensors", 7}, {"org/quantised", "gguf", 4}}, r.HubCache.Found)
	assert.Contains(t, text(t, r), "b.gguf (damaged)")
}

func TestDataIsFound(t *testing.T) {
	o := machine(t, map[string]any{"auto": onGo})
	write(t, "{}\n", o.WorkDir, "data", "gsm8k", "train.jsonl")
	write(t, "{}\n", o.WorkDir, "data", "gsm8k", "deep", "test.parquet")
	write(t, "no data", o.WorkDir, "data", "notes", "README.md")
	write(t, "{}{}\n", o.WorkDir, "data", "corpus.jsonl")
	write(t, "{}\n", os.Getenv("NANOAGENTRL_SHARED"), "data", "squad", "dev.jsonl")
	dirs := findData(o.WorkDir)
	require.Len(t, dirs, 2)
	assert.Equal(t, []DataSet{{"corpus.jsonl", 1, 5}, {"gsm8k", 2, 6}}, dirs[0].Sets)
	assert.Equal(t, []DataSet{{"squad", 1, 3}}, dirs[1].Sets)
	assert.True(t, hasData(dirs))
	assert.False(t, hasData(findData(t.TempDir())[:1]))
}

func TestFoldersFollowTheEnvironment(t *testing.T) {
	t.Setenv("NANOAGENTRL_MODELS", "/m")
	assert.Equal(t, "/m", modelFolder())
	t.Setenv("NANOAGENTRL_MODELS", "")
	assert.True(t, strings.HasSuffix(modelFolder(), filepath.Join("nanoagentrl", "models")), modelFolder())
	t.Setenv("HF_HUB_CACHE", "/h")
	t.Setenv("HF_HOME", "/home")
	assert.Equal(t, "/h", hubFolder())
	t.Setenv("HF_HUB_CACHE", "")
	assert.Equal(t, filepath.Join("/home", "hub"), hubFolder())
}

// Programs and bug reports read these keys: change none.
func TestJSONKeysAreStable(t *testing.T) {
	r := Collect(context.Background(), machine(t, map[string]any{"auto": onGo}))
	var out bytes.Buffer
	require.NoError(t, r.WriteJSON(&out))
	assert.NotContains(t, out.String(), "null")
	var got map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))
	for section, keys := range map[string][]string{
		"go":        {"version", "os", "arch", "cgo", "c_compiler"},
		"cpu":       {"cores", "usable_cores"},
		"memory":    {"total_bytes", "available_bytes"},
		"disk":      {"folder", "free_bytes"},
		"backend":   {"kind", "reason", "gflops_f32", "gflops_bf16", "auto_error", "error"},
		"plugin":    {"installed", "path", "version", "sha256", "error"},
		"models":    {"folder", "found"},
		"hub_cache": {"folder", "found"},
	} {
		section, ok := got[section].(map[string]any)
		require.True(t, ok, section)
		assert.ElementsMatch(t, keys, keysOf(section))
	}
	assert.ElementsMatch(t, []string{"ready", "go", "cpu", "memory", "disk", "backend", "plugin", "nvidia_driver", "models",
		"hub_cache", "data", "missing", "next"}, keysOf(got))
}

func keysOf(m map[string]any) []string {
	keys := []string{}
	for key := range m {
		keys = append(keys, key)
	}
	return keys
}

func TestWrap(t *testing.T) {
	assert.Equal(t, "  a b", wrap("  a b", "    "))
	long := strings.Repeat("word ", 30)
	lines := strings.Split(wrap("  - "+long, "    "), "\n")
	require.Len(t, lines, 2)
	assert.LessOrEqual(t, len(lines[0]), 100)
	assert.True(t, strings.HasPrefix(lines[0], "  - word"))
	assert.True(t, strings.HasPrefix(lines[1], "    word"))
	assert.Equal(t, "", wrap("", "  "))
}
