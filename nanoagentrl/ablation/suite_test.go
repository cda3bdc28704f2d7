package ablation

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
)

// baseText is the config of a run of a fraction of a second on pure Go.
const baseText = `run_dir: unused
backend: go
model: random
random_layers: 1
random_hidden: 16
random_heads: 2
random_kv_heads: 1
random_intermediate: 16
train_data: tiny
eval_data: [tiny]
corpus: tiny
max_eval_questions: 3
system_prompt: ""
user_prompt: "{question}"
chat_template: never
prompts_per_step: 2
group_size: 4
max_turns: 2
max_new_tokens: 12
max_turn_tokens: 6
topk: 1
max_obs_tokens: 48
max_context: 192
reward_format: 0.2
kl_coef: 0
steps: 1
lr: 0.01
eval_every: 1
sample_every: 0
`

const suiteText = `title: A title
question: Does it matter?
base: BASE
seeds: 2
set: [temperature=0.9]
watch: [train/num_searches]
variants:
  - {name: plain, set: []}
  - {name: cold, set: [lr=0.001]}
`

// write writes a suite and its base into a folder and returns the suite's path; replace are pairs for strings.Replacer.
func write(t *testing.T, dir, name, text string, replace ...string) string {
	t.Helper()
	base := filepath.Join(dir, "base.yaml")
	require.NoError(t, os.WriteFile(base, []byte(baseText), 0o644))
	text = strings.NewReplacer(append(replace, "BASE", base)...).Replace(text)
	path := filepath.Join(dir, name+".yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// load returns a suite that is read from a file.
func load(t *testing.T, dir, name string, replace ...string) *Suite {
	t.Helper()
	s, err := Load(write(t, dir, name, suiteText, replace...))
	require.NoError(t, err)
	return s
}

func TestSuiteIsReadAsItStands(t *testing.T) {
	dir := t.TempDir()
	s := load(t, dir, "try")
	assert.Equal(t, "try", s.Name)
	assert.Equal(t, 2, s.Seeds)
	assert.Equal(t, []string{"plain", "cold"}, s.names())
	assert.Equal(t, []string{"lr"}, s.varied())
	assert.Equal(t, 3, load(t, dir, "try", "seeds: 2\n", "").Seeds, "the default")
}

func TestBadSuitesAreRefusedWithTheReason(t *testing.T) {
	for name, test := range map[string]struct {
		old, new string
		want     []string
	}{
		"unknown key":         {"seeds:", "sedes:", []string{"try.yaml:4", `unknown key "sedes"; did you mean seeds?`}},
		"unknown variant key": {"{name: cold, set:", "{name: cold, sets:", []string{"try.yaml:9", `unknown key "sets"`}},
		"key twice":           {"seeds: 2", "seeds: 2\nseeds: 3", []string{"try.yaml:5", "seeds is given twice"}},
		"wrong type":          {"seeds: 2", "seeds: many", []string{"try.yaml:4", "seeds"}},
		"set is no list":      {"set: [lr=0.001]", "set: lr=0.001", []string{"try.yaml:9", "variants.2.set", "want a list"}},
		"no seeds":            {"seeds: 2", "seeds: 0", []string{"seeds: got 0, want at least 1"}},
		"no title":            {"title: A title", "title: ''", []string{"title: is missing"}},
		"no base":             {"base: BASE\n", "", []string{"base: is missing"}},
		"variant twice":       {"name: cold", "name: plain", []string{"variants.2.name: plain is there twice"}},
		"variant twice but for case": {"name: cold", "name: Plain",
			[]string{"variants.2.name: Plain is there twice (first as plain)"}},
		"variant is no name of a folder": {"name: cold", "name: ../cold", []string{"variants.2.name", "letters, digits"}},
		"one variant":                    {"  - {name: cold, set: [lr=0.001]}\n", "", []string{"at least 2"}},
		"no override":                    {"lr=0.001", "lr", []string{`variants.2 (cold): set: got "lr", want key=value`}},
		"override twice":                 {"lr=0.001", "lr=0.001, lr=0.002", []string{"lr is given twice"}},
		"seed is the grid's":             {"lr=0.001", "seed=9", []string{"seed is set for each run by the grid"}},
		"run_dir is the grid's":          {"temperature=0.9", "run-dir=x", []string{"run_dir is set for each run"}},
		"metric that is not known": {"train/num_searches", "train/serches",
			[]string{"train/serches", "train/num_searches"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, suiteText, test.old)
			_, err := Load(write(t, t.TempDir(), "try", suiteText, test.old, test.new))
			require.Error(t, err)
			for _, want := range test.want {
				assert.Contains(t, err.Error(), want)
			}
		})
	}
	_, err := Load(filepath.Join(t.TempDir(), "none.yaml"))
	assert.ErrorContains(t, err, "none.yaml")
	_, err = Load(write(t, t.TempDir(), "two words", suiteText))
	assert.ErrorContains(t, err, `"two words", names folders`)
}

func TestAllFaultsOfASuiteAreToldAtOnce(t *testing.T) {
	_, err := Load(write(t, t.TempDir(), "try", suiteText, "title: A title", "title: ''", "name: cold", "name: plain",
		"train/num_searches", "x"))
	for _, want := range []string{"title: is missing", "plain is there twice", `unknown metric "x"`} {
		assert.ErrorContains(t, err, want)
	}
}

func TestGridRefusesWhatTheBaseDoesNotHave(t *testing.T) {
	for name, test := range map[string]struct {
		old, new string
		opts     GridOptions
		want     []string
	}{
		"unknown key of a variant": {"lr=0.001", "learning_rate=0.001", GridOptions{},
			[]string{"try.yaml, variant cold: ", "learning_rate", "did you mean lr?"}},
		"value out of range": {"lr=0.001", "temperature=0", GridOptions{}, []string{"variant cold", "temperature"}},
		"unknown shared key": {"temperature=0.9", "tempreature=1", GridOptions{},
			[]string{"variant plain: ", "variant cold: ", "did you mean temperature?"}},
		"missing base":          {"base: BASE", "base: nowhere.yaml", GridOptions{}, []string{"nowhere.yaml"}},
		"variants that are one": {"lr=0.001", "lr=0.01", GridOptions{}, []string{"plain and cold are the same run"}},
		"nothing to measure on": {"temperature=0.9", "'eval_data=[]', eval_every=0, eval_at_start=false", GridOptions{},
			[]string{"eval_data is empty"}},
		"unknown variant chosen": {"", "", GridOptions{Only: []string{"warm"}},
			[]string{`no variant "warm"; it has plain, cold`}},
		"override of what is varied": {"", "", GridOptions{Set: []string{"lr=1"}},
			[]string{"--set lr: the suite try varies it"}},
		"override of the grid's": {"", "", GridOptions{Set: []string{"seed=1"}},
			[]string{"--set: seed is set for each run"}},
		"unknown override":         {"", "", GridOptions{Set: []string{"lerning=1"}}, []string{"lerning"}},
		"too many seeds":           {"", "", GridOptions{Seeds: 1000}, []string{"got 1000 seeds"}},
		"override that is not one": {"", "", GridOptions{Set: []string{"topk"}}, []string{`got "topk", want key=value`}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Load(write(t, t.TempDir(), "try", suiteText, test.old, test.new))
			if test.old == "" {
				s, err = Load(write(t, t.TempDir(), "try", suiteText))
			}
			require.NoError(t, err)
			_, err = s.Grid(test.opts)
			require.Error(t, err)
			for _, want := range test.want {
				assert.Contains(t, err.Error(), want)
			}
		})
	}
}

