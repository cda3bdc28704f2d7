package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/weights"
)

// subject is one checkpoint to be made.
type subject struct {
	name string
	// settings makes what the training run starts from in dir and returns its settings, key=value.
	settings func(dir string) ([]string, error)
}

// step is one step of training on a world made in memory, with few tokens.
var step = []string{
	"task=search", "train_data=tiny", "corpus=tiny", "eval_data=[]", "eval_every=0", "eval_at_start=false",
	"best_metric=", "steps=1", "save_every=1", "sample_every=1", "system_prompt=", "chat_template=never",
	"prompts_per_step=2", "group_size=4", "max_turns=2", "max_new_tokens=32", "max_turn_tokens=16", "max_obs_tokens=64",
	"topk=1", "max_context=384", "reward_valid_turns=0.5",
}

// subjects lists the checkpoints that are made: of the tiny models, whose two shapes from a folder hold what pretrained
// ones may bring, and of the pretrained models given.
func subjects(models []string) ([]subject, error) {
	list := []subject{
		{"tiny_qwen2", func(string) ([]string, error) {
			return slices.Concat(step, []string{"backend=go", "model=random", "user_prompt={question}", "kl_coef=0",
				"lr=0.01"}), nil
		}},
		{"tiny_qwen2_tied", fromFolder(nn.Config{
			ModelType: "qwen2", HiddenSize: 48, IntermediateSize: 96, NumLayers: 2, NumHeads: 4, NumKVHeads: 2,
			HeadDim: 16, MaxPositions: 512, RopeTheta: 1e6, NormEps: 1e-6, AttentionBias: true, TieEmbeddings: true,
		})},
		{"tiny_llama", fromFolder(nn.Config{
			ModelType: "llama", HiddenSize: 64, IntermediateSize: 80, NumLayers: 3, NumHeads: 4, NumKVHeads: 1,
			HeadDim: 16, MaxPositions: 1024, RopeTheta: 10000, NormEps: 1e-5,
			RopeScaling: &nn.RopeScaling{Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositions: 128},
		})},
	}
	for _, path := range models {
		name := strings.TrimSuffix(filepath.Base(filepath.Clean(path)), filepath.Ext(path))
		if slices.ContainsFunc(list, func(s subject) bool { return s.name == name }) {
			return nil, fmt.Errorf("--model %s: there are two models named %s", path, name)
		}
		list = append(list, subject{name, func(string) ([]string, error) { return pretrained(path), nil }})
	}
	return list, nil
}

// prompt shows a pretrained model what to write, so that some of its turns are valid and the step has a signal.
const prompt = `Question: where was Paul Ford born ?
<search>Paul Ford</search>

Question: what is the trade of Rita Lund ?
<search>Rita Lund</search>

Question: {question}
`

func pretrained(path string) []string {
	return slices.Concat(step, []string{"model=" + path, "offline=true", "user_prompt=" + prompt, "kl_coef=0", "lr=1e-4"})
}

// fromFolder starts from a model of random weights in a Hugging Face folder. It earns no rewards; what moves it is the
// penalty for its distance from a reference with other weights.
func fromFolder(cfg nn.Config) func(dir string) ([]string, error) {
	return func(dir string) ([]string, error) {
		base, reference := filepath.Join(dir, "base"), filepath.Join(dir, "reference")
		for i, folder := range []string{base, reference} {
			if err := saveRandom(folder, cfg, uint64(i)); err != nil {
				return nil, err
			}
		}
		return slices.Concat(step, []string{"backend=go", "model=" + base, "reference=" + reference, "user_prompt={question}",
			"kl_coef=1", "lr=0.02"}), nil
	}
}

// saveRandom writes a model whose every tensor matters to the result: biases are not 0, norms not 1, and the scores of
// tokens are spread as widely as in a trained model.
func saveRandom(dir string, cfg nn.Config, seed uint64) error {
	words := slices.Concat(
		[]string{tokenizer.WordUnk, tokenizer.WordPad, tokenizer.WordBOS, tokenizer.WordEOS},
		strings.Fields("<think> </think> <search> </search> <information> </information> <answer> </answer>"),
		data.TinyVocabulary())
	tok, err := tokenizer.NewWords(words)
	if err != nil {
		return err
	}
	cfg.VocabSize = len(words) + 3 // Some models have rows beyond the last token.
	cfg.EOS = append(tokenizer.EndIDs(tok), len(words)-1)
	cfg.BOS, _ = tok.TokenID(tokenizer.WordBOS)
	cfg.Pad, _ = tok.TokenID(tokenizer.WordPad)
	random := rand.New(rand.NewPCG(seed, 0x636b))
	shapes := map[string][]int{}
	for _, p := range cfg.Params() {
		shapes[p.Name] = p.Shape
	}
	fill := func(name string) ([]float32, error) {
		shape, mean, std := shapes[name], 0.0, 0.3
		size := shape[0]
		switch {
		case len(shape) == 2:
			size, std = shape[0]*shape[1], 1/math.Sqrt(float64(shape[1]))
		case strings.HasSuffix(name, "norm.weight"):
			mean = 1
		}
		if strings.HasSuffix(name, "embed_tokens.weight") || strings.HasSuffix(name, "lm_head.weight") {
			std *= 2
		}
		values := make([]float32, size)
		for i := range values {
			values[i] = float32(mean + std*random.NormFloat64())
		}
		return values, nil
	}
	if err := weights.SaveFolder(dir, cfg, fill, weights.SaveOptions{}); err != nil {
		return err
	}
	return tok.Save(dir)
}
