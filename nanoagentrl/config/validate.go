package config

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Tiny is the value of train_data, eval_data and corpus that stands for the small world made in memory.
const Tiny = "tiny"

// The worlds made in memory whose splits train_data and eval_data can name ("facts:train"). WorldFacts is a corpus too.
const (
	WorldFacts = "facts"
	WorldSums  = "sums"
)

// RandomModel is the value of model that stands for an untrained model.
const RandomModel = "random"

// NoFigure is the value of figure with which a run draws nothing.
const NoFigure = "none"

// QuestionMark is replaced by the question in user_prompt.
const QuestionMark = "{question}"

// Validate checks ranges, allowed words, divisibility and what the keys say together. The error holds all faults, one
// a line, each beginning with its key. No file is looked at.
func (c *Config) Validate() error {
	var faults []error
	fault := func(key, format string, args ...any) {
		faults = append(faults, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
	}
	value := reflect.ValueOf(c).Elem()
	for i := range value.NumField() {
		field := value.Type().Field(i)
		if message := checkField(value.Field(i), field.Tag); message != "" {
			fault(field.Tag.Get("yaml"), "%s", message)
		}
	}
	c.checkModel(fault)
	c.checkData(fault)
	c.checkPrompt(fault)
	c.checkTraining(fault)
	c.checkShaping(fault)
	c.checkEval(fault)
	if err := c.checkContext(c.MaxContext); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// checkField checks one value against the tags of its field and returns what is wrong with it.
func checkField(value reflect.Value, tag reflect.StructTag) string {
	if words := strings.Fields(tag.Get("oneof")); len(words) > 0 && !slices.Contains(words, value.String()) {
		return fmt.Sprintf("got %q, want one of %s", value.String(), strings.Join(words, ", "))
	}
	var number float64
	switch value.Kind() {
	case reflect.Int:
		number = float64(value.Int())
	case reflect.Float64:
		number = value.Float()
	default:
		return ""
	}
	if math.IsNaN(number) || math.IsInf(number, 0) {
		return fmt.Sprintf("got %v, want a finite number", number)
	}
	for _, bound := range []struct {
		tag, words string
		outside    func(limit float64) bool
	}{
		{"min", "at least", func(limit float64) bool { return number < limit }},
		{"max", "at most", func(limit float64) bool { return number > limit }},
		{"above", "more than", func(limit float64) bool { return number <= limit }},
	} {
		if limit, err := strconv.ParseFloat(tag.Get(bound.tag), 64); err == nil && bound.outside(limit) {
			return fmt.Sprintf("got %v, want %s %s", value.Interface(), bound.words, tag.Get(bound.tag))
		}
	}
	return ""
}

type faultFunc func(key, format string, args ...any)

func (c *Config) checkModel(fault faultFunc) {
	for _, need := range []struct{ key, value, what string }{
		{"run_dir", c.RunDir, "a folder for the run's files"},
		{"model", c.Model, `a folder, a GGUF file, a hub name or "random"`},
		{"reference", c.Reference, `"base", a folder, a GGUF file or a hub name`},
	} {
		if need.value == "" {
			fault(need.key, "is empty; want %s", need.what)
		}
	}
	if c.RandomHeads > 0 && c.RandomHidden%(2*c.RandomHeads) != 0 {
		fault("random_hidden", "%d is not a multiple of 2 x random_heads (%d)", c.RandomHidden, 2*c.RandomHeads)
	}
	if c.RandomKVHeads > 0 && c.RandomHeads%c.RandomKVHeads != 0 {
		fault("random_kv_heads", "%d does not divide random_heads (%d)", c.RandomKVHeads, c.RandomHeads)
	}
}

func (c *Config) checkData(fault faultFunc) {
	if c.TrainData == "" {
		fault("train_data", `is empty; want a JSONL or parquet file, or "tiny"`)
	}
	for i, path := range c.EvalData {
		if path == "" {
			fault("eval_data", "entry %d is empty", i+1)
		}
		if names := c.EvalSplits(); slices.Contains(names[:i], names[i]) {
			fault("eval_data", "two files give the split %s; copy or rename one", names[i])
		}
	}
	c.checkWorlds(fault)
	if c.Task != "search" {
		return
	}
	if c.OpenSearchURL != "" || c.OpenSearchIndex != "" {
		c.checkOpenSearch(fault)
		return
	}
	if c.RetrieverURL == "" {
		c.checkCorpus(fault)
		if c.RetrieverKind != "bm25" && c.Encoder == "" {
			fault("encoder", "is empty; retriever_kind: %s needs a sentence encoder, such as sentence-transformers/all-MiniLM-L6-v2",
				c.RetrieverKind)
		}
		return
	}
	if c.RetrieverKind != "bm25" {
		fault("retriever_kind", "is %s, but the server at retriever_url decides how it searches; leave one of them out",
			c.RetrieverKind)
	}
	if u, err := url.Parse(c.RetrieverURL); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		fault("retriever_url", "got %q, want an address such as http://127.0.0.1:8000/retrieve", c.RetrieverURL)
	}
}

// WorldSplit cuts the name of a split of a world made in memory ("facts:train") into world and split; ok is false for
// everything else, such as the name of a file.
func WorldSplit(name string) (world, split string, ok bool) {
	world, split, _ = strings.Cut(name, ":")
	return world, split, world == WorldFacts || world == WorldSums
}

// checkWorlds checks the names of worlds, and that each goes with the task it was made for.
func (c *Config) checkWorlds(fault faultFunc) {
	for i, name := range append([]string{c.TrainData}, c.EvalData...) {
		key := "eval_data"
		if i == 0 {
			key = "train_data"
		}
		world, split, ok := WorldSplit(name)
		if !ok {
			continue
		}
		if !slices.Contains([]string{"train", "val", "test"}, split) {
			fault(key, "got %q, want %s:train, %s:val or %s:test (a folder of this name is ./%s)", name, world, world,
				world, name)
		}
		if task := map[string]string{WorldFacts: "search", WorldSums: "gsm8k"}[world]; task != c.Task {
			fault(key, "%s goes with task: %s", name, task)
		}
	}
}

// checkOpenSearch refuses half of an address, and what cannot go with one.
func (c *Config) checkOpenSearch(fault faultFunc) {
	if c.OpenSearchURL == "" || c.OpenSearchIndex == "" {
		fault("opensearch_url", "and opensearch_index go together; one of them is empty")
	}
	for _, other := range []struct{ key, value string }{{"retriever_url", c.RetrieverURL}, {"index", c.Index}} {
		if other.value != "" {
			fault(other.key, "is %s, and opensearch_url is set too; choose one search engine", other.value)
		}
	}
	if c.Corpus == Tiny || c.Corpus == WorldFacts {
		fault("corpus", "%s is made in memory and cannot lie in opensearch_index; name its file, or leave it empty", c.Corpus)
	}
}

// checkCorpus refuses a corpus that cannot hold the answers: a world made in memory goes only with its own questions.
func (c *Config) checkCorpus(fault faultFunc) {
	if c.Corpus == "" {
		fault("corpus", "is empty; task search needs a corpus or a retriever_url, or an opensearch_url")
		return
	}
	for _, questions := range append([]string{c.TrainData}, c.EvalData...) {
		if questions != "" && madeIn(questions) != madeIn(c.Corpus) {
			fault("corpus", "%s does not hold the answers to the questions of %s; use the corpus that belongs to them, or "+
				"other questions (train_data, eval_data)", c.Corpus, questions)
		}
	}
}

// madeIn returns the world that questions or a corpus come from; "" for a file.
func madeIn(name string) string {
	if world, _, ok := WorldSplit(name); ok || name == Tiny {
		return world
	}
	return ""
}

func (c *Config) checkPrompt(fault faultFunc) {
	if c.PromptSource == "config" && c.UserPrompt != DefaultPrompt && !strings.Contains(c.UserPrompt, QuestionMark) {
		fault("user_prompt", "has no %s, so that every question would get the same prompt", QuestionMark)
	}
}

func (c *Config) checkTraining(fault faultFunc) {
	if end := strings.ToLower(filepath.Ext(c.Figure)); c.Figure != "" && c.Figure != NoFigure && end != ".png" && end != ".svg" {
		fault("figure", "got %q, want a file that ends in .png or .svg, none, or nothing", c.Figure)
	}
	c.checkGroups(fault)
	if c.Minibatches > 0 && c.PromptsPerStep%c.Minibatches != 0 {
		fault("minibatches", "%d does not divide prompts_per_step (%d)", c.Minibatches, c.PromptsPerStep)
	}
	if c.RewardEM == 0 && c.RewardF1 == 0 && c.RewardLenient == 0 && c.RewardFormat == 0 &&
		c.RewardValidTurns == 0 {
		fault("reward_em", "is 0 and so is every other reward_ key: nothing would be learned")
	}
	if c.Task == "gsm8k" && (c.RewardF1 != 0 || c.RewardLenient != 0) {
		fault("reward_f1", "and reward_lenient are for task search; with gsm8k both must be 0")
	}
}

// maxEpisodes bounds the episodes of a step, which are all held in memory.
const maxEpisodes = 1_000_000

// checkGroups refuses groups of one where an episode is compared with the others of its group.
func (c *Config) checkGroups(fault faultFunc) {
	compared := c.Advantage != "reinforce_pp" && c.Advantage != "gae"
	switch {
	case c.GroupSize < 2 && compared:
		fault("group_size", "got %d, want at least 2: the baseline is the mean reward of the group, "+
			"and an episode alone would always have advantage 0", c.GroupSize)
	case c.GroupSize < 1:
		fault("group_size", "got %d, want at least 1", c.GroupSize)
	case c.GroupSize > maxEpisodes/max(c.PromptsPerStep, 1):
		fault("group_size", "got %d, with %d prompts a step more than %d episodes a step", c.GroupSize, c.PromptsPerStep,
			maxEpisodes)
	case c.GroupSize < 2 && c.DynamicSampling > 0:
		fault("dynamic_sampling", "looks for groups whose rewards differ; with group_size 1 set it to 0")
	}
}

// checkShaping checks what changes rewards over time and length.
func (c *Config) checkShaping(fault faultFunc) {
	if c.OverlongBuffer > c.MaxNewTokens {
		fault("overlong_buffer", "%d is more than max_new_tokens (%d)", c.OverlongBuffer, c.MaxNewTokens)
	}
	if c.FormatAnnealSteps > 0 && c.RewardEM == 0 && c.RewardF1 == 0 && c.RewardLenient == 0 {
		fault("format_anneal_steps", "would leave nothing to learn from: every reward_ key but those it anneals is 0")
	}
}

func (c *Config) checkEval(fault faultFunc) {
	if len(c.EvalData) == 0 && (c.EvalEvery > 0 || c.EvalAtStart) {
		fault("eval_data", "is empty; name a file, or set eval_every: 0 and eval_at_start: false")
	}
	if c.EvalSamples > 1 && c.EvalTemperature == 0 {
		fault("eval_samples", "is %d, but with eval_temperature 0 all samples are the same", c.EvalSamples)
	}
}

// checkContext checks that an episode with one full search result fits into limit tokens; 0 stands for no limit.
func (c *Config) checkContext(limit int) error {
	need, words := c.MaxNewTokens, "max_new_tokens"
	if c.Task == "search" {
		need, words = need+c.MaxObsTokens, "max_new_tokens + max_obs_tokens"
	}
	if limit > 0 && need >= limit {
		return fmt.Errorf("max_context: %s (%d) leaves no room for a prompt in %d tokens; raise max_context or lower them",
			words, need, limit)
	}
	return nil
}

// ContextFor returns the number of tokens of a whole episode for a model that takes at most modelMax: max_context, or
// modelMax where max_context is 0. It is an error if the model takes less than max_context, or if the token budgets do
// not fit.
func (c *Config) ContextFor(modelMax int) (int, error) {
	if c.MaxContext > modelMax {
		return 0, fmt.Errorf("max_context: got %d, but the model takes at most %d tokens", c.MaxContext, modelMax)
	}
	if c.MaxContext > 0 {
		return c.MaxContext, nil
	}
	return modelMax, c.checkContext(modelMax)
}

// EvalSplits returns the name of each file of eval_data: the file's name without its ending, or, if two would be
// equal, all of them with their folder's name in front ("nq_test"). facts:test is facts_test, and so with data sets.
func (c *Config) EvalSplits() []string {
	short, long := make([]string, len(c.EvalData)), make([]string, len(c.EvalData))
	unique := map[string]bool{}
	for i, path := range c.EvalData {
		if name, split, ok := strings.Cut(path, ":"); ok && !strings.ContainsAny(path, `/\.`) {
			path = name + "_" + split
		}
		short[i] = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
		long[i] = filepath.Base(filepath.Dir(path)) + "_" + short[i]
		unique[short[i]] = true
	}
	if len(unique) == len(short) {
		return short
	}
	return long
}