// Of base, shared overrides, variant and command line the later wins, and each run has a folder and a seed of its own.
func TestGridIsVariantsTimesSeeds(t *testing.T) {
	g, err := load(t, t.TempDir(), "try").Grid(GridOptions{Out: "out", Seeds: 3, Only: []string{"cold"},
		Set: []string{"steps=7"}})
	require.NoError(t, err)
	var names, dirs []string
	for _, c := range g.Cells {
		names, dirs = append(names, c.Name()), append(dirs, filepath.ToSlash(c.Config.RunDir))
		assert.EqualValues(t, c.Seed, c.Config.Seed)
		assert.Equal(t, 0.9, c.Config.Temperature)
		assert.Equal(t, map[string]float64{"plain": 0.01, "cold": 0.001}[c.Variant], c.Config.LR)
		assert.Equal(t, 7, c.Config.Steps)
		assert.Equal(t, c.Variant == "plain", c.Skip)
		assert.True(t, c.Config.Showcase)
		assert.Equal(t, config.NoFigure, c.Config.Figure, "no run draws over the figure of the base")
	}
	assert.Equal(t, []string{"plain seed 1", "cold seed 1", "plain seed 2", "cold seed 2", "plain seed 3", "cold seed 3"},
		names)
	assert.Equal(t, "out/try/cold/seed-3", dirs[5])
}

// Each suite of the repository resolves, and with the base's data and the tiny model its runs can be made.
func TestSuitesOfTheRepository(t *testing.T) {
	t.Chdir("../..")
	paths, err := filepath.Glob("configs/ablations/*.yaml")
	require.NoError(t, err)
	var names []string
	for _, path := range paths {
		s, err := Load(path)
		require.NoError(t, err)
		for _, tiny := range []bool{false, true} {
			g, err := s.Grid(GridOptions{Out: t.TempDir(), Tiny: tiny})
			require.NoError(t, err)
			assert.GreaterOrEqual(t, g.Seeds, 3, path)
			for _, c := range g.Cells {
				assert.NoError(t, c.Config.Validate(), "%s: %s", path, c.Name())
			}
		}
		names = append(names, s.Name)
		assert.NoError(t, CheckDoc("docs/results.md", s.Name))
	}
	for _, want := range strings.Fields("algorithm format_reward group_size kl loss_mask max_turns std_norm topk") {
		assert.Contains(t, names, want)
	}
}

// Which group size is best is asked with equally many episodes.
func TestGroupSizesHaveEquallyManyEpisodes(t *testing.T) {
	t.Chdir("../..")
	s, err := Load("configs/ablations/group_size.yaml")
	require.NoError(t, err)
	g, err := s.Grid(GridOptions{})
	require.NoError(t, err)
	sizes := map[int]bool{}
	for _, c := range g.Cells {
		assert.Equal(t, 128, c.Config.PromptsPerStep*c.Config.GroupSize)
		sizes[c.Config.GroupSize] = true
	}
	assert.Equal(t, map[int]bool{2: true, 4: true, 8: true, 16: true}, sizes)
}
